"""What reports say of a calibration."""

from __future__ import annotations

from mobileprep.plan.running_records import CalibrationRecord


def calibration_text(record: CalibrationRecord) -> str:
    """How many ranges there are, how they were found, on what; and how many are missing."""
    tensors = f"{record.tensors:,} tensor{'s' * (record.tensors != 1)}"
    samples = f"{record.samples:,} sample{'s' * (record.samples != 1)}"
    if record.is_measured:
        found = f"of {tensors} measured by {record.method} on {samples} of {record.origin}"
    else:
        found = f"of {tensors} from {record.origin}, by {record.method} on {samples}"
    return f"{found}; {len(record.unseen):,} not reached" if record.unseen else found
