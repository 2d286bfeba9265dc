"""Finds out before a build whether the TensorFlow of each target loads and runs its model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mobileprep.chains.chain import ChainStep, run_step
from mobileprep.errors import MobileprepError, UnsupportedError, named
from mobileprep.freezing.options import FreezeResult
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ops.modules import family_of
from mobileprep.packaging.loading import AppBuild, check_loads, ops_of
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.problems import Problem
from mobileprep.recipe.tree import place_of
from mobileprep.transforms.base import Context


@dataclass(frozen=True)
class Foreseen:
    """What a build would report of a target: errors, and warnings with their places."""

    problems: tuple[Problem, ...] = ()
    cautions: tuple[str, ...] = ()


def foreseen(target: Target, frozen: FreezeResult) -> Foreseen:
    """Judge the graph that a build would ship, as the build does, without building it.

    Steps that need code, files, or ranges of the user are left out. If there are such steps, a
    graph that does not load is a warning: they may change it.
    """
    if target.artifact == "tflite":
        return Foreseen()
    build = AppBuild(
        target.registration, target.platform, target.allow, [op.name for op in target.ops]
    )
    skipped: list[str] = []
    graph = frozen.graph
    if any(any(build.gaps(graph, release)) for release in target.registration):
        graph, skipped = _after_chain(target, frozen)
    place = place_of(target.tree, ("registration",)) if target.tree is not None else None
    assert place is not None
    problems = list(_unrunnable(target, graph))
    cautions = [f"{place}: {text}" for text in (*build.accepted(graph), *_unused(target, graph))]
    try:
        check_loads(graph, build)
    except UnsupportedError as error:
        if not skipped:
            problems.append(Problem(place, error.message, error.hint))
        else:
            unless = f"unless {named(skipped)} changes that"
            cautions.append(f"{place}: {error.message}, {unless}; {error.hint}")
    return Foreseen(tuple(problems), tuple(cautions))


def _after_chain(target: Target, frozen: FreezeResult) -> tuple[Graph, list[str]]:
    """Return the graph after the steps that can run now, and the names of the others."""
    inputs = tuple(i.name for i in target.inputs) or frozen.inputs
    context = Context(inputs, (*frozen.outputs, *frozen.init_ops))
    skipped: list[str] = []
    graph = frozen.graph
    for step in target.transforms:
        if _needs_more(step):
            skipped.append(step.name)
            continue
        # The build reports what is wrong with a step.
        with contextlib.suppress(MobileprepError):
            graph = run_step(graph, ChainStep(step.name, step.options), context).graph
    return graph, skipped


def _needs_more(step: Step) -> bool:
    return bool(step.plugin or step.files or step.takes_ranges or step.trials)


def _unrunnable(target: Target, graph: Graph) -> Iterator[Problem]:
    """Yield a problem for each section that would run an op of the app."""
    assert target.tree is not None
    used = ops_of(graph)
    own = [op.name for op in target.ops if op.name in used and not family_of(op.name)]
    runs = {
        "check": target.check is not None and bool(target.transforms),
        "validation": target.validation is not None,
        "calibration": target.takes_ranges,
    }
    for section in (key for key, is_run in runs.items() if own and is_run):
        if target.tree.get(section) is not None:
            message = f"`{section}` runs the model, and mobileprep has no kernel for {named(own)}"
            hint = f"remove `{section}`, or set `{section}: null` for this target"
            yield Problem(place_of(target.tree, (section,)), message, hint)


def _unused(target: Target, graph: Graph) -> Iterator[str]:
    for op in target.ops:
        if op.name not in ops_of(graph):
            yield f"`ops` declares `{op.name}`, which the model does not have"
