"""Report the source of ranges."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.building.stages.calibrate.spec import CalibrationRecord


def calibration_lines(calibration: CalibrationRecord) -> Iterator[str]:
    yield f"ranges   {calibration_text(calibration)}"
    yield from (f"  warning: {warning}" for warning in calibration.warnings)


def calibration_text(record: CalibrationRecord) -> str:
    """Describe the number of ranges, their source and method, and the number of missing ones."""
    tensors = f"{record.tensors:,} tensor{'s' * (record.tensors != 1)}"
    samples = f"{record.samples:,} sample{'s' * (record.samples != 1)}"
    if record.is_measured:
        text = f"of {tensors} measured by {record.method} on {samples} of {record.origin}"
    else:
        text = f"of {tensors} from {record.origin}, by {record.method} on {samples}"
    return f"{text}; {len(record.unseen):,} not reached" if record.unseen else text
