"""What an earlier build has left in a target's folder, as the manifest there says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mobileprep import __version__
from mobileprep.core.files import file_inside, read_bytes
from mobileprep.errors import ArtifactError, CorruptFileError

MANIFEST: Final = "manifest.json"
TOOL: Final = f"mobileprep {__version__}"
"""What manifests and reports say that they are made by."""
MOST_MANIFEST: Final = 64 << 20
"""No manifest is longer."""


def listed(folder: Path) -> dict[str, str]:
    """The digests of the files that an earlier build left, by name; none without a manifest."""
    try:
        found = manifest(folder)["files"]
        return {str(n): str(f["sha256"]) for n, f in found.items() if n != MANIFEST}
    except (LookupError, TypeError, AttributeError):
        return {}


def manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder tells, whoever wrote it; an empty dict without one."""
    path = folder / MANIFEST
    try:
        if path.is_symlink() or not path.is_file():
            return {}
        found = json.loads(read_bytes(path, limit=MOST_MANIFEST))
    except (CorruptFileError, OSError, ValueError):
        return {}
    except RecursionError:  # of lists in lists
        return {}
    return found if isinstance(found, dict) else {}


def held(folder: Path) -> Iterator[Path]:
    """The files of an earlier build that are still there, the manifest too."""
    for name in (*listed(folder), MANIFEST):
        with contextlib.suppress(ArtifactError, OSError, ValueError):
            path = file_inside(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
