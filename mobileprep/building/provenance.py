"""What an output folder was made from, as an in-toto statement with SLSA provenance.

Statement: https://in-toto.io/Statement/v1; predicate: https://slsa.dev/provenance/v1. It says what
the folder's manifest says, holds no time and no place, and so is the same for the same inputs.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mobileprep.building.pipeline.publish import MANIFEST, Manifest, read_manifest
from mobileprep.core.files import write_text
from mobileprep.errors import UsageError

BUILD_TYPE: Final = "urn:mobileprep:build:v1"
BUILDER: Final = "urn:mobileprep:builder:unnamed"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~%]+\Z")
_LONGEST_URI: Final = 2048
_ENDING: Final = ".provenance.json"


def provenance_path(folder: Path) -> Path:
    """Where the statement on a folder lies: beside it, as it is on all that ships from there."""
    return folder.with_name(f"{folder.name}{_ENDING}")


def stated_folder(path: Path) -> Path | None:
    """The folder that a file is the statement on, by its name; None for other files."""
    name = path.name.removesuffix(_ENDING)
    return path.with_name(name) if name and name != path.name else None


def write_provenance(folder: Path, builder: str = BUILDER) -> Path:
    """Write the statement on a folder that was just built; its path."""
    check_builder(builder)
    path = provenance_path(folder)
    data = statement(read_manifest(folder), builder)
    write_text(path, json.dumps(data, sort_keys=True, indent=1) + "\n", follow=False)
    return path


def remove_provenance(folder: Path) -> bool:
    """Remove the statement on what a folder held before; whether there was one."""
    with contextlib.suppress(OSError):
        provenance_path(folder).unlink()
        return True
    return False


def check_builder(builder: str) -> None:
    """Make sure that a builder is named by a URI."""
    if not _URI.match(builder) or len(builder) > _LONGEST_URI:
        message = f"the builder {builder[:80]!r} is no URI"
        raise UsageError(message, "name it as in https://ci.example.com/mobile-models")


def statement(manifest: Manifest, builder: str) -> dict[str, Any]:
    """The statement on the files that a manifest lists, and on the manifest."""
    tool, _, version = manifest.tool.rpartition(" ")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": _resources({**manifest.files, MANIFEST: manifest.sha256}),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "recipe": manifest.recipe,
                    "target": manifest.target,
                    "settings": manifest.settings,
                },
                "resolvedDependencies": _resources(manifest.sources),
            },
            "runDetails": {"builder": {"id": builder, "version": {tool: version}}},
        },
    }


def _resources(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)]
