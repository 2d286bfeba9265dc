"""Checks whether a build of TensorFlow loads and runs a model, before or after a build of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mobileprep.api.graphs import check_holds_nodes
from mobileprep.api.models import ModelOptions, load_model
from mobileprep.chains.chain import ChainStep, run_step
from mobileprep.core.files import map_file
from mobileprep.errors import (
    CorruptFileError,
    MobileprepError,
    UnsupportedError,
    UsageError,
    named,
)
from mobileprep.formats.kinds import kind_of
from mobileprep.freezing.model import FreezeResult
from mobileprep.frozen import dataclass
from mobileprep.ir.files import read_shipped_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.tflite import is_tflite_graph
from mobileprep.opdefs.definitions import DEFAULT_RELEASE, RELEASES
from mobileprep.ops.modules import family_of
from mobileprep.packaging.loading import AppBuild, check_loads, ops_of
from mobileprep.packaging.selective_registration import (
    RegistrationHeader,
    read_registration_header,
)
from mobileprep.packaging.target_check import TargetGap, target_gaps
from mobileprep.pipeline.manifest import read_manifest
from mobileprep.plan.stages import HEADER
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.problems import Problem
from mobileprep.recipe.tree import place_of
from mobileprep.transforms.base import Context

DEFAULT_PLATFORM: Final = "android"


@dataclass(frozen=True)
class TargetCheck:
    """What a build of TensorFlow lacks for a model.

    Args:
        graph: path of the model.
        tensorflow: the release.
        platform: the platform that TensorFlow is built for.
        header: path of the registration header that it is built with; empty for none.
        loads: whether nothing is missing.
        gaps: what is missing.
    """

    graph: str
    tensorflow: str
    platform: str
    header: str
    loads: bool
    gaps: tuple[TargetGap, ...]


def check_target(
    path: Path,
    release: str | None = None,
    platform: str | None = None,
    *,
    selective: bool | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> TargetCheck:
    """Check a GraphDef as it is, memory-mapped ones too, or another model after freezing it.

    Args:
        path: the model.
        release: TensorFlow release. None takes that of the header next to the model, or else
            ``DEFAULT_RELEASE``.
        platform: a name of ``packaging.targets.PLATFORMS``. None takes that of the manifest next
            to the model, or else ``DEFAULT_PLATFORM``.
        selective: whether the app builds with a registration header and its build files. None
            uses the header next to the model, if there is one; False ignores it.
        tell: called with a sentence for each thing that freezing changed, and for a header that
            is not used.

    Raises:
        UsageError: the model is for LiteRT.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the model is malformed, or has no nodes.
        UnsupportedError: unknown platform, or the model cannot be frozen.
    """
    frozen = path.is_dir() or kind_of(map_file(path)) != "GraphDef"
    graph = load_model(path, ModelOptions(), tell).graph if frozen else read_shipped_graph(path)
    check_holds_nodes(graph, str(path))
    if is_tflite_graph(graph):
        message = "the file is for LiteRT, not for TensorFlow"
        raise UsageError(message, "`mobileprep summarize` lists its operators", str(path))
    header = None if selective is False else _header(path, release, tell)
    release = release or (header.release if header is not None else "") or DEFAULT_RELEASE
    platform = platform or _platform(path)
    gaps = target_gaps(
        graph,
        release,
        platform,
        selective=bool(selective) or header is not None,
        header=None if header is None else header.registered,
    )
    used = "" if header is None else str(header.path)
    return TargetCheck(str(path), release, platform, used, not gaps, gaps)


def _header(
    path: Path, release: str | None, tell: Callable[[str], None]
) -> RegistrationHeader | None:
    """Return the header next to a model; with several, the one of the release."""
    several = [path.parent / f"tensorflow-{known}" / HEADER for known in RELEASES]
    there = [file for file in (path.parent / HEADER, *several) if file.is_file()]
    headers = [read_registration_header(file) for file in there]
    fitting = [h for h in headers if h.release in ("", release or h.release)]
    if headers and not fitting:
        tell(f"{there[0]} is for TensorFlow {headers[0].release}, and is not used")
    return fitting[0] if fitting else None


def _platform(path: Path) -> str:
    with contextlib.suppress(CorruptFileError):
        manifest = read_manifest(path.parent)
        if path.name in manifest.files:
            return str(manifest.settings.get("platform", DEFAULT_PLATFORM))
    return DEFAULT_PLATFORM


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
