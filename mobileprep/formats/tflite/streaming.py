"""How to run a .tflite file on a stream: its metadata entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from mobileprep.errors import CorruptFileError

STREAMING: Final = "mobileprep_streaming"
"""Name of the metadata entry."""


class State(Struct, frozen=True):
    """An output to feed to an input of the next call; zeros at the start of a sequence.

    Args:
        input: name of the input.
        output: name of the output.
        dtype: type of the elements, such as ``float32``.
        shape: sizes of both.
    """

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]


class Streaming(Struct, frozen=True):
    """The time steps and states of a file.

    Args:
        steps: number of time steps of each call.
        inputs: the axis of the time steps, for each input that has them.
        outputs: the axis of the time steps, for each output that has them; other outputs have the
            values after the last step of the call.
        states: the states.
    """

    steps: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    states: tuple[State, ...]

    def encoded(self) -> bytes:
        """Return the content of the metadata entry."""
        return msgspec.json.encode(self)


def decode_streaming(content: bytes, file: str) -> Streaming:
    """Decode the metadata entry of a file."""
    try:
        return msgspec.json.decode(content, type=Streaming)
    except msgspec.MsgspecError as error:
        message = f"its entry {STREAMING!r} is not valid: {error}"
        raise CorruptFileError(message, "convert the model again", file) from error
