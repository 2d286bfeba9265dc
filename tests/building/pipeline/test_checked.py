"""JSON that carries a digest of itself."""

from __future__ import annotations

import pytest

from mobileprep.building.pipeline.cache_files import seal, unseal
from mobileprep.core.files import sha256_bytes


@pytest.mark.parametrize("data", [{"b": [1, 2.5, None], "a": "\udcff é"}, [], "", 0, True])
def test_data_comes_back_under_its_key(data: object) -> None:
    assert unseal("key", seal("key", data)) == data
    assert unseal("another key", seal("key", data)) is None


def test_equal_data_has_equal_text() -> None:
    assert seal("key", {"a": 1, "b": 2}) == seal("key", {"b": 2, "a": 1})


def test_any_changed_byte_is_noticed() -> None:
    text = seal("key", {"size": 17, "name": "model"})
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        assert unseal("key", changed) is None, changed
        assert unseal("key", text[:at]) is None, changed


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"null", b'{"data": 1}', b'{"key": "key"}', b"[" * 100_000]
)
def test_other_text_with_its_digest_is_nothing(body: bytes) -> None:
    assert unseal("key", sha256_bytes(body).encode() + b"\n" + body) is None
    assert unseal("key", body) is None
