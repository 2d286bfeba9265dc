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


class StepEffect(Struct, frozen=True):
    """Effect of a step, and the counts and size of the graph after it.

    Args:
        name: transform name.
        nodes: number of nodes after the step, including function bodies.
        parameters: number of elements of all constants.
        bytes: size of the serialized graph in bytes.
        matched: number of matches.
        added: number of new node names.
        removed: number of removed node names.
        changed: number of nodes with the same name that differ.
        skipped: number of skipped matches, by reason.
        warnings: warnings for the user.
    """

    name: str
    nodes: int
    parameters: int
    bytes: int
    matched: int
    added: int
    removed: int
    changed: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]


class TransformRecord(StepEffect, frozen=True):
    """Effect of a step, and facts about the graph after it, ``step.json``.

    Args:
        nodes_before: number of nodes before the step, without function bodies.
        nodes_after: number of nodes after the step, without function bodies.
        constants: number of Const nodes.
        ops: number of nodes of each op.
    """

    nodes_before: int
    nodes_after: int
    constants: int
    ops: Mapping[str, int]


class TransformStage(Stage, frozen=True, kw_only=True):
    """Run one step of a chain of transforms.

    Args:
        transform: transform name.
        options: parameters, with files named as in the recipe.
        ignore_errors: whether to continue with the unchanged graph after an error.
        earlier: names of the transforms before it, for warnings.
        plugin: Python file of a plugin transform.
        named: files that parameters name, by ``file_slot``.
        graph: the graph before the step.
        ranges: range file of a calibration, for the option ``range_file``.
        interface: inputs and outputs.
        regular_expressions: regular expression engine of the transform, with its version.
    """

    stage_name: ClassVar[str] = "transform"
    stage_version: ClassVar[int] = 14
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
        """The graph after the step, the record, and the data for the report page."""
        return (GRAPH, self.RECORD, PAGE)


def plugin_file(step: Step) -> Files | None:
    """Return the Python file of a plugin transform, or None for a built-in transform."""
    return None if step.plugin is None else single_file(step.plugin.file)


def named_files(step: Step) -> Mapping[str, Files]:
    """Return the files that a step's parameters name, by slot, with all files of checkpoints."""
    find = {"checkpoint": checkpoint_files, "path": single_file}
    return {file_slot(f.parameter, f.index): find[f.kind](f.file) for f in step.files}


def transform_spec(
    target: Target, number: int, graph: Upstream, ranges: Upstream | None, interface: Upstream
) -> StageSpec:
    """Return the stage of a target's step, counted from 1."""
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
