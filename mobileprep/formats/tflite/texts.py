"""The elements of a tensor of texts as a buffer has them.

Source: ``string_util.h`` of TensorFlow Lite: their count, where each begins and the last ends, from
the beginning of the buffer, all in int32; then their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError

_MOST_BYTES: Final = (1 << 31) - 1
_WIDTH: Final = 4


def text_bytes(texts: Sequence[bytes]) -> bytes:
    """The buffer of some texts."""
    lengths = [_WIDTH * (len(texts) + 2), *map(len, texts)]
    if sum(lengths) > _MOST_BYTES:
        message = f"texts of {sum(lengths)} bytes do not fit a tensor of a .tflite file"
        raise UnsupportedError(message, "make the table smaller")
    head = np.array([len(texts), *np.cumsum(lengths)], "<i4")
    return head.tobytes() + b"".join(texts)


def fault_of_texts(content: bytes | memoryview, count: int) -> str:
    """What is wrong with a buffer of so many texts, in a part of a sentence; empty for nothing."""
    if len(content) < 2 * _WIDTH:
        return f"has {len(content)} bytes, too few for texts"
    told = int(np.frombuffer(content, "<i4", 1)[0])
    if told != count:
        return f"has {told} texts, and its shape {count}"
    begin = _WIDTH * (count + 2)
    if begin > len(content):
        return f"has {len(content)} bytes, too few for the places of {count} texts"
    places = np.frombuffer(content, "<i4", count + 1, _WIDTH)
    if places[0] < begin or (places[1:] < places[:-1]).any() or places[-1] > len(content):
        return "has texts that lie outside of it"
    return ""
