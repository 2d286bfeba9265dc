"""Sizes and counts with units: ``60 KB``, ``1.5 MiB``, ``20 MFLOP``."""

from __future__ import annotations

import re

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_BYTES = {f"{prefix}b": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_FLOPS = {f"{prefix}flop": factor for prefix, factor in _DECIMAL.items()}

_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))? ?([A-Za-z]*)\Z")


def parse_bytes(text: str) -> int | None:
    """A size in bytes, rounded down; None for text that is no size.

    ``KB``, ``MB``, ``GB`` and ``TB`` are powers of 1,000, ``KiB`` and so on of 1,024; case
    does not matter, and a number alone counts bytes.
    """
    return _parse(text, {"": 1, **_BYTES})


def parse_flops(text: str) -> int | None:
    """A number of floating point operations, rounded down; None for other text.

    ``KFLOP``, ``MFLOP``, ``GFLOP`` and ``TFLOP`` are powers of 1,000; a final ``s`` is allowed.
    """
    return _parse(text, {"": 1, **_FLOPS, **{f"{name}s": f for name, f in _FLOPS.items()}})


def _parse(text: str, units: dict[str, int]) -> int | None:
    match = _AMOUNT.match(text.strip())
    if match is None:
        return None
    factor = units.get(match[3].lower())
    if factor is None:
        return None
    fraction = match[2] or ""
    # Whole numbers throughout: floats would round 0.1 MB to a byte too few or too many.
    amount: int = int(match[1] + fraction) * factor // 10 ** len(fraction)
    return amount
