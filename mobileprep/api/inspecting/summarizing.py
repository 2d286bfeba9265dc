"""What is in a model, whatever it was saved as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mobileprep.api.models import FoundSource, find_source
from mobileprep.api.paths import FilePath
from mobileprep.errors import InvalidGraphError, MobileprepError
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.guess import specs_of
from mobileprep.freezing.model import LoadedSource
from mobileprep.freezing.options import FreezeOptions
from mobileprep.freezing.proposal import Proposal, ProposedInput, propose
from mobileprep.freezing.trace import variables_of
from mobileprep.frozen import dataclass
from mobileprep.inspection.costs import ModelCosts, model_costs
from mobileprep.inspection.summary import GraphSummary, summarize_graph
from mobileprep.inspection.variables import VariableCount, count_variables
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tflite import is_tflite_graph
from mobileprep.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.packaging.target_check import TargetGap, target_gaps

_PLATFORM: Final = "android"


@dataclass(frozen=True)
class LikelyTensor:
    """A tensor that an app feeds or fetches.

    Args:
        name: the tensor's.
        dtype: its type.
        shape: its sizes, -1 for unknown ones; None for an unknown rank.
        remark: what the app has to know of it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    remark: str = ""


@dataclass(frozen=True)
class Summary:
    """What is in a model.

    Args:
        model: its path.
        graph: the graph as it was saved, by the rules of the original ``summarize_graph``.
        functions: functions of the library.
        variables: the variables with their true sizes; the original counts none of them.
        inputs: what an app feeds, likeliest first.
        outputs: what it fetches, likewise.
        reasons: why these, and what else there is; sentences.
        costs: of computing the outputs, once frozen; None where the notes say why not.
        tensorflow: the release that ``gaps`` is about; empty of a .tflite file, which LiteRT runs.
        platform: the platform that it is about; likewise.
        gaps: what a default build of that release for that platform lacks.
        notes: what could not be told, and why; sentences.
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


def summarize(
    model: FilePath,
    *,
    checkpoint: FilePath | None = None,
    signature: str = "",
    tags: Sequence[str] = (),
    depth: int = 1,
    batch: int = 1,
    tensorflow: str = DEFAULT_RELEASE,
) -> Summary:
    """Look into a model: what goes in and out, what it is made of, what one run costs.

    Args:
        model: a GraphDef, binary, text or memory-mapped, a MetaGraph, the folder of a SavedModel,
            a .tflite file, a checkpoint's prefix, or a folder that holds such.
        checkpoint: the values of its variables; see ``freeze``.
        signature: the signature that is meant; see ``freeze``.
        tags: those of the MetaGraph of a SavedModel.
        depth: how many parts of a node's name count as its scope.
        batch: what to take for unknown sizes of inputs.
        tensorflow: the release whose default build is compared with the graph.

    Raises:
        UsageError: there is no such signature, or no MetaGraph has the tags.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a constant has an impossible shape.
        UnsupportedError: a checkpoint is of a kind that is not read.
    """
    path = Path(model)
    values = None if checkpoint is None else Path(checkpoint)
    found = find_source(path, checkpoint=values, tags=tags)
    return summary_of(
        found, str(path), signature=signature, depth=depth, batch=batch, tensorflow=tensorflow
    )


def summary_of(
    found: FoundSource,
    path: str,
    *,
    signature: str = "",
    depth: int = 1,
    batch: int = 1,
    details: bool = True,
    tensorflow: str = DEFAULT_RELEASE,
) -> Summary:
    """The summary of a model that is loaded.

    Args:
        found: the model.
        path: what to call it.
        signature: see ``summarize``.
        depth: see there.
        batch: see there.
        details: whether to tell more than the original does.
        tensorflow: see ``summarize``.

    Raises:
        UsageError: there is no such signature.
    """
    source, graph = found.source, found.source.graph
    plain = Summary(
        path,
        summarize_graph(graph),
        len(graph.library.functions),
        count_variables(graph),
        tensorflow=tensorflow,
        notes=found.notes,
    )
    if is_tflite_graph(graph):
        plain = replace(plain, tensorflow="", platform="")
    if plain.graph.missing or not details:
        return plain
    try:
        proposal = propose(source, signature=signature)
    except InvalidGraphError as error:
        return replace(
            plain,
            gaps=_gaps(graph, tensorflow),
            notes=(*found.notes, f"no interface was found: {error}"),
        )
    frozen, notes = _frozen(source, proposal)
    costs, more = _costs(frozen, proposal, depth, batch)
    return replace(
        plain,
        inputs=tuple(map(_input, proposal.inputs)),
        outputs=_outputs(source, frozen, proposal),
        reasons=(*proposal.about_inputs, *proposal.about_outputs),
        costs=costs,
        gaps=_gaps(frozen, tensorflow),
        notes=(*found.notes, *notes, *more),
    )


def _gaps(graph: Graph, release: str) -> tuple[TargetGap, ...]:
    if is_tflite_graph(graph):
        return ()  # LiteRT runs it, and not TensorFlow.
    return target_gaps(graph, release, _PLATFORM)


def _input(given: ProposedInput) -> LikelyTensor:
    spec = given.spec
    return LikelyTensor(spec.name, spec.dtype.short, spec.shape, given.remark)


def _outputs(source: LoadedSource, frozen: Graph, proposal: Proposal) -> tuple[LikelyTensor, ...]:
    if is_tflite_graph(frozen):
        # The file tells them; shapes are not inferred through LiteRT's operators.
        told = (s for signed in source.signatures.values() for s in signed.outputs.values())
        specs = tuple(s for s in told if s.name in proposal.outputs)
    elif frozen is source.graph and proposal.guessed:
        specs = proposal.guessed  # known since the outputs were guessed
    else:
        known = [name for name in proposal.outputs if parse_ref(name).node in frozen]
        specs = specs_of(frozen, known)
    return tuple(LikelyTensor(s.name, s.dtype.short, s.shape) for s in specs)


def _frozen(source: LoadedSource, proposal: Proposal) -> tuple[Graph, tuple[str, ...]]:
    """The graph as it would ship, or as it is, with the reason for that."""
    graph = source.graph
    if not variables_of(graph) and not graph.library:
        return graph, ()
    options = FreezeOptions(outputs=proposal.outputs, signature=proposal.signature)
    try:
        return freeze(source, options).graph, ()
    except MobileprepError as error:
        return graph, (f"what follows is of the graph as it was saved, as freezing fails: {error}",)


def _costs(
    graph: Graph, proposal: Proposal, depth: int, batch: int
) -> tuple[ModelCosts | None, tuple[str, ...]]:
    feeds = {i.spec.name: i.spec.shape for i in proposal.inputs}
    known = {name: shape for name, shape in feeds.items() if parse_ref(name).node in graph}
    try:
        return model_costs(graph, proposal.outputs, known, depth=depth, batch=batch), ()
    except MobileprepError as error:
        return None, (f"costs are not known: {error}",)
