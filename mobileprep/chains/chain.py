"""Runs transforms one after another, and keeps a record of what each did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from mobileprep.core import parallel
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.ir.ends import nodes_of
from mobileprep.ir.functions import drop_unused_functions
from mobileprep.ir.graph import Graph
from mobileprep.ir.verify import check_inputs
from mobileprep.transforms.base import Context, Result, make_transform, refuse
from mobileprep.transforms.plugins import apply_plugin


@dataclass(frozen=True)
class ChainStep:
    """One transform of a chain, with its options typed as its schema says.

    ``plugin`` is the Python file of a transform that is none of the package's own.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ignore_errors: bool = False
    plugin: Path | None = None


@dataclass(frozen=True)
class StepRecord:
    """What one step did, in numbers.

    Node counts are of names: a node of the same name that differs in anything is changed.
    """

    name: str
    matched: int
    added: int
    removed: int
    changed: int
    nodes_before: int
    nodes_after: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def run_chain(
    graph: Graph,
    steps: Iterable[ChainStep],
    context: Context,
    *,
    watch: Callable[[StepRecord, Graph], None] | None = None,
) -> tuple[Graph, list[StepRecord]]:
    """Apply steps in order; every result is checked, its outputs too but with ``tf115``.

    The functions of the library are carried through. As the original does, ``tf115``
    keeps those too that nothing calls any more.

    Args:
        graph: the graph to start from.
        steps: what to do.
        context: inputs, outputs and mode for every step.
        watch: called with each step's record and result.

    Raises:
        TransformError, InvalidGraphError: a step failed and did not ask to be ignored.
        UsageError: a step that does not exist.
    """
    records = []
    steps = list(steps)
    for number, step in enumerate(steps, start=1):
        parallel.tell(f"{number}/{len(steps)} {step.name}", 0, 0, "nodes")
        result = run_step(graph, step, context)
        record = _record(step.name, graph, result)
        graph = result.graph
        records.append(record)
        if watch is not None:
            watch(record, graph)
    return graph, records


def run_step(graph: Graph, step: ChainStep, context: Context) -> Result:
    """Apply one step; an ignored error leaves the graph as it was, with a warning."""
    try:
        result = _apply(graph, step, context)
        if not context.tf115:
            _check_outputs(step.name, graph, result.graph, context)
    except UsageError:
        raise
    except MobileprepError as error:
        if not step.ignore_errors:
            raise
        return Result(graph, warnings=(f"{step.name}: ignored: {error}",))
    check_inputs(result.graph, f"after {step.name}")
    if context.tf115 or result.graph is graph:
        return result
    return replace(result, graph=drop_unused_functions(result.graph))


def _apply(graph: Graph, step: ChainStep, context: Context) -> Result:
    if step.plugin is None:
        return make_transform(step.name, step.options).apply(graph, context)
    return apply_plugin(step.name, step.options, step.plugin, graph, context)


def _check_outputs(name: str, before: Graph, after: Graph, context: Context) -> None:
    """Hold a step to the outputs: an app that fetches one that is gone would fail on the device."""
    if after is before:
        return
    lost = (n for n in sorted(nodes_of(context.outputs)) if n in before and n not in after)
    for output in lost:
        message = f"the output {output!r} is gone after it"
        raise refuse(name, message, "leave what outputs names, under its name")


def _record(name: str, before: Graph, result: Result) -> StepRecord:
    after = result.graph
    if after is before:
        added = removed = changed = 0
    else:
        old, new = before.by_name, after.by_name
        kept = sum(map(old.__contains__, new))
        added, removed = len(new) - kept, len(old) - kept
        # Nodes are never changed in place, so identity settles nearly every comparison.
        others = (old.get(name) for name, node in new.items() if old.get(name) is not node)
        changed = sum(was is not None and was != new[was.name] for was in others)
    return StepRecord(
        name,
        result.matched,
        added,
        removed,
        changed,
        len(before),
        len(after),
        dict(sorted(result.skipped.items())),
        result.warnings,
    )
