"""The header of an encrypted model; ``docs/protection.md`` describes the format."""

from __future__ import annotations

import struct
from typing import ClassVar, Final

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.cursor import Buffer
from mobileprep.frozen import dataclass

# Its first byte is in no text; the line ends show where a transfer changed them.
MAGIC: Final = b"\x89MPENC\r\n"
VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<8sIIQ16s32s")
TAG_BYTES: Final = 16
HEADER_BYTES: Final = _LAYOUT.size
OVERHEAD: Final = HEADER_BYTES + TAG_BYTES
"""How many bytes longer an encrypted model is."""


@dataclass(frozen=True)
class EncryptedHeader:
    """What stands before the encrypted bytes.

    Args:
        length: of what is encrypted, in bytes.
        key_id: 16 bytes that tell which key it is.
        synthetic: 32 bytes that follow from the key and the content; the cipher's key and nonce
            follow from them.
    """

    size: ClassVar[int] = HEADER_BYTES

    length: int
    key_id: bytes
    synthetic: bytes

    def packed(self) -> bytes:
        """The header's bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, HEADER_BYTES, self.length, self.key_id, self.synthetic)


def is_encrypted(data: Buffer) -> bool:
    """Whether data begins as an encrypted model does."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def read_header(data: Buffer, file: str) -> EncryptedHeader:
    """The header of an encrypted model.

    Raises:
        CorruptFileError: it is no encrypted model, or is shorter or longer than its header says.
        UnsupportedError: another version of the format.
    """
    if not is_encrypted(data):
        message = "is no encrypted model"
        raise CorruptFileError(message, "give a file that a build encrypted", file)
    if len(data) < OVERHEAD:
        message = f"ends after {len(data)} bytes, within the header of an encrypted model"
        raise CorruptFileError(message, "copy it again", file)
    _, version, size, length, key_id, synthetic = _LAYOUT.unpack(bytes(data[:HEADER_BYTES]))
    if (version, size) != (VERSION, HEADER_BYTES):
        message = f"is encrypted in version {version} of the format, and {VERSION} is known"
        raise UnsupportedError(message, "use the mobileprep that made it, or a newer one", file)
    if len(data) != length + OVERHEAD:
        message = f"has {len(data):,} bytes, and its header tells of {length + OVERHEAD:,}"
        raise CorruptFileError(message, "copy it again", file)
    return EncryptedHeader(length, key_id, synthetic)
