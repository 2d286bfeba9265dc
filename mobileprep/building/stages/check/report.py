"""Report how far graphs are from the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mobileprep.building.plan.engines import BEFORE_CONVERSION
from mobileprep.building.stages.check.spec import CheckRecord, SamplesRecord


class Checked(Struct, frozen=True):
    """What each transform's graph was compared with the source on.

    Args:
        origin: ``check`` or ``validation``, the section that names the data, or ``drawn``.
        data: the file, or None for samples that were drawn.
        samples: how many.
        inputs: what was fed, in words, by input.
        step: the transform after which the outputs are furthest from the source's.
        output: the output that is.
        share_of_peak: how far, as a share of the largest magnitude that the source gives for it.
        max_difference: what is allowed, or None.
        warnings: what makes the comparison worth less than it seems.
        basis: what the transforms' graphs are, if the packaged file is made from them by another
            format: ``measured on the graph before conversion``.
        model: how far the packaged model is from the source, and what was measured.
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
    """The checks of steps and of the packaged model; None without any.

    Args:
        is_converted: whether the packaged file is made from the graphs by another format.
    """
    if samples is None or not (checks or model):
        return None
    # Of equal differences the first step's: it is where they come from.
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
