"""Which part of a tensor each piece of a partitioned variable is, told by names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.freezing.restore import SavedValue
from mobileprep.freezing.trace import variables_of
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph

_PART: Final = re.compile(r"(.+)/part_(\d{1,6})\Z")


def slices_by_name(checkpoint: Checkpoint, graph: Graph) -> dict[str, SavedValue]:
    """For "NAME/part_0", "NAME/part_1", ... the slices of the tensor NAME that they hold.

    Pieces that do not make up that tensor, side by side along one axis, tell nothing.
    """
    parts: dict[str, dict[int, tuple[str, TensorShape]]] = {}
    for node in variables_of(graph):
        found = _PART.match(node.name)
        if found is not None and found[1] in checkpoint and node.name not in checkpoint:
            numbered = parts.setdefault(found[1], {})
            numbered[int(found[2])] = node.name, node.attr_shape("shape")
    sources: dict[str, SavedValue] = {}
    for name, numbered in parts.items():
        sources.update(_slices(name, numbered, checkpoint.entry(name).shape))
    return sources


def _slices(
    name: str, numbered: Mapping[int, tuple[str, TensorShape]], full: Sequence[int]
) -> dict[str, SavedValue]:
    if sorted(numbered) != list(range(len(numbered))):
        return {}
    names = [numbered[i][0] for i in range(len(numbered))]
    shapes = [shape for i in range(len(numbered)) if (shape := numbered[i][1]) is not None]
    axis = _axis(shapes, full) if len(shapes) == len(names) else None
    if axis is None:
        return {}
    found: dict[str, SavedValue] = {}
    start = 0
    for node, shape in zip(names, shapes, strict=True):
        extents = [f"0,{size}" for size in full]
        extents[axis] = f"{start},{shape[axis]}"
        spec = " ".join(map(str, full))
        found[node] = SavedValue(name, f"{spec} {':'.join(extents)}")
        start += shape[axis]
    return found


def _axis(shapes: Sequence[tuple[int, ...]], full: Sequence[int]) -> int | None:
    """The axis along which the pieces lie side by side, or None."""
    for axis, size in enumerate(full):
        rest = [(*full[:axis], *full[axis + 1 :])] * len(shapes)
        if [(*s[:axis], *s[axis + 1 :]) for s in shapes] != rest:
            continue
        if all(len(s) == len(full) for s in shapes) and sum(s[axis] for s in shapes) == size:
            return axis
    return None
