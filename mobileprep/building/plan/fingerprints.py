"""Fingerprints: one digest over everything that a stage's outputs depend on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mobileprep import __version__
from mobileprep.building.plan.spec import Stage
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
