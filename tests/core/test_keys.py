"""Encryption keys from environment variables."""

from __future__ import annotations

import base64

import pytest

from mobileprep.core.keys import Key, key_from_environment
from mobileprep.errors import RecipeError

SECRET = bytes(range(100, 132))


@pytest.mark.parametrize(
    "spelling",
    [SECRET.hex(), SECRET.hex().upper(), f" {SECRET.hex()}\n", base64.b64encode(SECRET).decode()],
)
def test_key_is_read_from_hex_or_base64(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", spelling)
    assert key_from_environment("MODEL_KEY") == Key(SECRET)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "MODEL_KEY, which has the key, is not set"),
        ("  ", "MODEL_KEY, which has the key, is not set"),
        ("swordfish", "MODEL_KEY is not a key of 32 bytes"),
        (SECRET.hex()[:-2], "MODEL_KEY is not a key of 32 bytes"),
        (SECRET.hex() + "00", "MODEL_KEY is not a key of 32 bytes"),
        ("\u00e9" * 44, "MODEL_KEY is not a key of 32 bytes"),
    ],
)
def test_invalid_key_is_refused_and_not_printed(
    secret: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODEL_KEY", raising=False)
    if secret is not None:
        monkeypatch.setenv("MODEL_KEY", secret)
    with pytest.raises(RecipeError, match=message) as error:
        key_from_environment("MODEL_KEY", "recipe.yaml:4:9")
    assert error.value.where == "recipe.yaml:4:9"
    assert not (secret or "").strip() or secret not in f"{error.value} {error.value.hint}"


def test_repr_and_id_do_not_expose_the_key() -> None:
    key = Key(SECRET)
    assert SECRET.hex() not in repr(key) and repr(SECRET) not in repr(key)
    derived = {key.derived(p, c) for p in ("model", "nonce") for c in (b"", b"a")}
    assert len(derived) == 4 and SECRET not in derived
    assert key.id == key.derived("key id")[:16]
    assert key.id != Key(SECRET[::-1]).id


def test_keys_are_derived_by_rfc_5869() -> None:
    hkdf = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
    hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
    reference = hkdf.HKDFExpand(hashes.SHA256(), 32, b"mobileprep 1 model\0context")
    assert Key(SECRET).derived("model", b"context") == reference.derive(SECRET)
