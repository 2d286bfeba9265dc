"""Names of the original tools, their verbs, and their default flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

# The verb that replaces each tool.
ORIGINALS: Final = {
    "benchmark_model": "benchmark",
    "compare_graphs": "compare",
    "convert_graphdef_memmapped_format": "memmap",
    "freeze_graph": "freeze",
    "graph_to_dot": "dot",
    "label_image": "run",
    "print_selective_registration_header": "header",
    "summarize_graph": "summarize",
    "transform_graph": "transform",
}
DROP_INS: Final = frozenset(ORIGINALS.values())

# Defaults of label_image.
LABELED_BY: Final = "tensorflow/examples/label_image/data/inception_v3_2016_08_28_frozen.pb"
LABELED: Final = "tensorflow/examples/label_image/data/grace_hopper.jpg"
_LABELS: Final = "tensorflow/examples/label_image/data/imagenet_slim_labels.txt"


def verb_of(name: str) -> str:
    """Return the verb of a name, which may be the name of an original tool."""
    return ORIGINALS.get(name, name)


def default_flags(name: str) -> Sequence[str]:
    """Return the flags that an original tool sets by default and its verb does not."""
    if name == "summarize_graph":
        return ("--details=false",)
    if name != "label_image":
        return ()
    # The original requires labels; without its file, class numbers are printed.
    named = [f"--labels={_LABELS}"] if Path(_LABELS).is_file() else []
    return (f"--graph={LABELED_BY}", f"--image={LABELED}", *named)
