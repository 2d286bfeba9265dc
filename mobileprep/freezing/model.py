"""A model as training left it, before it is frozen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.settings import Freeze
from mobileprep.freezing.trace import extract, upstream
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ASSIGNMENTS
from mobileprep.graph.refs import Ref
from mobileprep.runtime.functions.inline import inline_calls

# Op to the index of the input that holds the tensor names.
_RESTORES: Final = {"RestoreV2": 1, "Restore": 1, "RestoreSlice": 1}
_RESTORE_ALL: Final = "save/restore_all"
_HAVE_SLICES: Final = frozenset({"RestoreV2", "RestoreSlice"})
_IMPORTS: Final = frozenset({"LookupTableImport", "LookupTableImportV2"})
_PASS_ON: Final = frozenset({"Identity"})


class SavedValue(Struct, frozen=True):
    """Where a variable's value lies in a checkpoint.

    Args:
        key: the tensor's name in the checkpoint.
        slice_spec: the part of it, as savers write it ("10 4 0,5:0,4"); empty for the whole.
    """

    key: str
    slice_spec: str = ""


class TableSource(Struct, frozen=True):
    """Where the contents of a lookup table lie in a checkpoint, and the op that imports them."""

    keys: SavedValue
    values: SavedValue
    op: str
    attrs: Mapping[str, AttrValue]


def restored_from(graph: Graph, restore_op: str) -> dict[str, list[SavedValue]]:
    """For each variable node what the graph's restore ops assign to it.

    Args:
        restore_op: the op whose dependencies come first, where it is there; for an empty text
            "save/restore_all".
    """
    found: dict[str, list[SavedValue]] = {}
    for restoring in _restoring(graph, restore_op):
        _collect(restoring, found)
    return found


def imported_from(graph: Graph, restore_op: str) -> dict[str, TableSource]:
    """For each node of a lookup table what the graph's restore ops import into it."""
    found: dict[str, TableSource] = {}
    for restoring in _restoring(graph, restore_op):
        for node in restoring:
            if node.op not in _IMPORTS or len(node.data_inputs) != 3:
                continue
            table, keys, values = node.data_inputs
            sources = _source(restoring, keys), _source(restoring, values)
            if sources[0] and sources[1]:
                contents = TableSource(sources[0], sources[1], node.op, node.attrs)
                found.setdefault(table.node, contents)
    return found


def _restoring(graph: Graph, restore_op: str) -> Iterator[Graph]:
    """Where restore ops are, the chosen one's first."""
    restore_op = restore_op or _RESTORE_ALL
    if restore_op in graph:
        # Since TensorFlow 2 savers are functions.
        yield inline_calls(extract(graph, [restore_op]), [restore_op], "")
    yield graph


def _collect(graph: Graph, found: dict[str, list[SavedValue]]) -> None:
    if not any(n.op in _RESTORES for n in graph):
        return
    for node in graph:
        if node.op not in ASSIGNMENTS or len(node.data_inputs) < 2:
            continue
        source = _source(graph, node.inputs[1])
        variable = next(
            (n for n, _ in upstream(graph, node.inputs[0]) if n.op not in _PASS_ON), None
        )
        if source and variable and source not in found.setdefault(variable.name, []):
            found[variable.name].append(source)


def _source(graph: Graph, value: Ref) -> SavedValue | None:
    """What a restore op gives at the end of a chain of identities."""
    for node, index in upstream(graph, value):
        if node.op in _RESTORES:
            keys = _strings(graph, node, _RESTORES[node.op])
            specs = _strings(graph, node, 2) if node.op in _HAVE_SLICES else []
            if index >= len(keys):
                return None
            return SavedValue(keys[index], specs[index] if index < len(specs) else "")
        if node.op not in _PASS_ON:
            return None
    return None


def _strings(graph: Graph, node: Node, slot: int) -> list[str]:
    """The elements of a constant of strings at an input; none where it is something else."""
    producer = graph.get(node.inputs[slot].node) if slot < len(node.inputs) else None
    if producer is None or producer.op != "Const":
        return []
    value = producer.attr_tensor("value")
    if value.dtype is not DType.STRING:
        return []
    return [s.decode("utf-8", "replace") for s in value.array().ravel()]


def candidates(
    variable: Node, restored: Mapping[str, list[SavedValue]], extra: Iterable[SavedValue] = ()
) -> list[SavedValue]:
    """Where a variable's value may lie, the best first: as restored, else by its own names."""
    found = [*restored.get(variable.name, ()), *extra, SavedValue(variable.name)]
    shared = variable.attr_str("shared_name", "")
    if shared and shared != variable.name:
        found.append(SavedValue(shared))
    return found


class TensorSpec(Struct, frozen=True):
    """A tensor of a signature, with its declared dtype and shape."""

    name: str
    dtype: DType = DType.INVALID
    shape: TensorShape = None


class Signature(Struct, frozen=True):
    """A named entry of a model: tensors by argument name."""

    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)


class Asset(Struct, frozen=True):
    """A file that a graph reads, such as the vocabulary of a lookup table.

    Args:
        tensor: the name of the string tensor that holds its path.
        name: its name within the model's assets.
        path: where it lies now.
    """

    tensor: str
    name: str
    path: Path


class LoadedSource(Struct, frozen=True):
    """A model as it was saved.

    Args:
        graph: all of its nodes, training's included.
        where: the file it came from, for messages.
        checkpoint: the values of its variables, or None.
        signatures: by name.
        restore_op: the op that restores a checkpoint in the graph, or an empty text.
        init_ops: the ops to run after the variables are there: they fill lookup tables.
        assets: files that it reads.
        keys: checkpoint keys of variable nodes that the graph itself does not tell.
        files: files that the graph reads from paths elsewhere, to be found by their names.
    """

    graph: Graph
    where: str
    checkpoint: Checkpoint | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    restore_op: str = ""
    init_ops: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    keys: Mapping[str, SavedValue] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


class FreezeOptions(Freeze, frozen=True):
    """What freezing is asked to do: its options, and what to keep.

    Args:
        outputs: tensors to keep, by tensor name ("probabilities", "split:1"), by the name of an
            output of the signature, or by the name of a signature, which stands for all of its
            outputs. Default: all outputs of the signature.
        signature: the signature that is meant; without it "serving_default", or the only one.
    """

    outputs: tuple[str, ...] = ()
    signature: str = ""

    def converts(self, variable: str) -> bool:
        """Whether a variable, named by its node, is to become a constant."""
        wanted = self.variable_names_whitelist
        return (not wanted or variable in wanted) and variable not in self.variable_names_blacklist


class FreezeResult(Struct, frozen=True):
    """A frozen graph and what was done to get it.

    Args:
        graph: the nodes that the outputs need, variables replaced by constants.
        inputs: the tensors of the chosen signature's inputs, or none without a signature.
        outputs: the tensor names of the outputs, signature names resolved.
        variables: for each converted variable node the checkpoint key that it was read from;
            an empty text for one that an initializer gave.
        init_ops: the ops that the app runs once after loading: they fill lookup tables.
        assets: the files that those read, and the tensors that hold their paths.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    init_ops: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    warnings: tuple[str, ...] = ()
