"""Checks of pipelines, and the targets that run one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.errors import nearest_hint
from mobileprep.recipe.data import samples_problems
from mobileprep.recipe.model import Target
from mobileprep.recipe.pipeline_settings import PipelineStep, RunCounts, Windows
from mobileprep.recipe.tree import (
    KeyPath,
    MappingNode,
    Place,
    Problem,
    find,
    key_place,
    place_of,
    plain,
)

_COUNTS: Final = ("runs", "windows", "pass_rate")


def pipeline_targets(targets: Sequence[Target]) -> Iterator[tuple[Target, ...]]:
    """Yield the targets of a pipeline's steps, in order, for each device.

    A device without one of the models does not run the pipeline.
    """
    by_folder = {(target.model, target.name): target for target in targets}
    for name in dict.fromkeys(target.name for target in targets):
        own = next(t for t in targets if t.name == name)
        steps = () if own.pipeline is None else own.pipeline.steps
        models = [(step.model, name) for step in steps]
        if models and all(model in by_folder for model in models):
            yield tuple(by_folder[model] for model in models)


def pipeline_problems(targets: Sequence[tuple[MappingNode, Target]]) -> Iterator[Problem]:
    """Report unknown models, and models that do not fit into one pipeline."""
    trees = [tree for tree, target in targets if target.pipeline is not None]
    if not trees:
        return
    place = key_place(trees[0], "pipeline")
    models = list(dict.fromkeys(t.model for _, t in targets if t.model is not None))
    if not models:
        hint = "list them under 'models: {first: {source: ...}, second: {source: ...}}'"
        yield Problem(place, "a pipeline needs the names of its models", hint)
        return
    unknown = list(_unknown_models(targets, models))
    yield from unknown
    yield from _different(targets)
    devices = list(pipeline_targets([target for _, target in targets]))
    if not unknown and not devices and any(_steps(target) for _, target in targets):
        hint = "remove 'null' of a target from the models of the pipeline"
        yield Problem(place, "no target has all models of the pipeline", hint)


def _unknown_models(
    targets: Sequence[tuple[MappingNode, Target]], models: Sequence[str]
) -> Iterator[Problem]:
    for tree, target in targets:
        for index, step in enumerate(_steps(target)):
            if step.model and step.model not in models:
                place = place_of(tree, ("pipeline", "steps", index, "model"))
                hint = nearest_hint(step.model, models) or f"choose one of {', '.join(models)}"
                yield Problem(place, f"there is no model {step.model!r}", hint)


def _different(targets: Sequence[tuple[MappingNode, Target]]) -> Iterator[Problem]:
    """Report targets of the same name with other pipelines or devices."""
    first: dict[str, tuple[MappingNode, Target]] = {}
    for tree, target in targets:
        other_tree, other = first.setdefault(target.name, (tree, target))
        if target.pipeline != other.pipeline:
            message = f"the models of {target.name!r} have different pipelines"
            hint = "write 'pipeline' at the top level or in the shared 'targets'"
            yield Problem(place_of(tree, ("pipeline",)), message, hint)
        elif target.pipeline is not None and target.model in {
            step.model for step in target.pipeline.steps
        }:
            device, other_device = (
                None if node is None else plain(node)
                for node in (tree.get("device"), other_tree.get("device"))
            )
            if device != other_device:
                message = f"the models of a pipeline run on one device, not {device} and "
                message += f"{other_device}"
                hint = "write 'device' at the top level or in the shared 'targets'"
                yield Problem(place_of(tree, ("device",)), message, hint)


def step_problems(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report missing steps of a target's pipeline, and keys that do not fit together."""
    if target.pipeline is not None and find(tree, ("pipeline", "steps")) is None:
        place = place_of(tree, ("pipeline",))
        yield Problem(place, "a pipeline needs steps", "add 'steps: [{model: NAME}]'")
    for index, step in enumerate(_steps(target)):
        keys: KeyPath = ("pipeline", "steps", index)
        node = find(tree, keys)
        if not isinstance(node, MappingNode):
            continue
        counts = [key for key in _COUNTS if key in node.entries]
        for key in counts[1:]:
            message = f"{counts[0]!r} already determines the number of runs"
            yield Problem(key_place(node, key), message, "keep one of them")
        if index == 0 and "pass_rate" in node.entries:
            message = "the first step has no previous step to pass its windows or runs on"
            place = key_place(node, "pass_rate")
            yield Problem(place, message, "write 'runs' or 'windows', or move it down")
        yield from _runs(step, place_of(node, ("runs",)))
        if step.windows is not None:
            yield from _windows(step.windows, node)
        data = find(node, ("pass_rate", "data"))
        if isinstance(data, MappingNode):
            yield from samples_problems(data)


def _steps(target: Target) -> tuple[PipelineStep, ...]:
    return () if target.pipeline is None else target.pipeline.steps


def _runs(step: PipelineStep, place: Place) -> Iterator[Problem]:
    runs = step.runs
    if isinstance(runs, RunCounts) and max(runs.expected, runs.p95) > runs.worst:
        message = f"the worst case of {runs.worst} runs is below the expected or 95th percentile"
        yield Problem(place, message, "write the largest number of runs as 'worst'")


def _windows(windows: Windows, step: MappingNode) -> Iterator[Problem]:
    """Report a window that is larger than the image."""
    scales = windows.scales
    # The schema reports other values, with which the scales might not end.
    is_valid = len(windows.image) == 2 and len(windows.window) == 2
    if scales is not None and not (scales.min_size >= 1 and 0 < scales.factor < 1):
        is_valid = False
    if not is_valid or windows.sizes():
        return
    image, window = (" x ".join(map(str, sides)) for sides in (windows.image, windows.window))
    place = place_of(step, ("windows", "window"))
    if scales is None:
        message = f"a window of {window} pixels does not fit in an image of {image}"
        yield Problem(place, message, "write the height and width of both in pixels")
        return
    message = f"no object of {scales.min_size} pixels fits in an image of {image}, for a window of "
    message += window
    place = place_of(step, ("windows", "scales", "min_size"))
    yield Problem(place, message, "choose a smaller 'min_size', or a larger image")
