"""Stage fingerprints, and the differences between two of them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeGuard

from msgspec import Struct

from mobileprep import __version__
from mobileprep.building.plan.spec import Section, Stage, StageSpec
from mobileprep.core.files import canonical

Components = dict[str, Any]


def components(stage: Stage, digests: Mapping[str, str]) -> Components:
    """Return everything that a stage's outputs depend on, as JSON-serializable data.

    Args:
        digests: SHA-256 of each input, by ``slot`` or ``slot:name``.
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
    """Return the SHA-256 of the canonical JSON of a stage's components, in hexadecimal."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def digest_text(digest: str) -> str:
    """Shorten a digest for messages. Manifests contain the full digest."""
    return digest[:12]


LEVEL: Final = 1
"""zlib compression level. Higher levels save only a few percent on weights."""


def compressor() -> str:
    """Return the compressor and its version for reports."""
    from zlib import ZLIB_RUNTIME_VERSION

    return f"deflate by zlib {ZLIB_RUNTIME_VERSION} at level {LEVEL}"


_UNKNOWN: Final = "unknown"


_MODULES: Final = {"numpy": "numpy", "protobuf": "google.protobuf"}


def computing_libraries() -> dict[str, str]:
    """Return the versions of the libraries that compute and write build outputs, by name."""
    return {name: library_version(module, name) for name, module in _MODULES.items()}


def library_version(module: str, distribution: str) -> str:
    """Return the version of a library, or an empty string if it is not installed."""
    spec = importlib.util.find_spec(module)
    # A directory on the path that happens to have the name has no origin.
    if spec is None or spec.origin is None:
        return ""
    file = Path(spec.origin)
    depth = module.count(".") + bool(spec.submodule_search_locations)
    return _version_in(file.parents[depth], distribution) or _version(distribution)


def _version_in(folder: Path, distribution: str) -> str:
    """Read the version from the name of the ``.dist-info`` directory next to the module."""
    begin, end = f"{distribution.replace('-', '_')}-", ".dist-info"
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a tenth of the time of Path objects
        if name.startswith(begin) and name.endswith(end):
            return name.removeprefix(begin).removesuffix(end)
    return ""


def _version(distribution: str) -> str:
    """Read the version from the metadata. ``importlib.metadata`` takes 50 ms to import."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return _UNKNOWN


What: TypeAlias = Literal["package", "stage", "parameter", "input"]


_MOST_SHOWN: Final = 60


# Number of equal characters to show before the first difference.
_SHOWN_BEFORE: Final = 20


# Recipe sections of parameters that have another name.
_SECTIONS: Final[Mapping[Section, tuple[str, ...]]] = {
    "transforms": ("transform", "options", "ignore_errors", "earlier", "plugin", "named"),
    "source": ("kind", "graph", "checkpoint", "saver", "assets", "tags", "signature"),
    "validation": (
        *("metrics", "functions", "data", "reading", "samples", "seed", "batch", "strict"),
        *("names", "limits"),
    ),
    "registration": ("allow",),
    "ops": ("op_sources",),
    "calibration": ("range_file",),
    "check": ("count", "section"),
}


class Change(Struct, frozen=True):
    """A difference between the components of two runs of a stage.

    Args:
        what: kind of the component: the package's version, the stage's version, a parameter, or an
            input.
        key: parameter name, with dots for nested ones and indices from 0 for lists; for an input,
            its slot and file name.
        before: previous value, or SHA-256 of an input; None if it did not exist.
        after: current value, or SHA-256 of an input; None if it no longer exists.
        place: location in the recipe, or an empty string if unknown.
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


def changes_of(spec: StageSpec, old: Components, new: Components) -> tuple[Change, ...]:
    """Return the differences between two runs of a stage."""
    changes = []
    if old["package"] != new["package"]:
        changes.append(Change("package", "package", old["package"], new["package"]))
    if old["version"] != new["version"]:
        changes.append(Change("stage", spec.kind, old["version"], new["version"]))
    for key, before, after in _differing("", old["parameters"], new["parameters"]):
        changes.append(Change("parameter", key, before, after, _place(spec, key)))
    for key, before, after in _differing("", old["inputs"], new["inputs"]):
        changes.append(Change("input", key, before, after, _place(spec, key)))
    return tuple(changes)


def _differing(
    prefix: str, old: Mapping[Any, Any], new: Mapping[Any, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values differ, with both values. Recurses into nested mappings."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing(f"{prefix}{key}.", before, after)
        elif _has_mappings(before) and _has_mappings(after) and len(before) == len(after):
            numbered = (dict(enumerate(items)) for items in (before, after))
            yield from _differing(f"{prefix}{key}.", *numbered)
        elif canonical(before) != canonical(after):  # same comparison as fingerprints
            yield f"{prefix}{key}", before, after


def _has_mappings(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    """Return whether a value is a list of mappings only. Other lists are shown as a whole."""
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _place(spec: StageSpec, key: str) -> str:
    name = key.partition(".")[0].partition(":")[0]
    places: Mapping[str, str] = {str(section): place for section, place in spec.places.items()}
    section = next((section for section, names in _SECTIONS.items() if name in names), "")
    return places.get(name) or places.get(section, "")


def _digest(sha256: object) -> str:
    return digest_text(sha256) if isinstance(sha256, str) else "none"


def _became(before: object, after: object) -> str:
    """Format both values. If both are shortened, keep the first difference visible."""
    texts = ["nothing" if value is None else canonical(value) for value in (before, after)]
    common = len(os.path.commonprefix(texts))  # noqa: RUF071 - not of paths
    are_long = min(map(len, texts)) > _MOST_SHOWN
    start = max(common - _SHOWN_BEFORE, 0) if are_long else 0
    return " became ".join(_cut(text, start) for text in texts)


def _cut(text: str, start: int) -> str:
    rest = f"...{text[start:]}" if start else text
    return rest if len(rest) <= _MOST_SHOWN else f"{rest[: _MOST_SHOWN - 3]}..."
