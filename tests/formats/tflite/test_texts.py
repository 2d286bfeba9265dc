"""Buffers of string tensors."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.tflite.records import fault_of_texts, text_bytes


def test_string_buffer_layout() -> None:
    data = text_bytes([b"a", b"", b"bc\0"])
    assert np.frombuffer(data, "<i4", 5).tolist() == [3, 20, 21, 21, 24]
    assert data[20:] == b"abc\0"
    assert fault_of_texts(data, 3) == ""


def numbers(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\1\0\0\0", "has 4 bytes, too few for strings"),
        (numbers(2, 16, 16), "has 2 strings, but its shape has 1"),
        (numbers(1, 12), "has 8 bytes, too few for the places of 1 strings"),
        (numbers(1, 8, 12), "has strings outside of its buffer"),
        (numbers(1, 12, 13), "has strings outside of its buffer"),
        (numbers(1, 12, -1), "has strings outside of its buffer"),
    ],
)
def test_invalid_string_buffers_are_reported(content: bytes, fault: str) -> None:
    assert fault_of_texts(content, 1) == fault
