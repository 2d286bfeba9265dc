"""Differences between tensors, their summaries, and the damage of quantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array


class Difference(Struct, frozen=True):
    """The distance of one output from the source model's output.

    Args:
        name: the output's name.
        absolute: the largest absolute difference of any element.
        share: the absolute difference relative to the source's peak magnitude. For booleans,
            strings, and 32-bit and 64-bit integers, which are labels or counts, the share of
            elements that differ. Infinite if only one side is NaN or infinite.
        peak: the largest magnitude of the source's output.
        is_counted: whether the share is a share of elements.
        is_source_lost: whether the share is infinite because the source returns NaN or infinity
            where the other side returns numbers, and never the reverse.
    """

    name: str
    absolute: float
    share: float
    peak: float
    is_counted: bool = False
    is_source_lost: bool = False

    def __str__(self) -> str:
        """Return the difference in words, to follow the words "the output"."""
        if self.is_counted:
            return f"{self.name!r} differs from the source's in {self.share:.2%} of its elements"
        of = f"{self.share:.2g} of its peak {self.peak:.2g}" if self.peak else "which is all zeros"
        return f"{self.name!r} differs from the source's by {self.absolute:.2g}, {of}"


def difference(
    name: str, expected: Sequence[Array], actual: Sequence[Array], where: str = ""
) -> Difference:
    """Compare one output with the source's over several runs."""
    gaps = [largest_difference(x, y, name, where) for x, y in zip(expected, actual, strict=True)]
    absolute = max(gaps, default=0.0)
    highest = peak(expected)
    if not math.isfinite(absolute):
        pairs = list(zip(expected, actual, strict=True))
        is_lost = not any(_loses_numbers(x, y) for x, y in pairs)
        return Difference(name, absolute, math.inf, highest, is_source_lost=is_lost)
    if all(map(is_counted, expected)):
        differ = sum(int(np.sum(x != y)) for x, y in zip(expected, actual, strict=True))
        share = differ / max(sum(x.size for x in expected), 1)
        return Difference(name, absolute, share, highest, is_counted=True)
    # If the source returns only zeros, use the absolute difference.
    return Difference(name, absolute, absolute / highest if highest else absolute, highest)


def differences(
    names: Sequence[str],
    expected: Iterable[Sequence[Array]],
    actual: Iterable[Sequence[Array]],
    where: str = "",
) -> list[Difference]:
    """Compare each output with the source's over several runs."""
    columns = zip(*expected, strict=True), zip(*actual, strict=True)
    return [difference(name, x, y, where) for name, x, y in zip(names, *columns, strict=True)]


def is_counted(array: Array) -> bool:
    """Return whether elements are labels or counts, which can only be compared for equality."""
    return array.dtype.kind in "OSUb" or (array.dtype.kind in "iu" and array.dtype.itemsize >= 4)


def peak(arrays: Iterable[Array]) -> float:
    """Return the largest magnitude of any finite element; 0 for strings."""
    highest = 0.0
    for array in arrays:
        if array.size and array.dtype.kind not in "OSU":
            magnitudes = np.abs(array.astype(wide_type(array)))
            finite = magnitudes[np.isfinite(magnitudes)]
            highest = max(highest, float(finite.max(initial=0.0)))
    return highest


def largest_difference(expected: Array, actual: Array, name: str, where: str = "") -> float:
    """Return the largest absolute difference of any element; NaN equals NaN.

    Returns:
        The difference; infinity if only one side is NaN or infinite; for strings, the share of
        elements that differ.

    Raises:
        AccuracyError: the shapes differ.
    """
    if actual.shape != expected.shape:
        message = (
            f"the output {name!r} has the shape {list(actual.shape)}; "
            f"the source's is {list(expected.shape)}"
        )
        raise AccuracyError(message, "a transform has broken the model", where)
    if expected.dtype.kind in "OSU":
        return float(np.mean(expected != actual)) if expected.size else 0.0
    x, y = expected.astype(wide_type(expected)), actual.astype(wide_type(expected))
    with np.errstate(invalid="ignore"):
        gaps = np.asarray(np.abs(x - y))  # numpy returns a number for scalars
    gaps[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    largest = float(gaps.max(initial=0.0))
    return math.inf if math.isnan(largest) or np.isnan(gaps).any() else largest


def not_finite(
    gap: Difference, where: str, feeds: Sequence[Mapping[str, Array]], hint: str
) -> AccuracyError:
    """Create the error for an output that is NaN or infinite on only one side.

    Args:
        gap: the difference, whose share is infinite.
    """
    if not gap.is_source_lost:
        broken = f"{where} the output {gap.name!r} is NaN or infinite"
        message = f"{broken} where the source's is not"
        return AccuracyError(message, hint)
    fed = ", ".join(f"{name} {_spread([f[name] for f in feeds])}" for name in feeds[0])
    message = (
        f"the samples are unusable: for the output {gap.name!r} the source gives NaN or infinity "
        f"where the graph {where} gives numbers; fed: {fed}"
    )
    return AccuracyError(message, "name samples that the model accepts: 'check: {data: FILE.npz}'")


def _spread(arrays: Sequence[Array]) -> str:
    """Format the shape and the range of an input: ``[1, 3] from 0 to 1``."""
    text = str(list(arrays[0].shape))
    if arrays[0].dtype.kind not in "fiu" or not arrays[0].size:
        return text
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    return f"{text} of {low:.4g}" if low == high else f"{text} from {low:.4g} to {high:.4g}"


def _loses_numbers(expected: Array, actual: Array) -> bool:
    """Return whether the second array is NaN or infinite where the first is finite."""
    finite = np.isfinite(expected.astype(wide_type(expected)))
    return bool((finite & ~np.isfinite(actual.astype(wide_type(actual)))).any())


def shown_difference(difference: float) -> float:
    """Round a difference to two significant digits; more would depend on the processor's BLAS."""
    return float(f"{difference:.2g}")


def wide_type(array: Array) -> type[np.complex128] | type[np.float64]:
    """Return the type in which arrays of numbers are compared."""
    return np.complex128 if array.dtype.kind == "c" else np.float64


# Types whose elements TensorFlow prints as question marks.
_UNSHOWN: Final = frozenset(
    {DType.QINT32, DType.COMPLEX64, DType.COMPLEX128, DType.RESOURCE, DType.VARIANT}
)
_ESCAPES: Final = {ord(c): f"\\{e}" for c, e in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}
_ESCAPED: Final = tuple(
    _ESCAPES.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}") for b in range(256)
)
# The smallest normal float32; TensorFlow prints smaller numbers as 0.
_LEAST: Final = float(np.finfo(np.float32).tiny)

