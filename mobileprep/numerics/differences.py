"""How far apart two results of one model are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mobileprep.errors import AccuracyError
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array


@dataclass(frozen=True)
class Difference:
    """How far one output is from the source's.

    Args:
        name: the output's.
        absolute: the largest absolute difference of any element.
        share: the same as a share of the largest magnitude that the source gives for the output;
            of truth values, text and whole numbers of 32 and 64 bits, which name or count, the
            share of elements that differ. Infinite where only one side is NaN or infinite.
        peak: the largest magnitude that the source gives.
        is_counted: whether the share is one of elements.
        is_source_lost: whether the share is infinite because the source gives NaN or infinity where
            the other gives numbers, and nowhere the reverse.
    """

    name: str
    absolute: float
    share: float
    peak: float
    is_counted: bool = False
    is_source_lost: bool = False

    def __str__(self) -> str:
        """The difference in words, after the words "the output"."""
        if self.is_counted:
            return f"{self.name!r} differs from the source's in {self.share:.2%} of its elements"
        of = f"{self.share:.2g} of its peak {self.peak:.2g}" if self.peak else "which is all zeros"
        return f"{self.name!r} differs from the source's by {self.absolute:.2g}, {of}"


def difference(
    name: str, expected: Sequence[Array], found: Sequence[Array], where: str = ""
) -> Difference:
    """How far an output is from the source's over some runs.

    Args:
        name: the output's.
        expected: the source's values, run by run.
        found: the other's.
        where: the place to blame, for messages.

    Raises:
        AccuracyError: the shapes differ.
    """
    gaps = [largest_difference(x, y, name, where) for x, y in zip(expected, found, strict=True)]
    absolute = max(gaps, default=0.0)
    highest = peak(expected)
    if not math.isfinite(absolute):
        pairs = list(zip(expected, found, strict=True))
        is_lost = not any(_loses_numbers(x, y) for x, y in pairs)
        return Difference(name, absolute, math.inf, highest, is_source_lost=is_lost)
    if all(map(is_counted, expected)):
        differ = sum(int(np.sum(x != y)) for x, y in zip(expected, found, strict=True))
        share = differ / max(sum(x.size for x in expected), 1)
        return Difference(name, absolute, share, highest, is_counted=True)
    # Where the source gives nothing but zeros, there is nothing to take a share of.
    return Difference(name, absolute, absolute / highest if highest else absolute, highest)


def differences(
    names: Sequence[str],
    expected: Iterable[Sequence[Array]],
    found: Iterable[Sequence[Array]],
    where: str = "",
) -> list[Difference]:
    """How far each output is from the source's over some runs.

    Args:
        names: the outputs.
        expected: the source's outputs of each run.
        found: the other's.
        where: the place to blame, for messages.

    Raises:
        AccuracyError: the shapes of an output differ.
    """
    columns = zip(*expected, strict=True), zip(*found, strict=True)
    return [difference(name, x, y, where) for name, x, y in zip(names, *columns, strict=True)]


def is_counted(array: Array) -> bool:
    """Whether elements name or count something, so that only equal or not has a meaning."""
    return array.dtype.kind in "OSUb" or (array.dtype.kind in "iu" and array.dtype.itemsize >= 4)


def peak(arrays: Iterable[Array]) -> float:
    """The largest magnitude of any finite element; 0 for text."""
    highest = 0.0
    for array in arrays:
        if array.size and array.dtype.kind not in "OSU":
            magnitudes = np.abs(array.astype(wide_type(array)))
            finite = magnitudes[np.isfinite(magnitudes)]
            highest = max(highest, float(finite.max(initial=0.0)))
    return highest


def largest_difference(expected: Array, found: Array, name: str, where: str = "") -> float:
    """The largest absolute difference of any element; NaN in the same place agrees.

    Args:
        expected: the source's output.
        found: the other's.
        name: what the output is called, for messages.
        where: the place to blame, for messages.

    Returns:
        The difference; infinity where only one side is NaN or infinite; for text the share of
        elements that differ.

    Raises:
        AccuracyError: the shapes differ.
    """
    if found.shape != expected.shape:
        message = (
            f"the output {name!r} has the shape {list(found.shape)}; "
            f"the source's is {list(expected.shape)}"
        )
        raise AccuracyError(message, "a transform has broken the model", where)
    if expected.dtype.kind in "OSU":
        return float(np.mean(expected != found)) if expected.size else 0.0
    x, y = expected.astype(wide_type(expected)), found.astype(wide_type(expected))
    with np.errstate(invalid="ignore"):
        gaps = np.asarray(np.abs(x - y))  # of scalars, numpy makes no array
    gaps[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    largest = float(gaps.max(initial=0.0))
    return math.inf if math.isnan(largest) or np.isnan(gaps).any() else largest


def not_finite(
    gap: Difference, where: str, feeds: Sequence[Mapping[str, Array]], hint: str
) -> AccuracyError:
    """The error for an output that is NaN or infinite on one side alone; it names the side.

    Args:
        gap: the difference, whose share is infinite.
        where: the other graph: ``after a_step``, or ``in a_file``.
        feeds: what was fed, run by run.
        hint: what to do if the other graph is at fault.
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
    """The shape and the range of what an input is fed: ``[1, 3] from 0 to 1``."""
    text = str(list(arrays[0].shape))
    if arrays[0].dtype.kind not in "fiu" or not arrays[0].size:
        return text
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    return f"{text} of {low:.4g}" if low == high else f"{text} from {low:.4g} to {high:.4g}"


def _loses_numbers(expected: Array, found: Array) -> bool:
    """Whether the second array is NaN or infinite where the first is finite."""
    finite = np.isfinite(expected.astype(wide_type(expected)))
    return bool((finite & ~np.isfinite(found.astype(wide_type(found)))).any())


def shown_difference(difference: float) -> float:
    """A difference to two significant digits: those beyond depend on the processor's BLAS."""
    return float(f"{difference:.2g}")


def wide_type(array: Array) -> type[np.complex128] | type[np.float64]:
    """The type in which arrays of numbers are compared."""
    return np.complex128 if array.dtype.kind == "c" else np.float64
