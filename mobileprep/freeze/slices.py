"""The part of a tensor that a saver's slice specification names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mobileprep.errors import InvalidGraphError

_EXTENT: Final = re.compile(r"(\d{1,18}),(\d{1,18})\Z")


@dataclass(frozen=True)
class Slice:
    """A rectangle of a tensor: an index for numpy, and the shape that it gives."""

    index: tuple[slice, ...]
    shape: tuple[int, ...]


def parse_slice(spec: str, full: tuple[int, ...], where: str) -> Slice:
    """Read a specification: the full shape, then "start,length" or "-" by dimension.

    "10 4 0,5:-" is the first five rows of a [10, 4] tensor.

    Args:
        spec: as the restore op has it.
        full: the shape of the tensor in the checkpoint.
        where: for messages.

    Raises:
        InvalidGraphError: malformed, or not of a tensor of that shape.
    """
    *dims, extents = spec.split()
    parts = [] if not dims and not full else extents.split(":")
    if [str(d) for d in full] != dims or len(parts) != len(full):
        message = f"the slice {spec!r} is none of a tensor of shape {list(full)}"
        raise InvalidGraphError(message, "graph and checkpoint are of different models", where)
    index = tuple(_extent(p, d, spec, where) for p, d in zip(parts, full, strict=True))
    return Slice(index, tuple(s.stop - s.start for s in index))


def _extent(part: str, dim: int, spec: str, where: str) -> slice:
    if part == "-":
        return slice(0, dim)
    found = _EXTENT.match(part)
    start, length = (int(found[1]), int(found[2])) if found else (0, -1)
    if not found or start + length > dim:
        message = f"the slice {spec!r} does not lie within its tensor"
        raise InvalidGraphError(message, "export the graph again", where)
    return slice(start, start + length)
