"""A bounded reader over bytes: varints and fixed-width integers, never past the end."""

from __future__ import annotations

from mobileprep.errors import CorruptFileError

_VARINT_BYTES = 10
_UINT64 = (1 << 64) - 1

Buffer = bytes | memoryview


class Cursor:
    """Reads forward through ``data[position:end]``.

    Args:
        data: the bytes.
        position: where to start.
        end: the first byte that may not be read; the length of ``data`` by default.
        file: the file's name, for messages.
        base: the offset of ``data[0]`` in that file, for messages.
    """

    __slots__ = ("base", "data", "end", "file", "position")

    def __init__(
        self,
        data: Buffer,
        position: int = 0,
        end: int | None = None,
        *,
        file: str = "",
        base: int = 0,
    ) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else min(end, len(data))
        self.file = file
        self.base = base

    def __bool__(self) -> bool:
        return self.position < self.end

    def corrupt(self, what: str) -> CorruptFileError:
        """The error for a fault at the present position."""
        where = f"{self.file}, byte {self.base + self.position}"
        return CorruptFileError(what, "the file is damaged or of another kind", where)

    def varint(self) -> int:
        """An unsigned base-128 integer of at most 64 bits.

        Raises:
            CorruptFileError: the bytes end, or run on past ten.
        """
        result = shift = 0
        data, position, end = self.data, self.position, self.end
        limit = min(end, position + _VARINT_BYTES)
        while position < limit:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return result & _UINT64
            shift += 7
        msg = "a variable-length integer does not end"
        raise self.corrupt(msg)

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes, as a view.

        Raises:
            CorruptFileError: fewer than ``count`` bytes are left.
        """
        start = self.position
        self.skip(count)
        return memoryview(self.data)[start : self.position]

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` bytes.

        Raises:
            CorruptFileError: fewer than ``count`` bytes are left.
        """
        left = self.end - self.position
        if not 0 <= count <= left:
            msg = f"{count} bytes are declared where {left} are left"
            raise self.corrupt(msg)
        self.position += count

    def fixed(self, width: int) -> int:
        """A little-endian unsigned integer of ``width`` bytes.

        Raises:
            CorruptFileError: fewer bytes are left.
        """
        return int.from_bytes(self.take(width), "little")
