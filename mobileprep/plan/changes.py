"""What has changed between two runs of a stage, down to the key and the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal, TypeAlias

from mobileprep.frozen import dataclass
from mobileprep.plan.canonical import canonical
from mobileprep.plan.fingerprints import Components, digest_text
from mobileprep.plan.spec import Section, StageSpec

What: TypeAlias = Literal["package", "stage", "parameter", "input"]

_MOST_SHOWN: Final = 60
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
    "tags": "source",
    "signature": "source",
    "metrics": "validation",
    "functions": "validation",
    "range_file": "calibration",
    "count": "check",
    "section": "check",
}


@dataclass(frozen=True)
class Change:
    """One thing that a stage was told, or has read, and that is another now.

    Args:
        what: the package's version, the stage's, a parameter or an input.
        key: the parameter, nested ones with dots; of an input its slot, and the file's name.
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
        return f"{self.key}: {_short(self.before)} became {_short(self.after)}{place}"

    def as_data(self) -> dict[str, Any]:
        """The change as JSON takes it."""
        return asdict(self)


def changes_of(spec: StageSpec, old: Components, new: Components) -> tuple[Change, ...]:
    """What differs between two runs of a stage.

    Args:
        spec: the stage.
        old: what an earlier run was made of.
        new: what a run would be made of now.

    Raises:
        KeyError, TypeError, AttributeError: ``old`` is nothing that a run is made of.
    """
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
    prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """The keys with other values, those of nested mappings one by one."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing(f"{prefix}{key}.", before, after)
        elif before != after:
            yield f"{prefix}{key}", before, after


def _place(spec: StageSpec, key: str) -> str:
    name = key.partition(".")[0].partition(":")[0]
    known: Mapping[str, str] = {str(section): place for section, place in spec.places.items()}
    return known.get(name) or known.get(_SECTIONS.get(name, ""), "")


def _digest(sha256: object) -> str:
    return digest_text(sha256) if isinstance(sha256, str) else "none"


def _short(value: object) -> str:
    text = "nothing" if value is None else canonical(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
