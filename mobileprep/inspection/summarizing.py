"""Summaries of models in any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath
from mobileprep.errors import InvalidGraphError, MobileprepError, UsageError, nearest_hint
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.guess import specs_of
from mobileprep.freezing.loading import FoundSource, find_source
from mobileprep.freezing.model import FreezeOptions, LoadedSource
from mobileprep.freezing.proposal import Proposal, ProposedInput, propose
from mobileprep.freezing.trace import variables_of
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tflite import BLOCK_SIZE, TYPE, is_tflite_graph
from mobileprep.inspection.costs import CountedRun, ModelCosts, counted_run, model_costs
from mobileprep.inspection.diagnosis import Diagnosis, diagnose
from mobileprep.inspection.memory import memory_by_kind, memory_of
from mobileprep.inspection.summary import (
    GraphSummary,
    VariableCount,
    count_variables,
    summarize_graph,
    with_zeros,
)
from mobileprep.targets.target_check import TargetGap, target_gaps
from mobileprep.targets.targets import Device, DeviceCost, Memory

_PLATFORM: Final = "android"


class LikelyTensor(Struct, frozen=True):
    """A tensor that an app feeds or fetches.

    Args:
        name: tensor name.
        dtype: dtype of the tensor.
        shape: sizes, with -1 for unknown dimensions; None for an unknown rank.
        remark: note for the app's developer.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    remark: str = ""


class StoredConstants(Struct, frozen=True):
    """Constants of a .tflite file that are stored in the same way.

    Args:
        dtype: dtype of the elements, such as ``int4``.
        block_size: number of elements that share a scale; 0 without blocks.
        elements: number of elements.
        bytes: their size in the file.
    """

    dtype: str
    block_size: int
    elements: int
    bytes: int


class Summary(Struct, frozen=True):
    """Summary of a model.

    Args:
        model: path of the model.
        graph: the saved graph, counted like the original ``summarize_graph``.
        functions: number of functions of the library.
        variables: variables with their real sizes, which the original does not count.
        inputs: tensors that an app feeds, most likely first.
        outputs: tensors that an app fetches, most likely first.
        reasons: sentences that explain the choice of inputs and outputs, and name alternatives.
        costs: cost of computing the outputs of the frozen graph; None if the notes explain why not.
        tensorflow: release of ``gaps``; empty for a .tflite file, which LiteRT runs.
        platform: platform of ``gaps``; empty for a .tflite file, which LiteRT runs.
        gaps: ops that a default build of the release for the platform lacks.
        notes: sentences about missing information, with the reasons.
        device: cost of one run on the named device.
        diagnosis: where the run wastes operations and bytes; None if the costs are unknown.
        memory: memory while loading and running by kind of artifact; empty if the costs are not
            known.
        constants: constants of a .tflite file by type, largest first; empty for other models.
    """

    model: str
    graph: GraphSummary
    functions: int
    variables: VariableCount
    inputs: tuple[LikelyTensor, ...] = ()
    outputs: tuple[LikelyTensor, ...] = ()
    reasons: tuple[str, ...] = ()
    costs: ModelCosts | None = None
    tensorflow: str = DEFAULT_RELEASE
    platform: str = _PLATFORM
    gaps: tuple[TargetGap, ...] = ()
    notes: tuple[str, ...] = ()
    device: DeviceCost | None = None
    diagnosis: Diagnosis | None = None
    memory: Mapping[str, Memory] = field(default_factory=dict)
    constants: tuple[StoredConstants, ...] = ()


class SummaryOptions(Struct, frozen=True):
    """Options of a summary.

    Args:
        signature: signature to use; see ``freeze``.
        inputs: input tensors, or arguments of the signature; empty for the likely ones.
        outputs: output tensors, or results of the signature; empty for the likely ones.
        input_shapes: a shape for each input, in their order; empty for the shapes of the model.
        depth: number of name components of a scope.
        batch: size to use for unknown input dimensions.
        device: device for which to estimate the minimum time of one run.
        tensorflow: release whose default build is compared with the graph.
    """

    signature: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    depth: int = 1
    batch: int = 1
    device: Device | None = None
    tensorflow: str = DEFAULT_RELEASE


