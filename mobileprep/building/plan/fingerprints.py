"""Fingerprints of stages, and what changed between two of them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeGuard

from msgspec import Struct, structs

from mobileprep import __version__
from mobileprep.building.plan.spec import Section, Stage, StageSpec
from mobileprep.core.files import canonical

Components = dict[str, Any]


def components(stage: Stage, digests: Mapping[str, str]) -> Components:
    """Everything that a stage's outputs depend on, as JSON-able data.

    Args:
        digests: the sha256 of each input, by ``slot`` or ``slot:name``.
    """
    return {
        "package": __version__,
        "stage": stage.stage_name,
        "version": stage.stage_version,
        "parameters": stage.parameters,
        "inputs": dict(digests),
        "outputs": list(stage.output_files),
    }


def fingerprint(parts: Components) -> str:
    """The full sha256 of the canonical JSON of a stage's components."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def digest_text(digest: str) -> str:
    """The beginning of a digest, for people to tell files apart by; manifests have the whole."""
    return digest[:12]


LEVEL: Final = 1
"""Level of deflate in zlib: higher levels gain at most some percent on weights."""


def compressor() -> str:
    """The compressor with its version, as reports name it."""
    from zlib import ZLIB_RUNTIME_VERSION

    return f"deflate by zlib {ZLIB_RUNTIME_VERSION} at level {LEVEL}"


_UNKNOWN: Final = "unknown"


_MODULES: Final = {"numpy": "numpy", "protobuf": "google.protobuf"}


def computing_libraries() -> dict[str, str]:
    """The versions of the libraries that compute and write what is built, by name."""
    return {name: library_version(module, name) for name, module in _MODULES.items()}


def library_version(module: str, distribution: str) -> str:
    """The version of an installed library; empty where it is not installed."""
    found = importlib.util.find_spec(module)
    # A folder of that name that happens to be in the path has no origin.
    if found is None or found.origin is None:
        return ""
    file = Path(found.origin)
    depth = module.count(".") + bool(found.submodule_search_locations)
    return _version_in(file.parents[depth], distribution) or _version(distribution)


def _version_in(folder: Path, distribution: str) -> str:
    """The version as the name of the folder of metadata has it, which lies beside the module."""
    begin, end = f"{distribution.replace('-', '_')}-", ".dist-info"
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a tenth of the time of Path objects
        if name.startswith(begin) and name.endswith(end):
            return name.removeprefix(begin).removesuffix(end)
    return ""


def _version(distribution: str) -> str:
    """The version as the metadata has it, which takes 50 ms to import."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return _UNKNOWN


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
