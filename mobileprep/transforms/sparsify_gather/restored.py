"""The values of constants and variables of a graph that has its restore ops still."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

from mobileprep.errors import TransformError
from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.transforms.base import refuse

_NAME: Final = "sparsify_gather"
_PART: Final = "part_"


class Restored:
    """Reads values; a context that closes the checkpoint.

    Args:
        graph: the graph.
        path: the checkpoint, or an empty text for none.

    Raises:
        CorruptFileError: the checkpoint is not there, or is damaged.
    """

    def __init__(self, graph: Graph, path: str) -> None:
        self._graph = graph
        self._checkpoint: Checkpoint | None = open_checkpoint(Path(path)) if path else None

    def __enter__(self) -> Restored:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._checkpoint is not None:
            self._checkpoint.close()

    def value(self, node: Node) -> Array:
        """The elements of a Const, or of a variable as its restore op would fill it.

        Raises:
            TransformError: there is no checkpoint, or no restore op fills the variable.
            CorruptFileError: the checkpoint does not hold it.
        """
        if node.op == "Const":
            return node.attr_tensor("value").array()
        if self._checkpoint is None:
            message = f"the values of the variable {node.name!r} are in no graph"
            raise refuse(_NAME, message, "give input_checkpoint, or freeze the graph first")
        return self._checkpoint.read(_stored_name(node.name), self._slice(node))

    def _slice(self, variable: Node) -> str:
        """Which part of the stored tensor a variable holds; empty for all of it.

        An Assign "save*/Assign*" names the output of the RestoreV2 that fills the variable; that
        one's inputs list the names and the slices of all that it restores.
        """
        restore = self._restoring(variable)
        if restore is None or len(restore.data_inputs) != 3:
            raise _not_restored(variable)
        _, names, slices = (self._graph[r.node] for r in restore.data_inputs)
        stored = [bytes(x) for x in names.attr_tensor("value").array().ravel()]
        key = _stored_name(variable.name).encode()
        if key not in stored:
            raise _not_restored(variable)
        parts = slices.attr_tensor("value").array().ravel()
        at = stored.index(key)
        return bytes(parts[at]).decode("utf-8", "replace") if at < len(parts) else ""

    def _restoring(self, variable: Node) -> Node | None:
        for node in self._graph.consumers.get(variable.name, ()):
            scope, _, rest = node.name.partition("/")
            assigns = scope.startswith("save") and rest.startswith("Assign") and "/" not in rest
            if assigns and len(node.data_inputs) > 1 and node.inputs[0].node == variable.name:
                source = self._graph[node.data_inputs[1].node]
                return source if source.op == "RestoreV2" else None
        return None


def _stored_name(variable: str) -> str:
    """The name of the tensor that a variable is stored in: without a last ``/part_N``."""
    whole, slash, part = variable.rpartition("/")
    return whole if slash and part.startswith(_PART) else variable


def _not_restored(variable: Node) -> TransformError:
    message = f"no restore op of the graph fills the variable {variable.name!r}"
    return refuse(_NAME, message, "keep the saver's nodes, or freeze the graph first")
