"""How far work is, how fast it goes, and how long it still takes, in words."""

from __future__ import annotations

from typing import Final, NamedTuple

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")
# Shorter times do not give a reliable rate.
_LEAST: Final = 0.05


class Count(NamedTuple):
    """How far some work is.

    Args:
        done: how much is done.
        total: how much there is; 0 where that is not known.
        unit: of both.
        since: when ``before`` was done, as ``time.monotonic`` has it.
        before: how much was done then.
    """

    done: float
    total: float
    unit: str
    since: float
    before: float = 0

    def told(self, now: float) -> str:
        """``120/200 samples, 35/s, 2 s left``, without a rate where none is known yet."""
        many = amount(self.done, self.total, self.unit)
        took = now - self.since
        if self.done <= self.before or took <= _LEAST:
            return many
        rate = (self.done - self.before) / took
        told = f"{many}, {speed(rate, self.unit)}"
        left = self.total - self.done
        return f"{told}, {max(left, 0) / rate:.0f} s left" if self.total else told


def amount(done: float, total: float, unit: str) -> str:
    """``120/200 samples``, ``1.2/3.4 GB``; without a total ``1.2 GB``."""
    shown, scale, named = f"{done:.0f}", 1.0, unit
    if unit == "bytes":
        scale, named = _scaled(max(done, total))
        shown = f"{done / scale:.{0 if scale == 1 else 1}f}"
    of = f"/{total / scale:.{0 if scale == 1 else 1}f}" if total else ""
    return f"{shown}{of} {named}"


def speed(rate: float, unit: str) -> str:
    """``35/s`` of things, ``480 MB/s`` of bytes."""
    if unit == "bytes":
        scale, named = _scaled(rate)
        return f"{rate / scale:.0f} {named}/s"
    return f"{rate:.{0 if rate >= 10 else 1}f}/s"


def _scaled(count: float) -> tuple[float, str]:
    scale, at = 1.0, 0
    while count / scale >= 1000 and at < len(_UNITS) - 1:
        scale, at = scale * 1000, at + 1
    return scale, _UNITS[at]
