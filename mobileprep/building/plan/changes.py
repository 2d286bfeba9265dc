"""What has changed between two runs of a stage, down to the key and the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeGuard

from msgspec import Struct, structs

from mobileprep.building.plan.fingerprints import Components, digest_text
from mobileprep.building.plan.spec import Section, StageSpec
from mobileprep.core.files import canonical

What: TypeAlias = Literal["package", "stage", "parameter", "input"]

_MOST_SHOWN: Final = 60
# So many characters that are the same, before the first that is not.
_SHOWN_BEFORE: Final = 20
# The sections of a recipe that parameters of other names come from.
_SECTIONS: Final[Mapping[str, Section]] = {
    "transform": "transforms",
    "options": "transforms",
    "ignore_errors": "transforms",
    "earlier": "transforms",
    "plugin": "transforms",
    "named": "transforms",
    "kind": "source",
    "graph": "source",
    "checkpoint": "source",
    "saver": "source",
    "assets": "source",
    "tags": "source",
    "signature": "source",
    "metrics": "validation",
    "functions": "validation",
    "allow": "registration",
    "op_sources": "ops",
    "data": "validation",
    "reading": "validation",
    "samples": "validation",
    "seed": "validation",
    "batch": "validation",
    "strict": "validation",
    "range_file": "calibration",
    "count": "check",
    "section": "check",
}


class Change(Struct, frozen=True):
    """One thing that a stage was told, or has read, and that is another now.

    Args:
        what: the package's version, the stage's, a parameter or an input.
        key: the parameter, nested ones with dots, what is in a list by its number from 0; of an
            input its slot, and the file's name.
        before: what it was; of an input its sha256; None where there was none.
        after: what it is.
        place: where in the recipe it stands, empty where that is not known.
    """

    what: What
    key: str
    before: Any
    after: Any
    place: str = ""

    def __str__(self) -> str:
        if self.what == "package":
            return f"mobileprep {self.before} became {self.after}"
        if self.what == "stage":
            return "the stage itself has changed"
        if self.what == "input":
            digests = " became ".join(map(_digest, (self.before, self.after)))
            return f"input {self.key} has changed: {digests}"
        place = f" ({self.place})" if self.place else ""
        return f"{self.key}: {_became(self.before, self.after)}{place}"

    def as_data(self) -> dict[str, Any]:
        """The change as JSON takes it."""
        return structs.asdict(self)


def changes_of(spec: StageSpec, old: Components, new: Components) -> tuple[Change, ...]:
    """What differs between two runs of a stage."""
    found = []
    if old["package"] != new["package"]:
        found.append(Change("package", "package", old["package"], new["package"]))
    if old["version"] != new["version"]:
        found.append(Change("stage", spec.kind, old["version"], new["version"]))
    for key, before, after in _differing("", old["parameters"], new["parameters"]):
        found.append(Change("parameter", key, before, after, _place(spec, key)))
    for key, before, after in _differing("", old["inputs"], new["inputs"]):
        found.append(Change("input", key, before, after, _place(spec, key)))
    return tuple(found)


def _differing(
    prefix: str, old: Mapping[Any, Any], new: Mapping[Any, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """The keys with other values, those of what is nested one by one."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing(f"{prefix}{key}.", before, after)
        elif _has_mappings(before) and _has_mappings(after) and len(before) == len(after):
            numbered = (dict(enumerate(items)) for items in (before, after))
            yield from _differing(f"{prefix}{key}.", *numbered)
        elif canonical(before) != canonical(after):  # as fingerprints see it
            yield f"{prefix}{key}", before, after


def _has_mappings(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    """Whether it is a list of nothing else: one of plain values is read more easily as a whole."""
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _place(spec: StageSpec, key: str) -> str:
    name = key.partition(".")[0].partition(":")[0]
    known: Mapping[str, str] = {str(section): place for section, place in spec.places.items()}
    return known.get(name) or known.get(_SECTIONS.get(name, ""), "")


def _digest(sha256: object) -> str:
    return digest_text(sha256) if isinstance(sha256, str) else "none"


def _became(before: object, after: object) -> str:
    """Both values; where both are cut, what is shown has the first difference in it."""
    texts = ["nothing" if value is None else canonical(value) for value in (before, after)]
    common = len(os.path.commonprefix(texts))  # noqa: RUF071 - not of paths
    are_long = min(map(len, texts)) > _MOST_SHOWN
    start = max(common - _SHOWN_BEFORE, 0) if are_long else 0
    return " became ".join(_cut(text, start) for text in texts)


def _cut(text: str, start: int) -> str:
    rest = f"...{text[start:]}" if start else text
    return rest if len(rest) <= _MOST_SHOWN else f"{rest[: _MOST_SHOWN - 3]}..."
