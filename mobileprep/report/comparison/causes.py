"""What two builds were made from: the keys of their recipes, their files, the tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mobileprep.report.collect import Report
from mobileprep.report.comparison.chains import aligned, labels
from mobileprep.report.comparison.model import Cause

Place: TypeAlias = Callable[[Sequence[str | int]], str]
"""Where a key stands in the recipe: of ``("transforms", 3)`` the third step, from 0."""

_CHAIN: Final = "transforms"


def causes_of(old: Report, new: Report, place: Place) -> Iterator[tuple[Cause, int | None]]:
    """What is another, and for a step of the chain its position in the new one.

    Args:
        old: the earlier report.
        new: the report now.
        place: tells where keys stand.
    """
    if old.tool != new.tool:
        yield Cause("tool", "mobileprep", old.tool or None, new.tool or None), None
    for cause in _settings(old.settings, new.settings, place):
        yield cause, None
    yield from _steps(_chain(old), _chain(new), place)
    for name in sorted({*old.sources, *new.sources}):
        before, after = old.sources.get(name), new.sources.get(name)
        if before != after:
            yield Cause("source", name, before, after), None


def _settings(old: Mapping[str, Any], new: Mapping[str, Any], place: Place) -> Iterator[Cause]:
    without = ({k: v for k, v in settings.items() if k != _CHAIN} for settings in (old, new))
    for path, before, after in _differing((), *without):
        yield Cause("setting", ".".join(path), before, after, place(path))


def _steps(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], place: Place
) -> Iterator[tuple[Cause, int | None]]:
    names = [[str(step.get("name")) for step in chain] for chain in (old, new)]
    old_labels, new_labels = map(labels, names)
    for i, j in aligned(*names):
        if i is not None and j is not None:
            where = place((_CHAIN, j))
            for path, before, after in _differing((), _options(old[i]), _options(new[j])):
                key = ".".join((_CHAIN, new_labels[j], *path))
                yield Cause("setting", key, before, after, where), j
        elif i is not None:
            yield Cause("setting", f"{_CHAIN}.{old_labels[i]}", _options(old[i]), None), None
        elif j is not None:
            where = place((_CHAIN, j))
            key = f"{_CHAIN}.{new_labels[j]}"
            yield Cause("setting", key, None, _options(new[j]), where), j


def _chain(report: Report) -> list[Mapping[str, Any]]:
    steps = report.settings.get(_CHAIN)
    return [s for s in steps if isinstance(s, Mapping)] if isinstance(steps, list | tuple) else []


def _options(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step's options beside what else is said of it, as a recipe has them."""
    options = step.get("options")
    named = dict(options) if isinstance(options, Mapping) else {}
    # Both are as good as not there, and most steps have them so.
    rest = {k: v for k, v in step.items() if k not in ("name", "options") and v}
    return {**named, **rest}


def _differing(
    path: tuple[str, ...], old: object, new: object
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The keys with other values, those of nested mappings and of named things one by one."""
    before, after = _named(old), _named(new)
    if before is None or after is None:
        if old != new:
            yield path, old, new
        return
    for key in dict.fromkeys([*after, *before]):
        yield from _differing((*path, key), before.get(key), after.get(key))


def _named(value: object) -> Mapping[str, Any] | None:
    """A mapping, or a list of things that have names as one; else None."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple) and value and all(_is_named(item) for item in value):
        by_name = {item["name"]: item for item in value}
        return by_name if len(by_name) == len(value) else None
    return None


def _is_named(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)
