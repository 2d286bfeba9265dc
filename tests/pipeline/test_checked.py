"""JSON that carries a digest of itself."""

from __future__ import annotations

import json

import pytest

from mobileprep.pipeline.checked import seal, unseal


@pytest.mark.parametrize("data", [{"b": [1, 2.5, None], "a": "\udcff é"}, [], "", 0, True])
def test_data_comes_back_under_its_key(data: object) -> None:
    assert unseal("key", seal("key", data).encode()) == data
    assert unseal("another key", seal("key", data).encode()) is None


def test_equal_data_has_equal_text() -> None:
    assert seal("key", {"a": 1, "b": 2}) == seal("key", {"b": 2, "a": 1})


def test_any_changed_byte_is_noticed() -> None:
    text = seal("key", {"size": 17, "name": "model"}).encode()
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        assert unseal("key", changed) is None, changed


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"3", b"null", b'{"data": 1}', b"[" * 100_000, b"\xff\xfe"]
)
def test_other_text_is_nothing(text: bytes) -> None:
    assert unseal("key", text) is None


def test_text_without_a_digest_is_nothing() -> None:
    found = json.loads(seal("key", 1))
    del found["sha256"]
    assert unseal("key", json.dumps(found).encode()) is None
