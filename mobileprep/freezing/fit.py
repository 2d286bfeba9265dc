"""Whether a model has the inputs and outputs that a recipe names; all misfits at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mobileprep.errors import InvalidGraphError, UsageError, did_you_mean
from mobileprep.formats.dtypes import dtype_from_text
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.guess import described, guess
from mobileprep.freezing.interface import check_inputs_count
from mobileprep.freezing.model import LoadedSource
from mobileprep.freezing.options import FreezeOptions, FreezeResult
from mobileprep.freezing.outputs import chosen_signature, output_tensors
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.verify import check_inputs, check_names
from mobileprep.opdefs.signatures import tensor_dtype
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.runtime.sampling.inputs import known_shapes

_NEAREST = 3


@dataclass(frozen=True)
class DeclaredInput:
    """What a recipe says of an input; None for what it does not say."""

    name: str
    dtype: str | None = None
    shape: TensorShape = None


@dataclass(frozen=True)
class Misfit:
    """Something that a recipe says of a model and that is not so.

    Args:
        keys: the path of keys in the recipe's sections: ``("outputs", 0)``.
        message: what.
        hint: the mend, or empty.
    """

    keys: tuple[str | int, ...]
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Fit:
    """How a model and what a recipe says of it go together.

    Args:
        misfits: what does not, in the order of the recipe's sections.
        frozen: the frozen model; None where its outputs are not known.
    """

    misfits: tuple[Misfit, ...]
    frozen: FreezeResult | None = None


def fit(source: LoadedSource, options: FreezeOptions, inputs: Sequence[DeclaredInput]) -> Fit:
    """Look for everything in a model that a recipe says of it.

    Weights stay where they are: large ones of a checkpoint are views on its file.

    Args:
        source: the model.
        options: how it is frozen, with the outputs that the recipe names.
        inputs: the inputs that the recipe names.

    Raises:
        InvalidGraphError: the graph is broken, or a variable has no value.
        CorruptFileError: the checkpoint cannot be read.
        UnsupportedError: the model cannot be frozen.
    """
    check_names(source.graph, source.where)
    check_inputs(source.graph, source.where)
    misfits = list(_missing_inputs(source, inputs))
    known = {misfit.keys for misfit in misfits}
    there = [declared for declared in inputs if ("inputs", declared.name) not in known]
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
    """Types and shapes that are not the model's."""
    shapes = known_shapes(graph, [parse_ref(declared.name) for declared in inputs])
    for declared, shape in zip(inputs, shapes, strict=True):
        what = f"the input {declared.name!r}"
        found = tensor_dtype(graph, parse_ref(declared.name))
        if declared.dtype and found is not None and dtype_from_text(declared.dtype) != found:
            message = f"{what} is {found.short} in the model, not {declared.dtype}"
            keys = ("inputs", declared.name, "dtype")
            yield Misfit(keys, message, f"write dtype: {found.short}")
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
    """Inputs that no output needs."""
    for declared in inputs:
        if parse_ref(declared.name).node not in frozen:
            found = (s for s in guess(source).inputs if parse_ref(s.name).node in frozen)
            likely = described(tuple(found))
            hint = f"likely inputs: {likely}" if likely else "leave it out"
            yield Misfit(
                ("inputs", declared.name), f"no output needs the input {declared.name!r}", hint
            )


def _nearest(name: str, graph: Graph) -> str:
    near = did_you_mean(name, graph.by_name, count=_NEAREST)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
