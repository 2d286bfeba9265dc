"""Report the exceptions of ``quantize: auto`` in a .tflite file, and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mobileprep.building.report.layout import plain, table
from mobileprep.building.stages.exceptions.spec import (
    ChosenException,
    ExceptionsRecord,
    nodes_by_mode,
)

HEADINGS: Final = ("nodes", "int8 MACs", "error", "bytes", "latency")

_SAYS: Final = {"int16x8": "with 16-bit activations", "float": "in float"}
_NAMED: Final = 3


def mode_counts(modes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the number of nodes of each mode in words."""
    return [
        f"{len(names)} node{'s' * (len(names) != 1)} {_SAYS[mode]}" for mode, names in modes.items()
    ]


def exception_lines(record: ExceptionsRecord) -> Iterator[str]:
    """Yield a line with the result, the rules to copy, and a line for each exception."""
    yield f"auto     {_summary(record)}"
    if record.rules:
        yield f"  as rules: [{', '.join(record.rules)}]"
    for one in record.exceptions:
        nodes, share, error, size, latency = _cells(one)
        time = "" if one.latency_ms is None else f", {latency} on {record.device}"
        yield f"  {nodes}: error {error}, {size} bytes{time}, {share} in int8"


def exception_markdown(record: ExceptionsRecord) -> Iterator[str]:
    """Yield the result and a table of the exceptions."""
    yield ""
    yield f"`quantize: auto`: {_summary(record)}"
    if record.exceptions:
        yield ""
        yield from table(HEADINGS, (list(map(plain, _cells(one))) for one in record.exceptions))


def _summary(record: ExceptionsRecord) -> str:
    tries = f"{record.tries} {'tries' if record.tries != 1 else 'try'}"
    parts = mode_counts(nodes_by_mode(record.exceptions))
    share = f"{_percent(record.int8_macs)} of the multiply-accumulates in int8"
    if record.integer_macs != record.int8_macs:
        share += f", {_percent(record.integer_macs)} in integers"
    return f"{' and '.join(parts) or 'no exceptions'}, {share}; {tries}"


def _cells(one: ChosenException) -> tuple[str, ...]:
    names = [name for mode in nodes_by_mode([one]).values() for name in mode]
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    time = "-" if one.latency_ms is None else f"{one.latency_ms:+.3g} ms"
    return shown, _percent(one.int8_macs), f"{-one.gain:+.2f} dB", f"{one.bytes:+,}", time


def _percent(share: float) -> str:
    return f"{share:.2%}"
