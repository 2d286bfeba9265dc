"""Checks of the ``validation`` section: metrics, their limits, and their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.errors import nearest_hint
from mobileprep.recipe.decode import metric_nodes, validation_nodes
from mobileprep.recipe.model import Target
from mobileprep.recipe.tree import (
    KeyPath,
    MappingNode,
    Place,
    Problem,
    key_place,
    place_of,
    plain,
    show,
)
from mobileprep.recipe.validation_settings import (
    LIMITS,
    METRIC_KEYS,
    MetricChoice,
    MetricFacts,
    NamedValidation,
    Validation,
    choice_facts,
)

_OWN_KEYS: Final = ("peak", "threshold", "ignore", "characters")


def validation_problems(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report keys of validations that do not fit together."""
    nodes = validation_nodes(tree)
    # A list with an invalid item is not decoded; the schema reports the item.
    for (keys, section), validation in zip(nodes, target.validations, strict=False):
        if "data" not in section.entries:
            place = place_of(tree, keys)
            yield Problem(place, "validation needs a test set", "add 'data: test.npz'")
        yield from _section_problems(section, validation, target.outputs)
    yield from _name_problems([section for _, section in nodes])
    yield from _gap_problems([section for _, section in nodes], target.validations)


def _section_problems(
    section: MappingNode, validation: Validation, outputs: tuple[str, ...]
) -> Iterator[Problem]:
    """Report metrics and limits of one validation that do not fit together."""
    if "metrics" in section.entries:
        for key in METRIC_KEYS:
            if key in section.entries and key != "labels":
                message = f"{key!r} is of a single metric, and there is a list of metrics"
                hint = "move it into an item of 'metrics'"
                yield Problem(key_place(section, key), message, hint)
    for node, choice in zip(metric_nodes(section), validation.metrics, strict=True):
        facts = choice_facts(choice.metric)
        if facts is not None:
            yield from _limit_problems(node, choice, facts)
            yield from _output_problems(node, choice, facts, outputs)
            for key in _OWN_KEYS:
                if key in node.entries and key not in facts.keys:
                    message = f"{key!r} does not concern the metric {_name(choice)}"
                    yield Problem(key_place(node, key), message, "remove it")


def _name_problems(sections: Sequence[MappingNode]) -> Iterator[Problem]:
    """Report names that several validations have."""
    seen: set[str] = set()
    for section in sections:
        name = section.get("name")
        if name is None:
            continue
        if (text := str(plain(name))) in seen:
            message = f"another validation has the name {show(text)}"
            yield Problem(name.place, message, "give each data set its own name")
        seen.add(text)


def _gap_problems(
    sections: Sequence[MappingNode], validations: Sequence[Validation]
) -> Iterator[Problem]:
    """Report gaps without another data set, or without the same metric of the first one."""
    for number, (section, validation) in enumerate(zip(sections, validations, strict=False)):
        for node, choice in zip(metric_nodes(section), validation.metrics, strict=True):
            if "max_gap" not in node.entries:
                continue
            place = key_place(node, "max_gap")
            if not isinstance(validation, NamedValidation):
                message = "'max_gap' compares data sets, and there is one validation"
                yield Problem(place, message, "write a list of validations with names")
            elif not number:
                message = "'max_gap' compares with the first validation, and this is the first"
                yield Problem(place, message, "move it to another validation")
            elif gap_partner(choice, validations[0]) is None:
                yield _partner_problem(place, choice, validations[0])


def _partner_problem(place: Place, choice: MetricChoice, first: Validation) -> Problem:
    """Return the problem of a gap whose metric the first validation does not have."""
    if any(other.metric == choice.metric for other in first.metrics):
        message = f"the first validation measures {_name(choice)} of another output"
        return Problem(place, message, "name the same output in both validations")
    names = [m for m in (other.metric for other in first.metrics) if isinstance(m, str)]
    message = f"the first validation does not have the metric {_name(choice)} to compare with"
    metric = choice.metric if isinstance(choice.metric, str) else ""
    hint = nearest_hint(metric, names) or "write the same metric in both validations"
    return Problem(place, message, hint)


def gap_partner(choice: MetricChoice, first: Validation) -> int | None:
    """Return the index of the metric of the first validation to compare with, or None."""
    for index, other in enumerate(first.metrics):
        if (other.metric, other.named_outputs) == (choice.metric, choice.named_outputs):
            return index
    return None


def _limit_problems(
    node: MappingNode, choice: MetricChoice, facts: MetricFacts
) -> Iterator[Problem]:
    wrong, right = ("at_most", "at_least") if facts.higher_is_better else ("at_least", "at_most")
    if wrong in node.entries:
        better = "higher" if facts.higher_is_better else "lower"
        message = f"{wrong!r} is not a limit of {_name(choice)}, of which {better} is better"
        yield Problem(key_place(node, wrong), message, f"write {right!r}")
    if not facts.is_share and not any(key in node.entries for key in LIMITS):
        message = f"{_name(choice)} needs a limit, for it has a unit of its own"
        hint = f"add '{right}: ...', or 'max_drop: ...'"
        yield Problem(place_of(node, ("metric",)), message, hint)
    if facts.is_share and choice.max_drop is not None and choice.max_drop > 1:
        yield Problem(place_of(node, ("max_drop",)), "must be at most 1", "one percent is 0.01")


def _output_problems(
    node: MappingNode, choice: MetricChoice, facts: MetricFacts, outputs: tuple[str, ...]
) -> Iterator[Problem]:
    if "output" in node.entries and "outputs" in node.entries:
        message = "'output' and 'outputs' exclude each other"
        yield Problem(key_place(node, "outputs"), message, "keep one of them")
    count = len(choice.outputs) or 1
    is_readable = choice.outputs or "outputs" not in node.entries
    if is_readable and count not in facts.outputs:
        expected = " or ".join(map(str, facts.outputs))
        message = f"{_name(choice)} is of {expected} output{'s' * (facts.outputs != (1,))}"
        place = place_of(node, ("outputs" if choice.outputs else "metric",))
        hint = "name boxes, scores and classes" if 4 in facts.outputs else "write 'output: ...'"
        yield Problem(place, message, hint)
    names: list[tuple[KeyPath, str]]
    names = [(("outputs", index), name) for index, name in enumerate(choice.outputs)]
    names += [] if choice.output is None else [(("output",), choice.output)]
    for keys, name in names:
        if outputs and _canonical(name) not in map(_canonical, outputs):
            message = f"{show(name)} is none of the outputs {', '.join(outputs)}"
            hint = "name one of them, or add it to 'outputs'"
            yield Problem(place_of(node, keys), message, hint)


def _name(choice: MetricChoice) -> str:
    return show(choice.metric) if isinstance(choice.metric, str) else "this function"


def _canonical(name: str) -> str:
    return name.removesuffix(":0")
