"""What runs regular expressions, RE2 or Python's engine: part of what decides results.

TensorFlow's own engine is RE2. Without it Python's runs what it can, and the two differ on some
texts. Which one there is must be known before a plan is made, and cheaply: nothing is imported.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Final

from mobileprep.recipe.model import Step

PYTHON: Final = "Python"
_MODULE: Final = "re2"
_DISTRIBUTION: Final = "google-re2"
# The package's own transforms that run kernels of any op; a test finds them by running all.
COMPUTING: Final = frozenset(
    {"fold_constants", "fuse_remote_graph", "optimize", "place_remote_graph_arguments"}
)
# Those that run regular expressions where an option is given.
_MATCHING: Final = {"quantize_nodes": "rule"}


def step_regex_engine(step: Step) -> str:
    """What a transform may run regular expressions by; empty for one that computes no nodes.

    What a transform from outside the package does is not known, so it counts as one that does.
    """
    matches = _MATCHING.get(step.name) in step.options
    runs_any = step.plugin is not None or step.name in COMPUTING or matches
    return regex_engine() if runs_any else ""


@cache
def regex_engine() -> str:
    """The engine for regular expressions, RE2 with its version."""
    found = importlib.util.find_spec(_MODULE)
    # A folder of that name that happens to be in the path has no origin.
    if found is None or found.origin is None:
        return PYTHON
    module = Path(found.origin)
    folder = module.parent.parent if found.submodule_search_locations else module.parent
    return f"RE2 ({_DISTRIBUTION} {_version_in(folder) or _version()})"


def _version_in(folder: Path) -> str:
    """The version as the name of the folder of metadata has it, which lies beside the module."""
    begin, end = f"{_DISTRIBUTION.replace('-', '_')}-", ".dist-info"
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a tenth of the time of Path objects
        if name.startswith(begin) and name.endswith(end):
            return name.removeprefix(begin).removesuffix(end)
    return ""


def _version() -> str:
    """The version as the metadata has it, which takes 50 ms to import."""
    from importlib import metadata

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
