"""Read the ``validation`` section: one metric in the section itself, or a list of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mobileprep.recipe.data import resolve_data
from mobileprep.recipe.files import input_file
from mobileprep.recipe.metrics import MetricFacts, metric_facts
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Problem,
    Scalar,
    Sequence,
    place_of,
    plain,
    show,
)
from mobileprep.recipe.validation_settings import (
    METRIC_KEYS,
    MetricChoice,
    MetricFunction,
    Validation,
)

_LIMITS: Final = ("max_drop", "at_least", "at_most")
_NUMBERS: Final = (*_LIMITS, "peak", "threshold")
_COUNTS: Final = ("samples", "seed", "batch")
_OWN_KEYS: Final = ("peak", "threshold", "ignore", "characters")
# Default limit of metrics that are shares.
_USUAL_DROP: Final = 0.01


def resolve_validation(section: MappingNode | None) -> Validation | None:
    """Return the validation that a valid section describes."""
    if section is None:
        return None
    labels = section.get("labels")
    usual = None if labels is None else str(plain(labels))
    choices = tuple(_resolved(node, usual) for node in _choices(section))
    given = plain(section)
    numbers = {key: int(given[key]) for key in _COUNTS if given.get(key) is not None}
    strict, engine = given.get("strict") is True, given.get("engine")
    data = resolve_data(section.entries["data"].value)
    return Validation(data, choices, **numbers, engine=engine, strict=strict)


def validation_problems(target: TargetSections) -> Iterator[Problem]:
    """Report problems that a schema cannot express; skip values of a wrong type."""
    section = target.mapping("validation")
    if section is None:
        return
    if "data" not in section.entries:
        place = target.tree.entries["validation"].key_place
        yield Problem(place, "validation needs a test set", "add 'data: test.npz'")
    if "metrics" in section.entries:
        for key in METRIC_KEYS:
            if key in section.entries and key != "labels":
                message = f"{key!r} is of a single metric, and there is a list of metrics"
                hint = "move it into an item of 'metrics'"
                yield Problem(section.entries[key].key_place, message, hint)
    listed = target.get("outputs")
    outputs = [str(plain(item)) for item in listed.items] if isinstance(listed, Sequence) else []
    for choice in _choices(section):
        yield from _choice_problems(choice, outputs)


def _choices(section: MappingNode) -> list[MappingNode]:
    listed = section.get("metrics")
    if isinstance(listed, Sequence):
        return [item for item in listed.items if isinstance(item, MappingNode)]
    kept = {key: entry for key, entry in section.items() if key in METRIC_KEYS}
    return [MappingNode(kept, section.place)]


def _resolved(node: MappingNode, labels: str | None) -> MetricChoice:
    given: dict[str, Any] = {key: value for key, value in plain(node).items() if value is not None}
    given |= {key: float(given[key]) for key in _NUMBERS if key in given}
    given |= {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    if "ignore" in given:
        given["ignore"] = int(given["ignore"])
    if labels is not None:
        given.setdefault("labels", labels)
    function = node.get("metric")
    if isinstance(function, MappingNode):
        python = function.get("python")
        assert isinstance(python, Scalar)
        given["metric"] = MetricFunction(**{**plain(function), "python": input_file(python)})
    facts = _facts(node)
    limits = [key for key in _LIMITS if key in given]
    if facts is not None and facts.is_share and not limits:
        given["max_drop"] = _USUAL_DROP
    places = [str(place_of(node, (key,))) for key in ("metric", *limits[:1])]
    return MetricChoice(**given, place=places[0], limit_place=places[-1])


def _facts(choice: MappingNode) -> MetricFacts | None:
    """Return the properties of a choice's metric; None if it is unknown."""
    metric = choice.get("metric")
    if metric is None:
        return metric_facts("auto")
    if isinstance(metric, MappingNode):
        better = metric.get("higher_is_better")
        higher = better is None or plain(better) is not False
        return MetricFacts(higher_is_better=higher, is_share=False, outputs=(1, 3, 4))
    return metric_facts(str(plain(metric)))


def _choice_problems(choice: MappingNode, outputs: list[str]) -> Iterator[Problem]:
    facts = _facts(choice)
    if facts is None:
        return
    yield from _limit_problems(choice, facts)
    yield from _output_problems(choice, facts, outputs)
    for key in _OWN_KEYS:
        if key in choice.entries and key not in facts.keys:
            message = f"{key!r} does not concern the metric {_name(choice)}"
            yield Problem(choice.entries[key].key_place, message, "remove it")


def _limit_problems(choice: MappingNode, facts: MetricFacts) -> Iterator[Problem]:
    wrong, right = ("at_most", "at_least") if facts.higher_is_better else ("at_least", "at_most")
    if wrong in choice.entries:
        better = "higher" if facts.higher_is_better else "lower"
        message = f"{wrong!r} is not a limit of {_name(choice)}, of which {better} is better"
        yield Problem(choice.entries[wrong].key_place, message, f"write {right!r}")
    if not facts.is_share and not any(key in choice.entries for key in _LIMITS):
        message = f"{_name(choice)} needs a limit, for it has a unit of its own"
        hint = f"add '{right}: ...', or 'max_drop: ...'"
        yield Problem(place_of(choice, ("metric",)), message, hint)
    drop = choice.get("max_drop")
    share = plain(drop) if isinstance(drop, Scalar) else None
    if facts.is_share and isinstance(share, int | float) and share > 1:
        yield Problem(place_of(choice, ("max_drop",)), "must be at most 1", "one percent is 0.01")


def _output_problems(
    choice: MappingNode, facts: MetricFacts, outputs: list[str]
) -> Iterator[Problem]:
    one, several = choice.get("output"), choice.get("outputs")
    if one is not None and several is not None:
        message = "'output' and 'outputs' exclude each other"
        yield Problem(choice.entries["outputs"].key_place, message, "keep one of them")
    count = len(several.items) if isinstance(several, Sequence) else 1
    if count not in facts.outputs:
        wanted = " or ".join(map(str, facts.outputs))
        message = f"{_name(choice)} is of {wanted} output{'s' * (facts.outputs != (1,))}"
        at = "outputs" if several is not None else "metric"
        hint = "name boxes, scores and classes" if 4 in facts.outputs else "write 'output: ...'"
        yield Problem(place_of(choice, (at,)), message, hint)
    named: tuple[Node, ...] = several.items if isinstance(several, Sequence) else ()
    for node in (*named, *([] if one is None else [one])):
        name = str(plain(node))
        if outputs and _canonical(name) not in map(_canonical, outputs):
            message = f"{show(name)} is none of the outputs {', '.join(outputs)}"
            yield Problem(node.place, message, "name one of them, or add it to 'outputs'")


def _name(choice: MappingNode) -> str:
    metric = choice.get("metric")
    if isinstance(metric, MappingNode):
        return "this function"
    return show("auto" if metric is None else str(plain(metric)))


def _canonical(name: str) -> str:
    return name.removesuffix(":0")
