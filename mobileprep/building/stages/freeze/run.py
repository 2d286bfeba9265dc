"""Freeze a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from mobileprep.building.plan.spec import PAGE, PUBLISHED, Files
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import (
    ASSETS,
    GRAPH,
    INTERFACE,
    FreezeRecord,
    FreezeStage,
    Interface,
)
from mobileprep.building.stages.page.run import write_graph_page
from mobileprep.building.stages.running import write_assets
from mobileprep.core.files import place
from mobileprep.errors import CorruptFileError, InvalidGraphError, RecipeError, UsageError
from mobileprep.formats.checkpoint_files import CheckpointFiles, find_checkpoint, index_path
from mobileprep.formats.dtypes import dtype_from_text
from mobileprep.freezing.fit import check_inputs_count, parameters_cut_off
from mobileprep.freezing.freeze import freeze, output_tensors
from mobileprep.freezing.guess import described, guess
from mobileprep.freezing.model import FreezeOptions, FreezeResult
from mobileprep.freezing.source import LoadedSource, load_source
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.statistics import graph_statistics
from mobileprep.graph.verify import check_graph, check_tensors
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.recipe.settings import InputSpec
from mobileprep.runtime.sampling.inputs import known_shapes


def run(job: Job[FreezeStage]) -> None:
    """Write the graph, interface, records, and assets. The app also needs the assets."""
    settings = job.asked
    options = FreezeOptions(
        settings.outputs, settings.signature or "", **structs.asdict(settings.freeze)
    )
    result = _freeze(_load(settings), options, job)
    check_graph(result.graph, job.place("source"))
    write_graph_page(job.output(PAGE), result.graph)
    size = job.leave_graph(GRAPH, result.graph)
    inputs = tuple(i.name for i in settings.inputs) or result.inputs
    job.write_record(INTERFACE, Interface(inputs, result.outputs, result.init_ops))
    warnings = (
        *result.warnings,
        *_file_warnings(result, inputs),
        *_cut_off(job, result, inputs),
    )
    write_assets(job.output(ASSETS), {asset.name: asset.path for asset in result.assets})
    for asset in result.assets:
        place(asset.path, job.output(f"{PUBLISHED}assets/{asset.name}"))
    statistics = graph_statistics(result.graph, size)
    record = FreezeRecord(
        **structs.asdict(statistics),
        variables=len(result.variables),
        warnings=warnings,
        init_ops=result.init_ops,
        assets={asset.tensor: f"assets/{asset.name}" for asset in result.assets},
    )
    job.write_record(settings.RECORD, record)


def _file_warnings(result: FreezeResult, inputs: tuple[str, ...]) -> Iterator[str]:
    """Yield a warning for each asset whose path the app does not feed."""
    fed = {parse_ref(name).node for name in inputs}
    for asset in result.assets:
        path = parse_ref(asset.tensor).node
        if path not in fed:
            user = next(iter(result.graph.consumers.get(path, [])), result.graph[path])
            yield (
                f"{user.name!r} ({user.op}) reads the file {asset.name!r}, and the model does not "
                f"know where the app stores it; add {path!r} to 'inputs', and feed it the path of "
                f"assets/{asset.name} on the device"
            )


def _cut_off(job: Job[FreezeStage], result: FreezeResult, inputs: tuple[str, ...]) -> list[str]:
    """Warn if the inputs cut off more than half of the parameters."""
    check_inputs_count(result.graph, inputs, result.outputs, job.place("inputs"))
    lost, all_ = parameters_cut_off(result.graph, inputs, result.outputs)
    if lost * 2 <= all_:
        return []
    likely = guess(LoadedSource(result.graph, "")).inputs
    text = (
        f"the inputs cut off {lost:,} of the {all_:,} parameters that the outputs depend on; to "
        f"ship the whole model, name its first tensors as inputs: {described(likely)}"
    )
    job.warn(f"{job.place('inputs')}: {text}")
    return [text]


def _load(settings: FreezeStage) -> LoadedSource:
    path = settings.graph.root
    checkpoint = None if settings.checkpoint is None else named_checkpoint(settings.checkpoint)
    saver = None if settings.saver is None else settings.saver.root
    kind = settings.kind if settings.kind in ("meta_graph", "saved_model") else "graph"
    loaded = load_source(**{kind: path}, checkpoint=checkpoint, saver=saver, tags=settings.tags)
    members = () if settings.assets is None else settings.assets.members
    return structs.replace(loaded, files=tuple(member.path for member in members))


def _freeze(source: LoadedSource, options: FreezeOptions, job: Job[FreezeStage]) -> FreezeResult:
    """Freeze the source. Errors in recipe settings name their location in the recipe."""
    try:
        output_tensors(source, options)
    except UsageError as error:
        raise RecipeError(error.message, error.hint, job.place("outputs")) from error
    except InvalidGraphError as error:
        raise InvalidGraphError(error.message, error.hint, job.place("outputs")) from error
    result = freeze(source, options)
    inputs = job.asked.inputs
    try:
        check_tensors(result.graph, [i.name for i in inputs], "input", job.place("inputs"))
    except InvalidGraphError as error:
        likely = described(guess(source).inputs)
        hint = " ".join(h for h in (error.hint, likely and f"likely inputs: {likely}") if h)
        message = error.message
        absent = next(i.name for i in inputs if parse_ref(i.name).node not in result.graph)
        if parse_ref(absent).node in source.graph:
            message = f"no output needs the input {absent!r}"
            hint = "remove it from inputs, or name the outputs that need it"
        raise InvalidGraphError(message, hint, error.where) from error
    nodes = {n.name: n for n in result.graph}
    for declared in inputs:
        ref = parse_ref(declared.name)
        node = nodes[ref.node]
        if node.op == "Placeholder":
            (shape,) = known_shapes(result.graph, [ref])
            nodes[ref.node] = _with_declared(node, shape, declared, job.place("inputs"))
    return structs.replace(result, graph=result.graph.with_nodes(nodes.values()))


def _with_declared(node: Node, inferred: TensorShape, declared: InputSpec, where: str) -> Node:
    """Check the declared dtype of a placeholder, and refine its shape.

    Raises:
        InvalidGraphError: the declaration contradicts the graph.
    """
    dtype = node.attr_dtype("dtype")
    if declared.dtype and dtype_from_text(declared.dtype) != dtype:
        message = f"the input {node.name!r} is {dtype.short} in the graph, not {declared.dtype}"
        raise InvalidGraphError(message, f"write dtype: {dtype.short}", where)
    if declared.shape is None:
        return node
    try:
        shape = merge(inferred, declared.shape)
    except ShapeConflictError as error:
        message = (
            f"the input {node.name!r} has the shape {list(inferred or ())} in the graph, "
            f"which {list(declared.shape)} does not fit"
        )
        raise InvalidGraphError(message, "use the graph's sizes, -1 for any", where) from error
    return node if shape == inferred else node.with_attrs(shape=attr.shape(shape))


def named_checkpoint(named: Files) -> Path:
    """Return the path of a checkpoint that is among the recipe's files.

    A state file may name a checkpoint elsewhere, whose changes would not be detected. In that
    case, a checkpoint of the same name next to the state file is used.

    Raises:
        CorruptFileError: such a checkpoint does not exist.
    """
    checkpoint = find_checkpoint(named.root)
    if _is_of(named, checkpoint):
        return named.root
    folder = named.root if named.root.is_dir() else named.root.parent
    beside = folder / checkpoint.prefix.name
    with contextlib.suppress(CorruptFileError):
        if _is_of(named, find_checkpoint(beside)):
            return beside
    message = f"names the checkpoint {str(checkpoint.prefix)!r}, which is not next to it"
    raise CorruptFileError(message, "name that by its prefix in the recipe", str(named.root))


def _is_of(named: Files, checkpoint: CheckpointFiles) -> bool:
    files = checkpoint.tables or (index_path(checkpoint.prefix),)
    return {*map(os.path.realpath, files)} <= {os.path.realpath(m.path) for m in named.members}
