"""Encrypts model files by AES-256 in Galois/Counter Mode, and decrypts them.

Equal inputs give equal bytes, and yet no nonce serves two contents: as in SIV modes (RFC 5297), a
keyed digest of the content, HMAC-SHA256, decides the cipher's key and nonce. For two contents to
share them, SHA-256 would have to collide under a secret key.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from mobileprep.core.keys import Key
from mobileprep.errors import ArtifactError, CorruptFileError, UnsupportedError
from mobileprep.formats.memmapped import EncryptedHeader, read_header
from mobileprep.formats.wire import Buffer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12
_MOST_BYTES: Final = (1 << 31) - 1


def encrypt(content: bytes, key: Key) -> bytes:
    """A model file as it ships.

    Raises:
        ArtifactError: it is larger than 2 GiB.
        UnsupportedError: the package cryptography is not installed.
    """
    if len(content) > _MOST_BYTES:
        message = f"a model of {len(content):,} bytes is too large to be encrypted"
        raise ArtifactError(message, "make it smaller than 2 GiB, or leave 'encrypt' out")
    synthetic = hmac.digest(key.derived("synthetic"), content, "sha256")
    header = EncryptedHeader(len(content), key.id, synthetic).packed()
    return header + _cipher(key, synthetic).encrypt(_nonce(key, synthetic), content, header)


def decrypt(data: Buffer, key: Key, file: str) -> bytes:
    """What an encrypted model file holds.

    Args:
        data: the file's bytes.
        key: that it was encrypted with.
        file: its name, for messages.

    Raises:
        CorruptFileError: it is no encrypted model, was changed or cut short, or the key is wrong.
        UnsupportedError: another version of the format, or the package cryptography is not there.
    """
    header = read_header(data, file)
    if header.key_id != key.id:
        message = "is encrypted with another key"
        raise CorruptFileError(message, "give the key that the build had", file)
    cipher, nonce = _cipher(key, header.synthetic), _nonce(key, header.synthetic)
    packed = bytes(data[: header.size])
    from cryptography.exceptions import InvalidTag  # its absence is told of above

    try:
        return cipher.decrypt(nonce, bytes(data[header.size :]), packed)
    except InvalidTag as error:
        message = "was changed after it was encrypted"
        raise CorruptFileError(message, "copy it again from what the build left", file) from error


def _cipher(key: Key, synthetic: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        message = "encryption needs the package cryptography, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[encrypt]'") from error
    return AESGCM(key.derived("model", synthetic))


def _nonce(key: Key, synthetic: bytes) -> bytes:
    return key.derived("nonce", synthetic)[:_NONCE_BYTES]