def summarize(
    model: FilePath,
    *,
    checkpoint: FilePath | None = None,
    signature: str = "",
    tags: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    input_shapes: Sequence[Sequence[int]] = (),
    device: str = "",
    depth: int = 1,
    batch: int = 1,
    tensorflow: str = DEFAULT_RELEASE,
) -> Summary:
    """Summarize a model: its inputs and outputs, its ops, and the cost of one run.

    Args:
        model: a GraphDef (binary, text, or memory-mapped), a MetaGraph, the directory of a
            SavedModel, a .tflite file, the prefix of a checkpoint, or a directory that contains
            one of these.
        checkpoint: values of its variables; see ``freeze``.
        signature: signature to use; see ``freeze``.
        tags: tags of the MetaGraph of a SavedModel.
        inputs: input tensors; empty for the likely ones.
        outputs: output tensors; empty for the likely ones.
        input_shapes: a shape for each input, in their order; empty for the shapes of the model.
        device: name of a device, or path of a profile, for the minimum time of one run.
        depth: number of name components of a scope.
        batch: size to use for unknown input dimensions.
        tensorflow: release whose default build is compared with the graph.

    Raises:
        UsageError: the signature, tensor, or device does not exist, no MetaGraph has the tags, or
            the number of shapes differs from the number of inputs.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a constant has an impossible shape.
        UnsupportedError: the checkpoint format is not supported.
    """
    path = Path(model)
    values = None if checkpoint is None else Path(checkpoint)
    loaded = find_source(path, checkpoint=values, tags=tags)
    options = SummaryOptions(
        signature,
        tuple(inputs),
        tuple(outputs),
        tuple(tuple(shape) for shape in input_shapes),
        depth,
        batch,
        named_device(device),
        tensorflow,
    )
    return summary_of(loaded, str(path), options)


def named_device(name: str) -> Device | None:
    """Return the device with a name or from a profile file; None for an empty name."""
    if not name:
        return None
    from mobileprep.recipe.data import device_named  # reads YAML, which few callers need

    return device_named(name)


def summary_of(
    loaded: FoundSource, path: str, options: SummaryOptions, *, details: bool = True
) -> Summary:
    """Summarize a loaded model."""
    source, graph = loaded.source, loaded.source.graph
    plain = Summary(
        path,
        summarize_graph(graph),
        len(graph.library.functions),
        count_variables(graph),
        tensorflow=options.tensorflow,
        notes=loaded.notes,
    )
    if is_tflite_graph(graph):
        plain = replace(plain, tensorflow="", platform="", constants=_constants(graph))
    if plain.graph.missing or not details:
        return plain
    try:
        counted = counted_model(source, options)
    except InvalidGraphError as error:
        return replace(
            plain,
            gaps=_gaps(graph, options.tensorflow),
            notes=(*loaded.notes, f"no interface was found: {error}"),
        )
    proposal, run = counted.proposal, counted.run
    costs = None if run is None else model_costs(run, depth=options.depth)
    return replace(
        plain,
        inputs=tuple(map(_input, proposal.inputs)),
        outputs=_outputs(source, counted.graph, proposal),
        reasons=(*proposal.about_inputs, *proposal.about_outputs),
        costs=costs,
        gaps=_gaps(counted.graph, options.tensorflow),
        notes=(*loaded.notes, *counted.notes),
        device=None if costs is None else _on_device(costs, options.device),
        diagnosis=None if run is None else _diagnosis(run, counted),
        memory={} if costs is None else _memory(counted, Path(path), options),
    )


def _constants(graph: Graph) -> tuple[StoredConstants, ...]:
    """Count the constants of a .tflite file by type and block size, largest first."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for node in graph:
        if node.op == "Const":
            value = node.attr_tensor("value")
            key = (node.attr_str(TYPE, "").lower(), node.attr_int(BLOCK_SIZE, 0))
            elements, size = sums.get(key, (0, 0))
            sums[key] = (elements + value.size, size + value.nbytes)
    groups = (StoredConstants(*key, *total) for key, total in sums.items())
    return tuple(sorted(groups, key=lambda one: (-one.bytes, one.dtype, one.block_size)))


class CountedModel(Struct, frozen=True):
    """A model, prepared for counting.

    Args:
        proposal: its interface.
        graph: the frozen graph, or the saved graph with zeros for variables without values.
        run: cost of computing the outputs; None if the notes explain why not.
        is_frozen: whether the constants of the graph have the model's values.
        notes: sentences about missing information, with the reasons.
    """

    proposal: Proposal
    graph: Graph
    run: CountedRun | None
    is_frozen: bool
    notes: tuple[str, ...] = ()


def counted_model(source: LoadedSource, options: SummaryOptions) -> CountedModel:
    """Choose the interface of a model, freeze it if it has values, and count one run.

    Raises:
        InvalidGraphError: no interface was found.
        UsageError: a tensor of the options does not exist, or the shapes do not fit.
    """
    proposal = _proposal(source, options)
    graph, notes = _frozen(source, proposal)
    run, more = _run(graph, proposal, options.batch)
    return CountedModel(proposal, graph, run, not notes, (*notes, *more))


def _proposal(source: LoadedSource, options: SummaryOptions) -> Proposal:
    """Return the model's interface, with the tensors and shapes that the user specified."""
    named = (options.inputs, options.outputs)
    proposal = propose(
        source, signature=options.signature, inputs=options.inputs, outputs=options.outputs
    )
    tensors = (*(i.spec.name for i in proposal.inputs), *proposal.outputs)
    for name in tensors if any(named) else ():
        if parse_ref(name).node not in source.graph:
            message = f"the graph has no tensor {name!r}"
            hint = nearest_hint(parse_ref(name).node, source.graph.by_name)
            raise UsageError(message, hint or "name other tensors", source.where)
    shapes, inputs = options.input_shapes, proposal.inputs
    if not shapes:
        return proposal
    if len(shapes) != len(inputs):
        names = ", ".join(i.spec.name for i in inputs)
        message = f"{len(shapes)} shapes for {len(inputs)} inputs: {names}"
        hint = "give --input_shapes one shape for each of --inputs, with a colon between two"
        raise UsageError(message, hint, source.where)
    shaped = (
        replace(proposed, spec=replace(proposed.spec, shape=shape), remark="")
        for proposed, shape in zip(inputs, shapes, strict=True)
    )
    return replace(proposal, inputs=tuple(shaped))


