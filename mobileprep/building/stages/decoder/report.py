"""Report the decoder that the app runs."""

from __future__ import annotations

from mobileprep.building.stages.decoder.spec import DecodingRecord


def decoding_line(record: DecodingRecord) -> str:
    """Return the decoder in one line."""
    return f"decoding: {record.summary}"
