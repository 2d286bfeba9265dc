"""Report the differences between graphs and the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mobileprep.building.plan.engines import BEFORE_CONVERSION
from mobileprep.building.stages.check.spec import CheckRecord, SamplesRecord


class Checked(Struct, frozen=True):
    """Results of comparing graphs with the source.

    Args:
        origin: section that names the data, ``check`` or ``validation``, or ``drawn``.
        data: the file, or None for randomly drawn samples.
        samples: number of samples.
        inputs: description of the values of each input.
        step: transform with the largest difference from the source.
        output: output with the largest difference.
        share_of_peak: the difference, as a fraction of the source's largest magnitude of that
            output.
        max_difference: the permitted maximum, or None.
        warnings: reasons why the comparison may be unreliable.
        basis: ``measured on the graph before conversion`` if the packaged file is converted to
            another format.
        model: comparison of the packaged model with the source.
    """

    origin: str
    data: str | None
    samples: int
    inputs: Mapping[str, str]
    step: str
    output: str
    share_of_peak: float
    max_difference: float | None
    warnings: tuple[str, ...]
    basis: str = ""
    model: CheckRecord | None = None


def checked(
    samples: SamplesRecord | None,
    checks: Sequence[CheckRecord],
    model: CheckRecord | None,
    *,
    is_converted: bool,
) -> Checked | None:
    """Combine the checks of steps and of the packaged model. Return None if there are none.

    Args:
        is_converted: whether the packaged file is converted to another format.
    """
    if samples is None or not (checks or model):
        return None
    # Of equal differences, report the first step, which caused them.
    furthest = max(checks, key=lambda check: check.share_of_peak, default=model)
    assert furthest is not None
    return Checked(
        samples.origin,
        samples.data,
        samples.samples,
        samples.inputs,
        furthest.step if checks else "",
        furthest.output,
        furthest.share_of_peak,
        furthest.max_difference,
        samples.warnings,
        f"measured on {BEFORE_CONVERSION}" if is_converted else "",
        model,
    )


def check_lines(check: Checked) -> Iterator[str]:
    samples = f"{check.samples} sample{'s' * (check.samples != 1)}"
    origin = f"{samples} drawn" if check.data is None else f"{samples} of {check.data}"
    where = f" after {check.step}" if check.step and check.share_of_peak else ""
    rows = [_difference(check, where, check.basis)] if check.step else []
    if check.model is not None:
        rows.append(_difference(check.model, "", check.model.basis))
    yield f"check    {origin}: {rows[0]}"
    if check.data is None:
        yield from (f"  {name}: {what}" for name, what in check.inputs.items())
    yield from (f"check    {origin}: {row}" for row in rows[1:])
    yield from (f"  warning: {warning}" for warning in check.warnings)


def _difference(check: Checked | CheckRecord, where: str, basis: str) -> str:
    furthest = f"largest difference {check.share_of_peak:.2g} of the peak of {check.output!r}"
    limit = "" if check.max_difference is None else f" (at most {check.max_difference:.3g})"
    return f"{furthest}{where}{limit}{f'; {basis}' if basis else ''}"
