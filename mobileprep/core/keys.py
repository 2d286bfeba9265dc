"""Secret keys of 32 bytes from an environment variable, and derived keys.

A key is never part of a message, a record or a fingerprint; its ``id`` is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final

from msgspec import Struct

from mobileprep.errors import RecipeError

KEY_BYTES: Final = 32
_ID_BYTES: Final = 16
_HEX: Final = re.compile(r"[0-9A-Fa-f]{64}\Z")
_HINT: Final = "32 random bytes as 64 hexadecimal digits or in base64: openssl rand -hex 32"


class Key(Struct, frozen=True):
    """A secret key.

    Args:
        secret: 32 bytes, drawn at random.
    """

    secret: bytes

    def __repr__(self) -> str:
        return "Key(...)"

    def derived(self, purpose: str, context: bytes = b"") -> bytes:
        """Derive a key of 32 bytes for one purpose, independent of keys for other purposes.

        HKDF-Expand with SHA-256 (RFC 5869). HKDF-Extract is only needed for secrets that are not
        uniformly random (section 3.3).
        """
        info = b"mobileprep 1 " + purpose.encode("ascii") + b"\0" + context
        return hmac.new(self.secret, info + b"\1", hashlib.sha256).digest()

    @property
    def id(self) -> bytes:
        """Return 16 bytes that identify a key without revealing it."""
        return self.derived("key id")[:_ID_BYTES]


def key_from_environment(variable: str, where: str = "", key_id: str = "") -> Key:
    """Read a key from an environment variable."""
    value = os.environ.get(variable, "").strip()
    if not value:
        message = f"the variable {variable}, which has the key, is not set"
        raise RecipeError(message, f"set it to {_HINT}", where)
    secret = bytes.fromhex(value) if _HEX.match(value) else _from_base64(value)
    if len(secret) != KEY_BYTES:
        message = f"the variable {variable} is not a key of {KEY_BYTES} bytes"
        raise RecipeError(message, f"set it to {_HINT}", where)
    key = Key(secret)
    if key_id and key.id.hex() != key_id:
        message = f"the key in {variable} changed during the build"
        raise RecipeError(message, "build again", where)
    return key


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
