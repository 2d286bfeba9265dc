"""Report the size of a download."""

from __future__ import annotations

from mobileprep.building.stages.download.spec import DownloadRecord


def download_text(download: DownloadRecord) -> str:
    """Format the size of the delta: ``9,009 bytes as a delta of 232,178``."""
    return f"{download.bytes:,} bytes as a delta of {download.previous_bytes:,}"
