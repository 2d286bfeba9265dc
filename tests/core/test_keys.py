"""Keys from the environment."""

from __future__ import annotations

import base64

import pytest

from mobileprep.core.keys import Key, key_from_environment
from mobileprep.errors import RecipeError

SECRET = bytes(range(100, 132))


@pytest.mark.parametrize(
    "written",
    [SECRET.hex(), SECRET.hex().upper(), f" {SECRET.hex()}\n", base64.b64encode(SECRET).decode()],
)
def test_a_key_is_32_bytes_in_either_spelling(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", written)
    assert key_from_environment("MODEL_KEY") == Key(SECRET)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (None, "MODEL_KEY, which has the key, is not set"),
        ("  ", "MODEL_KEY, which has the key, is not set"),
        ("swordfish", "MODEL_KEY is not a key of 32 bytes"),
        (SECRET.hex()[:-2], "MODEL_KEY is not a key of 32 bytes"),
        (SECRET.hex() + "00", "MODEL_KEY is not a key of 32 bytes"),
        ("\u00e9" * 44, "MODEL_KEY is not a key of 32 bytes"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(
    written: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODEL_KEY", raising=False)
    if written is not None:
        monkeypatch.setenv("MODEL_KEY", written)
    with pytest.raises(RecipeError, match=message) as failure:
        key_from_environment("MODEL_KEY", "recipe.yaml:4:9")
    assert failure.value.where == "recipe.yaml:4:9"
    assert not (written or "").strip() or written not in f"{failure.value} {failure.value.hint}"


def test_a_key_shows_nothing_of_itself() -> None:
    key = Key(SECRET)
    assert SECRET.hex() not in repr(key) and repr(SECRET) not in repr(key)
    derived = {key.derived(p, c) for p in ("model", "nonce") for c in (b"", b"a")}
    assert len(derived) == 4 and SECRET not in derived
    assert key.id == key.derived("key id")[:16]
    assert key.id != Key(SECRET[::-1]).id


def test_keys_are_derived_as_rfc_5869_has_it() -> None:
    hkdf = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
    hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
    known = hkdf.HKDFExpand(hashes.SHA256(), 32, b"mobileprep 1 model\0context")
    assert Key(SECRET).derived("model", b"context") == known.derive(SECRET)
