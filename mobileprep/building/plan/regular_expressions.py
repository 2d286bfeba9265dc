"""What runs regular expressions, RE2 or Python's engine: part of what decides results.

TensorFlow's own engine is RE2. Without it Python's runs what it can, and the two differ on some
texts. Which one there is must be known before a plan is made, and cheaply: nothing is imported.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from mobileprep.building.plan.fingerprints import library_version
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
    version = library_version(_MODULE, _DISTRIBUTION)
    return f"RE2 ({_DISTRIBUTION} {version})" if version else PYTHON
