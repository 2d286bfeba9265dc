"""Constants that a step left twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Tensor


def copies_warning(step: str, before: Graph, after: Graph) -> str:
    """What is to be said of constants that a step copied, and the mend; empty where it did not.

    The original folds each Identity of a constant to a second constant of the same value; where
    something else still needs the first, as a NoOp that waits for it, the file has both. Values
    are compared by where they lie in memory, which costs nothing.

    Args:
        step: the step's name.
        before: the graph before the step.
        after: the graph after it.
    """
    if after is before:
        return ""
    had = Counter(id(value) for value in _values(before))
    has = Counter(id(value) for value in _values(after))
    sizes = {id(value): value.nbytes for value in _values(after)}
    more = {key: has[key] - had[key] for key in has if 0 < had[key] < has[key]}
    size = sum(count * sizes[key] for key, count in more.items())
    if not size:
        return ""
    return (
        f"{step}: {sum(more.values())} constants are there twice now, {size:,} bytes more, for it "
        "makes a copy of each that is read through an Identity; put remove_nodes(op=Identity) "
        f"before {step}, or merge_duplicate_nodes behind it"
    )


def _values(graph: Graph) -> Iterator[Tensor]:
    for node in graph:
        value = node.attrs.get("value") if node.op == "Const" else None
        if value is not None and isinstance(value.value, Tensor):
            yield value.value
