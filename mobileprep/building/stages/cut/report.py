"""Report the preprocessing that moved into the app."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.building.stages.cut.spec import PreprocessingRecord


def preprocessing_lines(record: PreprocessingRecord) -> Iterator[str]:
    """Yield the preprocessing, and the comparison with the source."""
    yield f"preprocessing: {record.summary}; input {record.preprocessing.input}"
    if record.largest_difference is None or record.tolerance is None:
        return
    samples = f"{record.samples} sample{'s' * (record.samples != 1)}"
    yield (
        f"  agrees with the graph on {samples} ({record.data}): largest difference "
        f"{record.largest_difference:.2g} of the peak, at most {record.tolerance:.0e}"
    )
