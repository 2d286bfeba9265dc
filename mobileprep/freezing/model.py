"""A trained model, before it is frozen."""

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

# Index of the input with the tensor names, by op.
_RESTORES: Final = {"RestoreV2": 1, "Restore": 1, "RestoreSlice": 1}
_RESTORE_ALL: Final = "save/restore_all"
_HAVE_SLICES: Final = frozenset({"RestoreV2", "RestoreSlice"})
_IMPORTS: Final = frozenset({"LookupTableImport", "LookupTableImportV2"})
_PASS_ON: Final = frozenset({"Identity"})


class SavedValue(Struct, frozen=True):
    """The location of a variable's value in a checkpoint.

    Args:
        key: name of the tensor in the checkpoint.
        slice_spec: slice in the format of savers ("10 4 0,5:0,4"); empty for the whole tensor.
    """

    key: str
    slice_spec: str = ""


class TableSource(Struct, frozen=True):
    """The location of a lookup table's contents in a checkpoint, and the op that imports them."""

    keys: SavedValue
    values: SavedValue
    op: str
    attrs: Mapping[str, AttrValue]


def restored_from(graph: Graph, restore_op: str) -> dict[str, list[SavedValue]]:
    """Return the values that the graph's restore ops assign to each variable node.

    Args:
        restore_op: op whose dependencies have precedence, if it exists. Default if empty:
            "save/restore_all".
    """
    values: dict[str, list[SavedValue]] = {}
    for restoring in _restoring(graph, restore_op):
        _collect(restoring, values)
    return values


def imported_from(graph: Graph, restore_op: str) -> dict[str, TableSource]:
    """Return the contents that the graph's restore ops import into each lookup table node."""
    tables: dict[str, TableSource] = {}
    for restoring in _restoring(graph, restore_op):
        for node in restoring:
            if node.op not in _IMPORTS or len(node.data_inputs) != 3:
                continue
            table, keys, values = node.data_inputs
            sources = _source(restoring, keys), _source(restoring, values)
            if sources[0] and sources[1]:
                contents = TableSource(sources[0], sources[1], node.op, node.attrs)
                tables.setdefault(table.node, contents)
    return tables


def _restoring(graph: Graph, restore_op: str) -> Iterator[Graph]:
    """Yield the graphs with restore ops, that of the chosen op first."""
    restore_op = restore_op or _RESTORE_ALL
    if restore_op in graph:
        # Savers of TensorFlow 2 are functions.
        yield inline_calls(extract(graph, [restore_op]), [restore_op], "")
    yield graph


def _collect(graph: Graph, values: dict[str, list[SavedValue]]) -> None:
    if not any(n.op in _RESTORES for n in graph):
        return
    for node in graph:
        if node.op not in ASSIGNMENTS or len(node.data_inputs) < 2:
            continue
        source = _source(graph, node.inputs[1])
        variable = next(
            (n for n, _ in upstream(graph, node.inputs[0]) if n.op not in _PASS_ON), None
        )
        if source and variable and source not in values.setdefault(variable.name, []):
            values[variable.name].append(source)


def _source(graph: Graph, value: Ref) -> SavedValue | None:
    """Return the output of a restore op at the start of a chain of identities."""
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
    """Return the strings of a constant at an input; empty for other inputs."""
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
    """Return the possible locations of a variable's value: as restored first, then by name."""
    locations = [*restored.get(variable.name, ()), *extra, SavedValue(variable.name)]
    shared = variable.attr_str("shared_name", "")
    if shared and shared != variable.name:
        locations.append(SavedValue(shared))
    return locations


class TensorSpec(Struct, frozen=True):
    """A tensor of a signature, with its declared dtype and shape."""

    name: str
    dtype: DType = DType.INVALID
    shape: TensorShape = None


class Signature(Struct, frozen=True):
    """A signature of a model: tensors by argument name."""

    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)


class Asset(Struct, frozen=True):
    """A file that a graph reads, such as the vocabulary of a lookup table.

    Args:
        tensor: name of the string tensor with its path.
        name: file name within the model's assets.
        path: current path of the file.
    """

    tensor: str
    name: str
    path: Path


class LoadedSource(Struct, frozen=True):
    """A saved model.

    Args:
        graph: the graph with all nodes, including those for training.
        where: file of the model, for messages.
        checkpoint: checkpoint with the variables, or None.
        signatures: signatures by name.
        restore_op: op that restores a checkpoint in the graph, or an empty string.
        init_ops: ops to run after the variables are initialized: they fill lookup tables.
        assets: files that the graph reads.
        keys: checkpoint keys of variable nodes that do not follow from the graph.
        files: files that can replace paths in the graph, matched by name.
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
    """Options of freezing, with the outputs to keep.

    Args:
        outputs: tensors to keep: names of tensors ("probabilities", "split:1"), of outputs of the
            signature, or of a signature, which selects all of its outputs. Default: all outputs of
            the signature.
        signature: name of the signature. Default: "serving_default", or the only one.
    """

    outputs: tuple[str, ...] = ()
    signature: str = ""

    def converts(self, variable: str) -> bool:
        """Return whether to convert a variable, given the name of its node, to a constant."""
        if variable in self.variable_names_blacklist:
            return False
        return not self.variable_names_whitelist or variable in self.variable_names_whitelist


class FreezeResult(Struct, frozen=True):
    """A frozen graph, and how it was created.

    Args:
        graph: the nodes that the outputs need, with variables replaced by constants.
        inputs: input tensors of the chosen signature, or none without a signature.
        outputs: tensor names of the outputs, with names of the signature resolved.
        variables: checkpoint key of each converted variable node; an empty string if the value is
            from an initializer.
        init_ops: ops that the app runs once after loading: they fill lookup tables.
        assets: files that these ops read, and the tensors with their paths.
        warnings: warnings for the user, one sentence each.
    """

    graph: Graph
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    init_ops: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    warnings: tuple[str, ...] = ()
