"""Stub."""

from __future__ import annotations

from pathlib import Path

from mobileprep.fsio import sha256_file


class FileIndex:
    """Digests of files."""

    def __init__(self, path: Path | None, *, checksum: bool = False) -> None:
        self._digests: dict[Path, tuple[str, tuple[int, ...]]] = {}

    def digest(self, path: Path) -> str:
        """The sha256."""
        stamp = _stamp(path)
        if path in self._digests and self._digests[path][1] == stamp:
            return self._digests[path][0]
        found = sha256_file(path)
        if stamp is not None:
            self._digests[path] = (found, stamp)
        return found

    def matches(self, path: Path, sha256: str, size: int) -> bool:
        """Whether."""
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
                return False
        except OSError:
            return False
        stamp = _stamp(path)
        if path in self._digests and self._digests[path][1] == stamp:
            return self._digests[path][0] == sha256
        found = sha256_file(path)
        if stamp is not None:
            self._digests[path] = (found, stamp)
        return found == sha256

    def note(self, path: Path, sha256: str) -> None:
        """Note."""
        stamp = _stamp(path)
        if stamp is not None:
            self._digests[path] = (sha256, stamp)

    def unchanged(self, path: Path) -> bool:
        """Unchanged."""
        return path in self._digests and _stamp(path) == self._digests[path][1]

    def save(self) -> None:
        """Save."""


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
