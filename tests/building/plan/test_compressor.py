"""The compressor that measures sizes."""

from __future__ import annotations

from zlib import ZLIB_RUNTIME_VERSION

from mobileprep.building.plan.fingerprints import LEVEL, compressor


def test_name_has_version_and_level() -> None:
    assert compressor() == f"deflate by zlib {ZLIB_RUNTIME_VERSION} at level {LEVEL}"
    assert LEVEL == 1