def _diagnosis(run: CountedRun, counted: CountedModel) -> Diagnosis:
    inputs = [proposed.spec.name for proposed in counted.proposal.inputs]
    return diagnose(run, inputs, counted.proposal.outputs, is_frozen=counted.is_frozen)


def _memory(counted: CountedModel, path: Path, options: SummaryOptions) -> Mapping[str, Memory]:
    graph, outputs = counted.graph, counted.proposal.outputs
    if is_tflite_graph(graph):
        memory = memory_as_saved(counted, path, options)
        return {} if memory is None else {"tflite": memory}
    try:
        return memory_by_kind(graph, _input_shapes(counted, options), outputs)
    except MobileprepError:
        return {}


def memory_as_saved(counted: CountedModel, path: Path, options: SummaryOptions) -> Memory | None:
    """Estimate the memory of a ``.tflite`` file, or of any other model as a frozen graph.

    Returns:
        None if the sizes of tensors are not known.
    """
    kind, size = "frozen", serialized_size(_frozen_part(counted))
    if is_tflite_graph(counted.graph):
        kind, size = "tflite", path.stat().st_size
    shapes, outputs = _input_shapes(counted, options), counted.proposal.outputs
    try:
        return memory_of(counted.graph, shapes, outputs, kind=kind, file_bytes=size)
    except MobileprepError:
        return None


def _frozen_part(counted: CountedModel) -> Graph:
    """Return the graph without the nodes that freezing removes."""
    graph, run = counted.graph, counted.run
    if counted.is_frozen or run is None:
        return graph
    names = {cost.name for cost in run.costs.nodes} | {node.name for node in run.constants()}
    return graph.with_nodes(node for node in graph if node.name in names)


def _input_shapes(counted: CountedModel, options: SummaryOptions) -> dict[str, TensorShape]:
    return {
        i.spec.name: i.spec.shape and tuple(options.batch if n < 0 else n for n in i.spec.shape)
        for i in counted.proposal.inputs
        if parse_ref(i.spec.name).node in counted.graph
    }


def _on_device(costs: ModelCosts, device: Device | None) -> DeviceCost | None:
    if device is None:
        return None
    milliseconds = float(device.seconds(costs.classes) * 1e3)
    return DeviceCost(device.title, costs.flops, milliseconds, device.rate)


def _gaps(graph: Graph, release: str) -> tuple[TargetGap, ...]:
    if is_tflite_graph(graph):
        return ()  # runs on LiteRT, not on TensorFlow
    return target_gaps(graph, release, _PLATFORM)


def _input(proposed: ProposedInput) -> LikelyTensor:
    spec = proposed.spec
    return LikelyTensor(spec.name, spec.dtype.short, spec.shape, proposed.remark)


def _outputs(source: LoadedSource, frozen: Graph, proposal: Proposal) -> tuple[LikelyTensor, ...]:
    if is_tflite_graph(frozen):
        # The file records them. Shapes are not inferred through LiteRT's operators.
        recorded = (s for signed in source.signatures.values() for s in signed.outputs.values())
        specs = tuple(s for s in recorded if s.name in proposal.outputs)
    elif frozen is source.graph and proposal.guessed:
        specs = proposal.guessed  # known from guessing the outputs
    else:
        names = [name for name in proposal.outputs if parse_ref(name).node in frozen]
        specs = specs_of(frozen, names)
    return tuple(LikelyTensor(s.name, s.dtype.short, s.shape) for s in specs)


def _frozen(source: LoadedSource, proposal: Proposal) -> tuple[Graph, tuple[str, ...]]:
    """Return the frozen graph, or the saved graph with the reason why it cannot be frozen."""
    graph = source.graph
    if not variables_of(graph) and not graph.library:
        return graph, ()
    options = FreezeOptions(outputs=proposal.outputs, signature=proposal.signature)
    try:
        return freeze(source, options).graph, ()
    except MobileprepError as error:
        note = "the costs are those of the graph as it was saved, as it cannot be frozen"
        return with_zeros(graph), (f"{note}: {error}",)


def _run(graph: Graph, proposal: Proposal, batch: int) -> tuple[CountedRun | None, tuple[str, ...]]:
    feeds = {i.spec.name: i.spec.shape for i in proposal.inputs}
    shapes = {name: shape for name, shape in feeds.items() if parse_ref(name).node in graph}
    try:
        return counted_run(graph, proposal.outputs, shapes, batch=batch), ()
    except MobileprepError as error:
        return None, (f"costs are not known: {error}",)
