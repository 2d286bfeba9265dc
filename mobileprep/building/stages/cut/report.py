"""Report the preprocessing that the app does."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.building.stages.cut.spec import PreprocessingRecord


def preprocessing_lines(record: PreprocessingRecord) -> Iterator[str]:
    """Yield the preprocessing and, if it was cut from the graph, the comparison with the source."""
    yield f"preprocessing: {record.summary}; input {record.preprocessing.input}"
    if record.largest_difference is not None and record.tolerance is not None:
        samples = f"{record.samples} sample{'s' * (record.samples != 1)}"
        yield (
            f"  agrees with the graph on {samples} ({record.data}): largest difference "
            f"{record.largest_difference:.2g} of the peak, at most {record.tolerance:.0e}"
        )
