"""The stage `transform`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.engines import step_regex_engine
from mobileprep.building.plan.sources import checkpoint_files, single_file
from mobileprep.building.plan.spec import PAGE, Files, Stage, StageSpec, Upstream, file_slot, places
from mobileprep.building.stages.freeze.spec import GRAPH
from mobileprep.recipe.model import ParameterValue, Step, Target


class TransformRecord(Struct, frozen=True):
    """What one step did, and the graph after it, ``step.json``.

    Args:
        name: the transform's.
        matched: how many places it acted on.
        added: how many nodes have names that none had.
        removed: how many names are gone.
        changed: how many nodes of one name differ.
        nodes_before: without functions' bodies.
        nodes_after: the same.
        skipped: how many places it left as they were, by reason.
        warnings: what the user should know.
        nodes: of the graph after it, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
    """

    name: str
    matched: int
    added: int
    removed: int
    changed: int
    nodes_before: int
    nodes_after: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]


class TransformStage(Stage, frozen=True, kw_only=True):
    """One step of a chain, from graph to graph.

    Args:
        transform: its name.
        options: its parameters; those that name files have them as the recipe does.
        ignore_errors: whether a failure leaves the graph as it was.
        earlier: the transforms before it, for cautions.
        plugin: the code of a transform from outside the package.
        named: the files that parameters name, by ``file_slot``.
        graph: the graph before it.
        ranges: the range file that a calibration leaves for it, its option ``range_file``.
        interface: what is fed and fetched.
        regular_expressions: what the transform may run them by, with its version.
    """

    stage_name: ClassVar[str] = "transform"
    stage_version: ClassVar[int] = 13
    RECORD: ClassVar[str] = "step.json"
    reported: ClassVar[type[Struct] | None] = TransformRecord

    transform: str
    options: Mapping[str, ParameterValue]
    ignore_errors: bool = False
    earlier: tuple[str, ...] = ()
    plugin: Files | None = None
    named: Mapping[str, Files]
    graph: Upstream
    ranges: Upstream | None = None
    interface: Upstream
    regular_expressions: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph after it, the record, and the page's part."""
        return (GRAPH, self.RECORD, PAGE)


def plugin_file(step: Step) -> Files | None:
    """The code of a transform from outside the package; None for the package's own."""
    return None if step.plugin is None else single_file(step.plugin.file)


def named_files(step: Step) -> Mapping[str, Files]:
    """The files that a step's parameters name, by slot; of a checkpoint, all that belong to it."""
    find = {"checkpoint": checkpoint_files, "path": single_file}
    return {file_slot(f.parameter, f.index): find[f.kind](f.file) for f in step.files}


def transform_spec(
    target: Target, number: int, graph: Upstream, ranges: Upstream | None, interface: Upstream
) -> StageSpec:
    """The stage of a target's step, counted from 1."""
    step = target.transforms[number - 1]
    stage = TransformStage(
        transform=step.name,
        options=step.options,
        ignore_errors=step.ignore_errors,
        earlier=tuple(s.name for s in target.transforms[: number - 1]),
        plugin=plugin_file(step),
        named=named_files(step),
        graph=graph,
        ranges=ranges,
        interface=interface,
        regular_expressions=step_regex_engine(step),
    )
    where = {**places(target, "inputs", "outputs"), "transforms": step.place}
    return StageSpec(f"{number:02d}-{step.name}", stage, where)
