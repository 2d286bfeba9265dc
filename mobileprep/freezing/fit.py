"""Check that a model has the inputs and outputs that a recipe names, and report all mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.files import map_file
from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    NotDownloadedError,
    UsageError,
    did_you_mean,
)
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.formats.kinds import looks_like_text
from mobileprep.freezing.freeze import chosen_signature, freeze, output_tensors
from mobileprep.freezing.guess import described, find_interface, guess
from mobileprep.freezing.model import FreezeOptions, FreezeResult, LoadedSource
from mobileprep.freezing.source import load_source
from mobileprep.freezing.trace import extract, variables_of
from mobileprep.freezing.training import is_of_training
from mobileprep.freezing.values import without_value
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.verify import check_inputs, check_names
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.runtime.sampling.inputs import known_shapes

_NEAREST = 3


class DeclaredInput(Struct, frozen=True):
    """The declaration of an input in a recipe; None for values that it omits."""

    name: str
    dtype: str | None = None
    shape: TensorShape = None


class Misfit(Struct, frozen=True):
    """A statement of a recipe that does not match the model.

    Args:
        keys: path of keys in the recipe's sections: ``("outputs", 0)``.
        message: description of the mismatch.
        hint: the fix, or empty.
    """

    keys: tuple[str | int, ...]
    message: str
    hint: str = ""


class Fit(Struct, frozen=True):
    """The result of comparing a model with a recipe.

    Args:
        misfits: the mismatches, in the order of the recipe's sections.
        frozen: the frozen model; None if its outputs are not known.
    """

    misfits: tuple[Misfit, ...]
    frozen: FreezeResult | None = None


def fit(source: LoadedSource, options: FreezeOptions, inputs: Sequence[DeclaredInput]) -> Fit:
    """Check everything that a recipe states about a model.

    Large weights of a checkpoint are not copied; they are views of its file.
    """
    check_names(source.graph, source.where)
    check_inputs(source.graph, source.where)
    misfits = list(_missing_inputs(source, inputs))
    missing = {misfit.keys for misfit in misfits}
    there = [declared for declared in inputs if ("inputs", declared.name) not in missing]
    misfits += _contradicted(source.graph, there)
    outputs = list(_missing_outputs(source, options))
    if outputs:
        return Fit((*misfits, *outputs))
    frozen = freeze(source, options)
    misfits += _unneeded(source, frozen.graph, there)
    names = [d.name for d in there if parse_ref(d.name).node in frozen.graph]
    try:
        check_inputs_count(frozen.graph, names, frozen.outputs, "")
    except InvalidGraphError as error:
        misfits.append(Misfit(("inputs",), error.message, error.hint))
    return Fit(tuple(misfits), frozen)


def _missing_inputs(source: LoadedSource, inputs: Sequence[DeclaredInput]) -> Iterator[Misfit]:
    graph = source.graph
    for declared in inputs:
        ref = parse_ref(declared.name)
        if ref.node not in graph:
            message = f"the input {declared.name!r} is not in the model"
            hint = _nearest(ref.node, graph)
            likely = described(guess(source).inputs)
            hint = "; ".join(part for part in (hint, likely and f"likely inputs: {likely}") if part)
            yield Misfit(("inputs", declared.name), message, hint)
        elif tensor_dtype(graph, ref) is None and ref.index:
            message = f"{ref.node!r} ({graph[ref.node].op}) has no output {ref.index}"
            yield Misfit(("inputs", declared.name), message, "count from 0")


def _missing_outputs(source: LoadedSource, options: FreezeOptions) -> Iterator[Misfit]:
    try:
        chosen_signature(source, options.signature)
    except UsageError as error:
        yield Misfit(("source", "signature"), error.message, error.hint)
        return
    for at, name in enumerate(options.outputs):
        try:
            output_tensors(source, replace(options, outputs=(name,)))
        except (InvalidGraphError, UsageError) as error:
            yield Misfit(("outputs", at), error.message, error.hint)
    if not options.outputs:
        try:
            output_tensors(source, options)
        except (InvalidGraphError, UsageError) as error:
            yield Misfit(("outputs",), error.message, error.hint)


def _contradicted(graph: Graph, inputs: Sequence[DeclaredInput]) -> Iterator[Misfit]:
    """Yield types and shapes that differ from those of the model."""
    shapes = known_shapes(graph, [parse_ref(declared.name) for declared in inputs])
    for declared, shape in zip(inputs, shapes, strict=True):
        what = f"the input {declared.name!r}"
        dtype = tensor_dtype(graph, parse_ref(declared.name))
        if declared.dtype and dtype is not None and dtype_from_text(declared.dtype) != dtype:
            message = f"{what} is {dtype.short} in the model, not {declared.dtype}"
            keys = ("inputs", declared.name, "dtype")
            yield Misfit(keys, message, f"write dtype: {dtype.short}")
        try:
            merge(shape, declared.shape)
        except ShapeConflictError:
            message = f"{what} has the shape {list(shape or ())} in the model, "
            message += f"which {list(declared.shape or ())} does not fit"
            keys = ("inputs", declared.name, "shape")
            yield Misfit(keys, message, "use the model's sizes, -1 for any")


def _unneeded(
    source: LoadedSource, frozen: Graph, inputs: Sequence[DeclaredInput]
) -> Iterator[Misfit]:
    """Yield inputs that no output needs."""
    for declared in inputs:
        if parse_ref(declared.name).node not in frozen:
            candidates = (s for s in guess(source).inputs if parse_ref(s.name).node in frozen)
            likely = described(tuple(candidates))
            hint = f"likely inputs: {likely}" if likely else "leave it out"
            yield Misfit(
                ("inputs", declared.name), f"no output needs the input {declared.name!r}", hint
            )


def _nearest(name: str, graph: Graph) -> str:
    near = did_you_mean(name, graph.by_name, count=_NEAREST)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_inputs_suffice(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], where: str
) -> None:
    """Check that the app has to feed only the declared inputs.

    Raises:
        InvalidGraphError: if an output needs another placeholder.
    """
    declared = _nodes(inputs)
    others = [n for n in graph if n.op in PLACEHOLDERS and n.name not in declared]
    if not inputs or not others:
        return
    for output in outputs:
        needed = _needed(graph, inputs, [output])
        other = next((n for n in others if n.name in needed), None)
        if other is not None:
            dtype = other.attr_dtype("dtype").short
            message = (
                f"the output {output!r} needs the placeholder {other.name!r} ({dtype}), which is "
                "not one of the inputs"
            )
            hint = f"add {other.name!r} to inputs, as the app has to feed it"
            raise InvalidGraphError(message, f"{hint}; or name other outputs", where)


def check_inputs_count(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], where: str
) -> None:
    """Check that no declared input is computed from another one.

    Raises:
        InvalidGraphError: if an input has no effect.
    """
    needed = _needed(graph, inputs, outputs)
    for name in inputs:
        node = parse_ref(name).node
        if node in needed:
            continue
        after = (i for i in inputs if i != name and node in _needed(graph, (), [i]))
        later = next(after, None)
        if later is not None:
            message = (
                f"the input {name!r} has no effect: the input {later!r} is computed from it, and "
                "feeding that replaces it"
            )
            hint = (
                f"remove {later!r} from inputs to ship the whole model, or {name!r} to ship the "
                f"part after {later!r}"
            )
            raise InvalidGraphError(message, hint, where)


def unused_inputs(graph: Graph, inputs: Iterable[str], outputs: Sequence[str]) -> list[str]:
    """Return the declared inputs that no output of a prepared graph needs.

    Scalars and booleans are not included, because transforms remove the training mode that they
    select.
    """
    needed = _needed(graph, (), outputs)
    unused = []
    for name in inputs:
        node = graph.get(parse_ref(name).node)
        if node is None or node.name in needed:
            continue
        shape = node.attr_shape("shape") if "shape" in node.attrs else None
        if shape != () and node.attr_dtype("dtype") is not DType.BOOL:
            unused.append(name)
    return unused


def parameters_cut_off(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[int, int]:
    """Return the number of parameters that only declared inputs need, and of all parameters."""
    before = _parameters(graph, _needed(graph, (), outputs))
    return before - _parameters(graph, _needed(graph, inputs, outputs)), before


def _parameters(graph: Graph, names: Iterable[str]) -> int:
    nodes = (graph[name] for name in names)
    return sum(n.attr_tensor("value").size for n in nodes if n.op == "Const")


def _needed(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> set[str]:
    """Return the nodes that outputs need if the inputs are fed."""
    fed = _nodes(inputs)

    def producers(name: str) -> Iterable[str]:
        return () if name in fed else (ref.node for ref in graph[name].inputs)

    return closure((parse_ref(name).node for name in outputs), producers)


def _nodes(names: Iterable[str]) -> set[str]:
    return {parse_ref(name).node for name in names}


_SHOWN: Final = 5


class Candidate(Struct, frozen=True):
    """A graph that a recipe could name, and its matching checkpoint.

    Args:
        path: path of the file.
        kind: message type of the file.
        is_text: whether the file is in text format.
        is_of_training: whether the graph contains losses, gradients, or updates.
        variables: variables that its likely outputs need.
        own_checkpoint: checkpoint of a MetaGraph with the same name.
        checkpoint: prefix of the checkpoint with the variables.
        lacking: variables that no checkpoint contains.
    """

    path: Path
    kind: Literal["GraphDef", "MetaGraphDef"]
    is_text: bool
    is_of_training: bool
    variables: tuple[Node, ...]
    own_checkpoint: Path | None = None
    checkpoint: Path | None = None
    lacking: tuple[str, ...] = ()

    def check(self) -> Candidate:
        """Return the candidate itself.

        Raises:
            InvalidGraphError: if no checkpoint contains all of its variables.
        """
        if not self.lacking:
            return self
        names = ", ".join(map(repr, self.lacking[:_SHOWN]))
        more = f" and {len(self.lacking) - _SHOWN} more" if len(self.lacking) > _SHOWN else ""
        message = f"no checkpoint that was looked at holds the variables {names}{more}"
        raise InvalidGraphError(
            message,
            "name the right one, as --checkpoint=PREFIX of `init` or `summarize`",
            str(self.path),
        )


def examined(path: Path, kind: Literal["GraphDef", "MetaGraphDef"]) -> Candidate:
    """Examine a graph file before choosing its checkpoint."""
    source = _load(path, kind, None)
    if not len(source.graph):
        message = "holds no node"
        raise CorruptFileError(message, "is this the file that was meant?", str(path))
    own = source.checkpoint.prefix if source.checkpoint is not None else None
    return Candidate(
        path,
        kind,
        looks_like_text(map_file(path)),
        is_of_training(source.graph),
        tuple(variables_of(_needed_part(source))),
        own,
        own,
    )


def with_checkpoint(candidate: Candidate, prefixes: Sequence[Path]) -> Candidate:
    """Add the first checkpoint that contains the variables of a candidate."""
    if not candidate.variables or candidate.own_checkpoint is not None:
        return candidate
    fewest: tuple[str, ...] = tuple(v.name for v in candidate.variables)
    pointer: NotDownloadedError | None = None
    for prefix in prefixes:
        try:
            source = _load(candidate.path, candidate.kind, prefix)
            lacking = tuple(without_value(candidate.variables, source))
        except NotDownloadedError as error:
            pointer = pointer or error
            continue
        except MobileprepError:
            continue  # A checkpoint of another model.
        if not lacking:
            return replace(candidate, checkpoint=prefix)
        fewest = min(fewest, lacking, key=len)
    if pointer is not None:
        raise pointer
    return replace(candidate, lacking=fewest)


def _load(
    path: Path, kind: Literal["GraphDef", "MetaGraphDef"], checkpoint: Path | None
) -> LoadedSource:
    if kind == "MetaGraphDef":
        return load_source(meta_graph=path, checkpoint=checkpoint)
    return load_source(graph=path, checkpoint=checkpoint)


def _needed_part(source: LoadedSource) -> Graph:
    """Return the part of a graph that its likely outputs need; all of it if there are none."""
    interface = find_interface(source, chosen_signature(source, ""))
    roots = [parse_ref(t.name).node for t in interface.outputs]
    # In a training graph, only the most likely output is a result.
    roots = roots[:1] if is_of_training(source.graph) else roots
    return extract(source.graph, roots) if roots else source.graph
