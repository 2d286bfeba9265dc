"""Encrypted models; the reference tests decrypt them in apps."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.core.keys import Key
from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.memmapped import HEADER_BYTES, OVERHEAD, is_encrypted, read_header
from mobileprep.targets import memmapped
from mobileprep.targets.memmapped import decrypt, encrypt

pytest.importorskip("cryptography")

KEY = Key(bytes(range(32)))
OTHER = Key(bytes(range(1, 33)))


@given(st.binary(max_size=300))
def test_encryption_round_trip(content: bytes) -> None:
    data = encrypt(content, KEY)
    assert is_encrypted(data) and len(data) == len(content) + OVERHEAD
    assert decrypt(data, KEY, "m.pb.enc") == content
    assert data == encrypt(content, KEY)


def test_file_follows_the_documented_format() -> None:
    data = encrypt(b"a model", KEY)
    assert data[:24].hex() == "894d50454e430d0a01000000480000000700000000000000"
    assert data[24:40] == KEY.id
    assert data.hex()[80:] == encrypt(b"a model", KEY).hex()[80:]
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    synthetic = data[40:72]
    cipher = AESGCM(KEY.derived("model", synthetic))
    nonce = KEY.derived("nonce", synthetic)[:12]
    assert cipher.decrypt(nonce, data[72:], data[:72]) == b"a model"


def test_contents_and_keys_have_distinct_nonces() -> None:
    files = [encrypt(c, k) for c in (b"", b"a", b"b", b"aa") for k in (KEY, OTHER)]
    assert len({read_header(data, "m").synthetic for data in files}) == len(files)


@pytest.mark.parametrize("at", [0, 8, 12, 16, 24, 40, 71, HEADER_BYTES, HEADER_BYTES + 6, -1])
def test_flipped_bit_is_refused(at: int) -> None:
    data = bytearray(encrypt(b"a model", KEY))
    data[at] ^= 4
    with pytest.raises((CorruptFileError, UnsupportedError)) as failure:
        decrypt(bytes(data), KEY, "m.pb.enc")
    assert failure.value.where == "m.pb.enc"


@pytest.mark.parametrize("length", [0, 7, 8, HEADER_BYTES, OVERHEAD - 1, OVERHEAD, OVERHEAD + 6])
def test_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(CorruptFileError, match=r"not an encrypted model|ends after|bytes, but"):
        decrypt(encrypt(b"a model", KEY)[:length], KEY, "m.pb.enc")


def test_wrong_key_is_reported() -> None:
    with pytest.raises(CorruptFileError, match="another key") as failure:
        decrypt(encrypt(b"a model", KEY), OTHER, "m.pb.enc")
    assert OTHER.secret.hex() not in str(failure.value)


def test_newer_version_is_refused() -> None:
    data = bytearray(encrypt(b"a model", KEY))
    data[8] = 2
    with pytest.raises(UnsupportedError, match="version 2"):
        decrypt(bytes(data), KEY, "m.pb.enc")


def test_missing_cryptography_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UnsupportedError) as failure:
        encrypt(b"a model", KEY)
    assert failure.value.hint == "pip install 'mobileprep[encrypt]'"


def test_too_large_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memmapped, "_MOST_BYTES", 3)
    with pytest.raises(Exception, match="too large to be encrypted"):
        encrypt(b"a model", KEY)
