"""Format the progress, rate, and remaining time of work."""

from __future__ import annotations

from typing import Final, NamedTuple

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")
# Shorter times do not give a reliable rate.
_LEAST: Final = 0.05


class Count(NamedTuple):
    """Progress of some work.

    Args:
        done: amount done.
        total: total amount; 0 if unknown.
        unit: unit of both.
        since: time at which ``before`` was measured, from ``time.monotonic``.
        before: amount done at that time.
    """

    done: float
    total: float
    unit: str
    since: float
    before: float = 0

    def text(self, now: float) -> str:
        """Return ``120/200 samples, 35/s, 2 s left``; only the amount while the rate is unknown."""
        many = amount(self.done, self.total, self.unit)
        took = now - self.since
        if self.done <= self.before or took <= _LEAST:
            return many
        rate = (self.done - self.before) / took
        text = f"{many}, {speed(rate, self.unit)}"
        remaining = self.total - self.done
        return f"{text}, {max(remaining, 0) / rate:.0f} s left" if self.total else text


def amount(done: float, total: float, unit: str) -> str:
    """Return ``120/200 samples`` or ``1.2/3.4 GB``; ``1.2 GB`` without a total."""
    shown, scale, named = f"{done:.0f}", 1.0, unit
    if unit == "bytes":
        scale, named = _scaled(max(done, total))
        shown = f"{done / scale:.{0 if scale == 1 else 1}f}"
    of = f"/{total / scale:.{0 if scale == 1 else 1}f}" if total else ""
    return f"{shown}{of} {named}"


def speed(rate: float, unit: str) -> str:
    """Return ``35/s``, or ``480 MB/s`` for bytes."""
    if unit == "bytes":
        scale, named = _scaled(rate)
        return f"{rate / scale:.0f} {named}/s"
    return f"{rate:.{0 if rate >= 10 else 1}f}/s"


def _scaled(count: float) -> tuple[float, str]:
    scale, at = 1.0, 0
    while count / scale >= 1000 and at < len(_UNITS) - 1:
        scale, at = scale * 1000, at + 1
    return scale, _UNITS[at]