Show = Callable[[Any], str]


def summary(array: Array, dtype: DType, count: int) -> str:
    """Format the first elements in row-major order, rows in brackets: ``[1 2][3...]...``.

    Source: ``Tensor::SummarizeValue`` of TensorFlow 1.15. Version 2.21 writes the same, but also
    prints bfloat16, for which 1.15 prints question marks.
    """
    shown = array.size if count < 0 else min(count, array.size)
    left_out = "..." if shown < array.size else ""
    if dtype in _UNSHOWN:
        return " ".join(repeat("?", shown)) + left_out
    elements = map(_shower(dtype), _readable(array).reshape(-1)[:shown].tolist())
    if array.ndim < 2:
        return " ".join(elements) + left_out
    return "".join(_rows(elements, array.shape, shown)) + left_out


def edges(array: Array, dtype: DType, count: int) -> str:
    """Format the first and last elements along each axis, a line for each row, strings in quotes.

    Args:
        count: number of elements at each end of an axis, all if negative.

    Source: ``Tensor::SummarizeValue`` of TensorFlow 1.15 with ``print_v2``.
    """
    count = array.size if count < 0 else min(count, array.size)
    if dtype in _UNSHOWN:
        shown = summary(array, dtype, count)
        return f"[{shown}]" if array.ndim else shown
    if array.ndim == 0 and count == 0:
        return "..."
    return _block(_readable(array), count, _quoted if dtype is DType.STRING else _shower(dtype), 0)


def escaped(text: bytes) -> str:
    """Escape everything but printable ASCII as in C, bytes in octal."""
    return "".join(map(_ESCAPED.__getitem__, text))


def _rows(elements: Iterator[str], shape: tuple[int, ...], shown: int) -> Iterator[str]:
    """Yield elements with the brackets of all axes but the first."""
    # Number of elements between the brackets of each inner axis.
    spans = [math.prod(shape[axis:]) for axis in range(1, len(shape))]
    for position, element in enumerate(elements):
        opened = sum(position % span == 0 for span in spans)
        yield "[" * opened if opened else " "
        yield element
        end = position + 1
        if end < shown:
            yield "]" * sum(end % span == 0 for span in spans)
            continue
        yield "..." if end % spans[-1] else ""
        yield "]" * len(spans)


def _block(array: Array, count: int, show: Show, axis: int) -> str:
    """Format the part of a tensor below the given axis."""
    if array.ndim == 0:
        return show(array.item())
    length, inner = len(array), array.ndim - 1
    between = "\n" * inner + " " * (axis + 1) if inner else " "
    parts = [
        _block(array[i : i + 1].reshape(array.shape[1:]), count, show, axis + 1)
        for i in _ends(length, count)
    ]
    # TensorFlow writes a space before the dots even if they come first.
    left_out = [f"{between}..."] if length > 2 * count else []
    first, last = parts[:count], parts[count:]
    return "[" + between.join(first) + "".join(left_out) + "".join(between + p for p in last) + "]"


def _ends(length: int, count: int) -> list[int]:
    """Return the first and last indices of an axis."""
    if length <= 2 * count:
        return list(range(length))
    return [*range(count), *range(length - count, length)]


def _readable(array: Array) -> Array:
    """Convert narrow floats to single precision, which numpy converts to Python numbers."""
    return (
        array
        if array.dtype.kind in "biuO" or array.dtype == np.float64
        else array.astype(np.float32)
    )


