"""Report the differences between graphs and the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from mobileprep.building.plan.engines import BEFORE_CONVERSION
from mobileprep.building.stages.check.spec import CheckRecord, SamplesRecord


class Checked(SamplesRecord, frozen=True, kw_only=True):
    """Results of comparing graphs with the source on samples.

    Args:
        step: transform with the largest difference from the source.
        output: output with the largest difference.
        share_of_peak: the difference, as a fraction of the source's largest magnitude of that
            output.
        max_difference: the permitted maximum, or None.
        basis: ``measured on the graph before conversion`` if the packaged file is converted to
            another format.
        model: comparison of the packaged model with the source.
    """

    step: str
    output: str
    share_of_peak: float
    max_difference: float | None
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
        **structs.asdict(samples),
        step=furthest.step if checks else "",
        output=furthest.output,
        share_of_peak=furthest.share_of_peak,
        max_difference=furthest.max_difference,
        basis=f"measured on {BEFORE_CONVERSION}" if is_converted else "",
        model=model,
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
