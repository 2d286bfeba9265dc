"""Replace lookups in mostly zero columns with hash tables of the other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import TransformError
from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.reachability import closure, nodes_of, without_dangling
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.rewrite import Rule, rewrite_all
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_READ: Final = op("Identity", op("Const|Variable|VariableV2", label="weights"), label="read")
_PATTERNS: Final = (
    op("Gather", _READ, op("*", label="ids")),
    op("GatherV2", _READ, op("*", label="ids"), op("Const")),
)


@transform("sparsify_gather")
class SparsifyGather(Transform, frozen=True):
    """Replace Gather from a [N, 1] constant or variable with a lookup in a hash table.

    The tables are filled by a NoOp, which must run once before anything else. Nodes that only
    served the replaced weights are removed. Weights that other nodes also need are not replaced;
    the original breaks these nodes.

    Source: ``sparsify_gather`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces lookups in [N, 1] constants and variables of mostly zeros with hash tables."
    of_graph_transform_tool = True

    group_init_node: Annotated[
        str,
        Option(
            "NoOp that fills the tables, to be run once before anything else. It is created if it"
            " does not exist.",
            min_length=1,
        ),
    ] = "group_deps"
    input_checkpoint: Annotated[
        str,
        Option("Prefix of the checkpoint with the values of variables.", format="checkpoint"),
    ] = ""

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace the lookups."""
        check_inputs(graph, self.transform_name)
        before = graph
        graph = graph.with_nodes(n.without_attrs("_output_shapes") for n in graph)
        with ExitStack() as stack:
            checkpoint = None
            if self.input_checkpoint:
                opened = open_checkpoint(Path(self.input_checkpoint))
                checkpoint = stack.enter_context(closing(opened))
            gathers = Gathers(graph, context, Restored(graph, checkpoint))
            work = _Tables(gathers)
            for pattern in _PATTERNS:
                rule = Rule(pattern, work.replace, work.check, allow_inconsistencies=True)
                graph = rewrite_all(graph, rule).graph
        if not work.matched and not context.tf115:
            return Result(before, skipped=gathers.skipped)
        graph = self._with_initializers(graph, work.initializers)
        graph = without_leftovers(graph, work.removed, context.protected)
        return Result(graph, work.matched, gathers.skipped)

    def _with_initializers(self, graph: Graph, initializers: Sequence[str]) -> Graph:
        name = self.group_init_node
        waits = tuple(control(n) for n in initializers)
        node = graph.get(name)
        if node is None or node.op != "NoOp":
            return graph.with_nodes([*graph, Node(name, "NoOp", waits)])
        node = replace(node, inputs=node.inputs + waits)
        return graph.with_nodes(node if n.name == name else n for n in graph)


class _Tables:
    """Replacement of lookups by tables; lookups in the same weights share a table."""

    def __init__(self, gathers: Gathers) -> None:
        self._gathers = gathers
        self._remaining = Counter(gathers.weights_of.values())
        self.matched = 0
        self.initializers: list[str] = []
        self.removed: list[str] = []

    def check(self, match: Match) -> str:
        """Return a reason to skip a lookup; the specific reason is already counted."""
        return "" if match.node.name in self._gathers.weights_of else "see above"

    def replace(self, match: Match) -> list[Node]:
        """Return the nodes that replace a lookup."""
        weights, read, ids = match["weights"], match["read"], match["ids"]
        self.matched += 1
        nodes = [ids]
        table, new_nodes = table_nodes(weights, self._gathers.values[weights.name])
        if self._remaining[weights.name] == self._gathers.count[weights.name]:
            nodes += new_nodes
            self.initializers.append(new_nodes[-1].name)
        nodes += lookup_nodes(match.node, table)
        self._remaining[weights.name] -= 1
        if self._remaining[weights.name]:
            nodes += [read, weights]
        else:
            self.removed += [weights.name, read.name]
        names = {n.name for n in nodes} | {weights.name, read.name, match.node.name}
        return nodes + [
            n for n in match.nodes if n.name not in names and n.name in match.used_outside
        ]


_NAME: Final = "sparsify_gather"
# Ops that are meaningless with a single input.
_OF_TWO: Final = frozenset({"Assign", "Reshape", "Equal", "Mean", "ScalarSummary"})
# It may restore other variables.
_KEPT: Final = frozenset({"RestoreV2"})


def without_leftovers(graph: Graph, removed: Iterable[str], protected: Collection[str]) -> Graph:
    """Return the graph without nodes that only served removed nodes.

    Inputs from removed nodes are dropped. Nodes without enough remaining inputs are removed, and so
    are nodes that only removed ones used. A ConcatV2 joins its remaining inputs.

    Source: the last part of ``sparsify_gather`` of TensorFlow 1.15's graph transforms.
    """
    cleaning = _Cleaning(graph, protected)
    cleaning.run(removed)
    nodes = cleaning.nodes
    return graph.with_nodes(without_dangling(nodes.values(), nodes))


class _Cleaning:
    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        self.nodes = dict(graph.by_name)
        self._protected = protected
        self._consumers = graph.consumers
        self._uses = Counter(_spelled(r) for n in graph for r in n.inputs)
        self._waiting: list[str] = []

    def run(self, removed: Iterable[str]) -> None:
        self._waiting += removed
        while self._waiting:
            name = self._waiting.pop()
            if name in self._protected:
                continue
            node = self.nodes.get(name)
            if node is not None and node.op not in _KEPT:
                self._drop(node)
            elif node is not None:
                continue
            for consumer in self._consumers.get(name, ()):
                if consumer.name in self.nodes:
                    self._take_off(self.nodes[consumer.name], name)

    def _drop(self, node: Node) -> None:
        del self.nodes[node.name]
        for ref in node.inputs:
            self._release(ref)

    def _release(self, ref: Ref) -> None:
        spelled = _spelled(ref)
        self._uses[spelled] -= 1
        if not self._uses[spelled]:
            self._waiting.append(spelled)

    def _take_off(self, node: Node, name: str) -> None:
        inputs = tuple(r for r in node.inputs if _spelled(r) != name)
        if len(inputs) == len(node.inputs):
            return
        node = replace(node, inputs=inputs)
        if node.op == "ConcatV2":
            node = self._joining_less(node)
        self.nodes[node.name] = node
        if not node.inputs or (node.op in _OF_TWO and len(node.inputs) == 1):
            self._waiting.append(node.name)

    def _joining_less(self, node: Node) -> Node:
        tensors = len(node.inputs) - 1
        if tensors > 1:
            return node.with_attrs(N=attr.integer(tensors))
        if tensors < 1:
            message = f"the ConcatV2 node {node.name!r} has nothing left to join"
            raise refuse(_NAME, message, "strip unused nodes first")
        axis = node.inputs[1]
        if self._uses[_spelled(axis)] != 1:
            message = f"the axis {str(axis)!r} of the ConcatV2 node {node.name!r} is used elsewhere"
            raise refuse(_NAME, message, "strip unused nodes first")
        self._release(axis)
        # Identity has neither the number of inputs nor the type of an axis.
        return replace(node, op="Identity", inputs=node.inputs[:1]).without_attrs("N", "Tidx")


def _spelled(ref: Ref) -> str:
    return str(ref).removeprefix("^")


class Restored(Struct, frozen=True):
    """Values of the variables of a graph, from a checkpoint if there is one."""

    graph: Graph
    checkpoint: Checkpoint | None

    def value(self, node: Node) -> Array:
        """Return the elements of a Const, or of a variable as its restore op would fill it."""
        if node.op == "Const":
            return node.attr_tensor("value").array()
        if self.checkpoint is None:
            message = f"the values of the variable {node.name!r} are in no graph"
            raise refuse(_NAME, message, "give input_checkpoint, or freeze the graph first")
        return self.checkpoint.read(_stored_name(node.name), self._slice(node))

    def _slice(self, variable: Node) -> str:
        """Return which part of the stored tensor a variable contains; empty for all of it.

        An Assign "save*/Assign*" refers to the output of the RestoreV2 that fills the variable. The
        inputs of the RestoreV2 list the names and slices of all tensors that it restores.
        """
        restore = self._restoring(variable)
        if restore is None or len(restore.data_inputs) != 3:
            raise _not_restored(variable)
        _, names, slices = (self.graph[r.node] for r in restore.data_inputs)
        stored = [bytes(x) for x in names.attr_tensor("value").array().ravel()]
        key = _stored_name(variable.name).encode()
        if key not in stored:
            raise _not_restored(variable)
        parts = slices.attr_tensor("value").array().ravel()
        at = stored.index(key)
        return bytes(parts[at]).decode("utf-8", "replace") if at < len(parts) else ""

    def _restoring(self, variable: Node) -> Node | None:
        for node in self.graph.consumers.get(variable.name, ()):
            scope, _, rest = node.name.partition("/")
            assigns = scope.startswith("save") and rest.startswith("Assign") and "/" not in rest
            if assigns and len(node.data_inputs) > 1 and node.inputs[0].node == variable.name:
                source = self.graph[node.data_inputs[1].node]
                return source if source.op == "RestoreV2" else None
        return None


def _stored_name(variable: str) -> str:
    """Return the name of a variable's stored tensor, without a trailing ``/part_N``."""
    whole, slash, part = variable.rpartition("/")
    return whole if slash and part.startswith("part_") else variable


def _not_restored(variable: Node) -> TransformError:
    message = f"no restore op of the graph fills the variable {variable.name!r}"
    return refuse(_NAME, message, "keep the saver's nodes, or freeze the graph first")


_INPUTS: Final = {"Gather": 2, "GatherV2": 3}
_WEIGHTS: Final = frozenset({"Const", "Variable", "VariableV2"})
# Nodes of a variable besides its readers; none of them is part of a frozen model.
_SERVICES: Final = frozenset({"Assign", "SaveV2", "IsVariableInitialized"})
_USED_ELSEWHERE: Final = "its weights are used elsewhere too"


class _Gather(Struct, frozen=True):
    node: Node
    read: Node
    weights: Node


class Gathers:
    """The lookups of a graph that tables can replace.

    Args:
        graph: the graph.
        context: its outputs determine the needed nodes; with ``tf115``, a lookup that the original
            rejects is an error.
        restored: the values of its variables.

    Raises:
        TransformError: the original rejects a lookup, or the value of a variable is unavailable.
    """

    def __init__(self, graph: Graph, context: Context, restored: Restored) -> None:
        self._graph = graph
        self._context = context
        self._restored = restored
        self.skipped: Counter[str] = Counter()
        self.values: dict[str, Array] = {}
        """The elements of each weights node, float32 of shape [N, 1]."""
        fitting = [g for g in self._all() if self._fits(g)]
        alone = self._used_by_none_else(fitting)
        self.skipped.update(_USED_ELSEWHERE for g in fitting if g.weights.name not in alone)
        self.weights_of: Mapping[str, str] = {
            g.node.name: g.weights.name for g in fitting if g.weights.name in alone
        }
        """The weights node of each replaceable lookup."""
        self.count: Mapping[str, int] = Counter(self.weights_of.values())

    def _all(self) -> Iterator[_Gather]:
        for node in self._graph:
            tensors = node.data_inputs
            if len(tensors) != _INPUTS.get(node.op):
                continue
            read = self._graph[tensors[0].node]
            if read.op != "Identity" or len(read.data_inputs) != 1:
                continue
            weights = self._graph[read.data_inputs[0].node]
            if weights.op not in _WEIGHTS:
                continue
            if len(tensors) < 3 or self._graph[tensors[2].node].op == "Const":
                yield _Gather(node, read, weights)

    def _fits(self, gather: _Gather) -> bool:
        reason = self._misfit(gather)
        if not reason:
            return True
        if self._context.tf115:
            hint = "ignore_errors skips the step; in a recipe, the others are replaced"
            raise refuse(_NAME, f"node {gather.node.name!r}: {reason}", hint)
        self.skipped[reason] += 1
        return False

    def _misfit(self, gather: _Gather) -> str:
        node, weights = gather.node, gather.weights
        if node.op == "GatherV2":
            axis = self._graph[node.data_inputs[2].node].attr_tensor("value").array()
            if axis.size != 1 or axis.item() != 0 or node.attr_int("batch_dims", 0):
                return "it gathers along another axis than the first"
        if weights.attr_dtype("dtype") is not DType.FLOAT:
            return "its weights are not float32"
        if weights.name not in self.values:
            self.values[weights.name] = self._restored.value(weights)
        shape = self.values[weights.name].shape
        return "" if len(shape) == 2 and shape[1] == 1 else "its weights have not the shape [N, 1]"

    def _used_by_none_else(self, gathers: list[_Gather]) -> frozenset[str]:
        """Return the weights that only these lookups need."""
        replaced = {g.node.name for g in gathers}
        reads = {g.read.name for g in gathers}
        weights = {g.weights.name for g in gathers}
        needed = self._needed(replaced)
        shared: set[str] = set(weights & self._context.protected)
        for gather in gathers:
            users = [c for c in self._users(gather.weights) if c.name not in reads]
            users += [c for c in self._users(gather.read) if c.name not in replaced]
            if gather.read.name in self._context.protected:
                shared.add(gather.weights.name)
            if any(c.name in needed and c.op not in _SERVICES for c in users):
                shared.add(gather.weights.name)
        return frozenset(weights - shared)

    def _needed(self, replaced: set[str]) -> set[str]:
        """Return the nodes that the outputs need, ignoring the weights of lookups."""
        if not self._context.outputs:
            return set(self._graph.by_name)

        def inputs(name: str) -> Iterator[str]:
            node = self._graph.get(name)
            refs = () if node is None else node.inputs[name in replaced :]
            return (r.node for r in refs)

        return closure(nodes_of(self._context.outputs), inputs)

    def _users(self, node: Node) -> list[Node]:
        return self._graph.consumers.get(node.name, [])


# Smaller elements are treated as zeros.
_LEAST: Final = 1.0e-5


def table_nodes(weights: Node, column: Array) -> tuple[str, list[Node]]:
    """Return the name of a column's table, and the nodes that create and fill it, filling last.

    Args:
        column: float32 of shape [N, 1].
    """
    flat = column.ravel()
    keys = np.flatnonzero(np.abs(flat.astype(np.float64)) >= _LEAST).astype(np.int64)
    values = flat[keys]
    if not len(keys):
        # A table cannot be filled from empty tensors.
        keys, values = np.zeros(1, np.int64), np.zeros(1, np.float32)
    indices = _constant(f"{weights.name}/indices", keys, DType.INT64)
    contents = _constant(f"{weights.name}/values", values, DType.FLOAT)
    types = {"key_dtype": attr.dtype(DType.INT64), "value_dtype": attr.dtype(DType.FLOAT)}
    table = Node(f"{weights.name}/HashTable", "HashTable", attrs=types)
    fill = Node(
        f"{weights.name}/InitializeTable",
        "InitializeTable",
        (Ref(table.name), Ref(indices.name), Ref(contents.name)),
        attrs={"Tkey": attr.dtype(DType.INT64), "Tval": attr.dtype(DType.FLOAT)},
    )
    return table.name, [indices, contents, table, fill]


def lookup_nodes(gather: Node, table: str) -> list[Node]:
    """Return the nodes that replace ``gather`` with a table lookup; the last one has its name.

    Keys are int64; ids of another type are cast, which the original omits.
    """
    ids = gather.data_inputs[1]
    nodes = []
    ids_type = gather.attr_dtype("Tindices", DType.INT64)
    if ids_type is not DType.INT64:
        types = {"SrcT": attr.dtype(ids_type), "DstT": attr.dtype(DType.INT64)}
        nodes.append(Node(f"{gather.name}/Cast", "Cast", (ids,), attrs=types))
        ids = Ref(nodes[0].name)
    default = _constant(f"{gather.name}/Const", np.zeros((), np.float32), DType.FLOAT)
    lookup = Node(
        f"{gather.name}/LookupTableFind",
        "LookupTableFind",
        (Ref(table), ids, Ref(default.name)),
        attrs={"Tin": attr.dtype(DType.INT64), "Tout": attr.dtype(DType.FLOAT)},
    )
    axis = _constant(f"{gather.name}/ExpandDims/Const", np.int32(-1), DType.INT32)
    expand = Node(
        gather.name,
        "ExpandDims",
        (Ref(lookup.name), Ref(axis.name)),
        attrs={"T": attr.dtype(DType.FLOAT)},
    )
    return [*nodes, lookup, default, axis, expand]


def _constant(name: str, value: Array | np.int32, dtype: DType) -> Node:
    return constant(name, Tensor.of(value, dtype))
