"""The names of the original tools, as verbs, with the defaults that differ from ours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from mobileprep.errors import UsageError

# The verb that does what each tool did.
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

# What label_image takes where it is not told.
LABELLED_BY: Final = "tensorflow/examples/label_image/data/inception_v3_2016_08_28_frozen.pb"
LABELLED: Final = "tensorflow/examples/label_image/data/grace_hopper.jpg"
_LABELS: Final = "tensorflow/examples/label_image/data/imagenet_slim_labels.txt"
_INSTEAD: Final = {
    "dot": "draw the graph with a viewer of GraphDefs, such as Netron, or write it as text with "
    "'mobileprep transform ... --output_as_text'",
    "summarize": "'mobileprep init GRAPH' finds inputs and outputs, and 'mobileprep benchmark "
    "--graph=GRAPH --show_flops' counts parameters and types of ops",
}


def verb_of(name: str, verbs: Collection[str]) -> str:
    """The verb that a name stands for: itself, or that of an original tool.

    Args:
        name: as it stands on the command line.
        verbs: the verbs that there are.

    Raises:
        UsageError: the tool is known, and its verb is not there.
    """
    verb = ORIGINALS.get(name, name)
    if verb in _INSTEAD and verb not in verbs:
        message = f"the verb {verb!r}{f', for {name},' if name != verb else ''} is not there yet"
        raise UsageError(message, _INSTEAD[verb])
    return verb


def default_flags(name: str) -> Sequence[str]:
    """The flags that an original tool has by default and our verb has not."""
    if name != "label_image":
        return ()
    # The original needs labels; where its own are not there, the numbers of classes tell enough.
    named = [f"--labels={_LABELS}"] if Path(_LABELS).is_file() else []
    return (f"--graph={LABELLED_BY}", f"--image={LABELLED}", *named)