def _shower(dtype: DType) -> Show:
    """Return the function that formats one element."""
    if dtype is DType.STRING:
        return escaped
    if dtype is DType.DOUBLE:
        return _double
    return _single if dtype.is_floating else _integer


def _integer(value: int) -> str:
    return str(int(value))


def _single(value: float) -> str:
    """Format with six digits, or nine if the number does not round-trip."""
    if abs(value) < _LEAST:
        value = math.copysign(0.0, value)
    text = f"{value:.6g}"
    return _signed(value, text if np.float32(text) == value else f"{value:.9g}")


def _double(value: float) -> str:
    text = f"{value:.15g}"
    return _signed(value, text if float(text) == value else f"{value:.17g}")


def _signed(value: float, text: str) -> str:
    """Add the sign of a NaN."""
    return f"-{text}" if math.isnan(value) and math.copysign(1, value) < 0 else text


def _quoted(text: bytes) -> str:
    return f'"{escaped(text)}"'


# The root mean square of rounding errors alone, in steps: uniform over one step.
HEALTHY_RMSE: Final = 1 / math.sqrt(12)
# Largest reported signal-to-noise ratio, for equal values, in dB. float32 itself has about 150.
MOST_DECIBELS: Final = 200.0
# Sums are computed in double precision, over this many elements at a time.
_BLOCK: Final = 1 << 16


class Damage(Struct, frozen=True):
    """The distance of quantized values from float values.

    Args:
        elements: number of compared elements.
        sqnr: signal-to-quantization-noise ratio in dB, ``10 log10(sum(x^2) / sum((x - y)^2))``,
            from -200 to 200: 200 if nothing differs, -200 if a value is not finite.
        cosine: cosine similarity of both vectors; 1 if both are zeros.
        clipped: the share of float values outside of the quantized range by more than half a step;
            None without a range.
        rmse_over_scale: root mean square error in steps of the quantized values; None without
            steps. Rounding alone has 0.289, one over the square root of 12.
    """

    elements: int
    sqnr: float
    cosine: float
    clipped: float | None
    rmse_over_scale: float | None


class Grid(Struct, frozen=True):
    """The possible quantized values.

    Args:
        low: the lowest, or one for each channel in a shape that broadcasts to the values.
        high: the highest, likewise.
        scale: the difference of two adjacent values, likewise.
    """

    low: Array
    high: Array
    scale: Array


def decibels(signal: float, noise: float, *, is_lost: bool = False) -> float:
    """Return a signal-to-noise ratio in dB, from -200 to 200.

    Args:
        signal: sum of the squared float values.
        noise: sum of the squared differences.
        is_lost: whether a value is not finite.
    """
    if is_lost:
        return -MOST_DECIBELS
    if not noise:
        return MOST_DECIBELS
    if not signal:
        return -MOST_DECIBELS
    ratio = 10 * (math.log10(signal) - math.log10(noise))
    return min(max(ratio, -MOST_DECIBELS), MOST_DECIBELS)


class DamageSum:
    """Accumulates the damage over arrays in constant memory."""

    def __init__(self) -> None:
        self._elements = 0
        self._signal = self._noise = self._other = self._product = 0.0
        self._gridded = self._clipped = 0
        self._squared_steps = 0.0
        self._is_lost = False

    def add(self, expected: Array, actual: Array, grid: Grid | None = None) -> None:
        """Add an array.

        Args:
            expected: float values.
            actual: the quantized values in float, of the same shape.
            grid: the possible quantized values.
        """
        self._elements += expected.size
        flat, other = expected.reshape(-1), actual.reshape(-1)
        for start in range(0, expected.size, _BLOCK):
            x = flat[start : start + _BLOCK].astype(np.float64)
            y = other[start : start + _BLOCK].astype(np.float64)
            self._is_lost |= not (np.isfinite(x).all() and np.isfinite(y).all())
            self._signal += float(x @ x)
            self._other += float(y @ y)
            self._product += float(x @ y)
            self._noise += float((x - y) @ (x - y))
        if grid is not None:
            self._add_steps(expected, actual, grid)

    def _add_steps(self, expected: Array, actual: Array, grid: Grid) -> None:
        half = grid.scale / 2
        beyond = (expected < grid.low - half) | (expected > grid.high + half)
        self._clipped += int(np.count_nonzero(beyond))
        errors = (expected.astype(np.float64) - actual) / grid.scale
        self._squared_steps += float(np.sum(errors * errors))
        self._gridded += expected.size

    def damage(self) -> Damage:
        """Return the damage of all added arrays."""
        return Damage(
            self._elements,
            decibels(self._signal, self._noise, is_lost=self._is_lost),
            self._cosine(),
            self._clipped / self._gridded if self._gridded else None,
            math.sqrt(self._squared_steps / self._gridded) if self._gridded else None,
        )

    def _cosine(self) -> float:
        lengths = math.sqrt(self._signal) * math.sqrt(self._other)
        if self._is_lost or not lengths:
            return 1.0 if not self._is_lost and self._signal == self._other else 0.0
        return self._product / lengths
