"""Builds a first recipe before it is written, so that it checks what it can and no more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mobileprep.api.targets import build_report, plan_state
from mobileprep.errors import AccuracyError, MobileprepError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.runner import collect
from mobileprep.pipeline.state import State
from mobileprep.recipe.first import Draft, recipe_text
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.schemas import recipe_schema
from mobileprep.report.collect import Report

# How far outputs may move, as a share of the largest magnitude: by weights of 8 bits, and by
# the rounding of folded ones.
EIGHT_BIT_LIMIT = 0.05
FLOAT_LIMIT = 0.001
RunStages = Callable[[State], None]
"""Runs the stages of a plan that are stale."""

_UNQUANTIZED = "The weights stay float: nothing would check what 8 bits do to them."
_CHANNEL = "{mode: weights, granularity: channel}"
_FLOAT16 = "float16"
_NEXT_STEPS = (
    "Next steps towards 8 bits: check on samples of your own ('check: {data: FILE.npz}'), or let "
    "'quantize: auto' find the layers that have to stay float; it needs a calibration and a "
    "validation."
)


@dataclass(frozen=True)
class Tried:
    """A draft that builds, and the report of its build."""

    draft: Draft
    report: Report


def tried(draft: Draft, path: Path, run: RunStages) -> Tried:
    """The draft with the most that builds: checked and quantized, checked, or neither.

    Weights are stored in 8 bits in the smallest way that keeps the outputs near the source's, else
    in 16; comments of the recipe name what was rejected, and why.

    What a build runs stays in the store, so that the user's first build has little left to do.

    Args:
        draft: without check and quantization.
        path: where the recipe will lie.
        run: called with the plan of each draft that is tried.

    Raises:
        MobileprepError: the model cannot be built even so.
    """
    plain = _registered(draft, path, run)
    draft = plain.draft
    why: list[str] = []
    for smaller in _smaller(draft):
        try:
            report = _built(smaller, path, run)
        except AccuracyError as error:
            why.append(_rejected(smaller, first_line(error)))
            continue
        except MobileprepError as error:
            why = [f"The weights stay float: {first_line(error)}."]
            break
        if report.check is not None and report.check.warnings:
            # A check that proves little is none: what 8 bits do would not be seen.
            why = [f"The weights stay float: {report.check.warnings[0]}."]
            break
        note = (*why, *((_NEXT_STEPS,) if smaller.quantize == _FLOAT16 else ()))
        return Tried(replace(smaller, about_weights=note), report)
    else:
        why.append(f"The weights stay float. {_NEXT_STEPS}")
    try:
        checked = replace(draft, check=FLOAT_LIMIT, about_weights=tuple(why))
        return Tried(checked, _built(checked, path, run))
    except MobileprepError as error:
        unchecked = f"{_reason(draft) or first_line(error)}."
    return Tried(replace(draft, unchecked=unchecked, about_weights=(_UNQUANTIZED,)), plain.report)


def _registered(draft: Draft, path: Path, run: RunStages) -> Tried:
    """The draft with the header of the oldest release that has the model's ops."""
    oldest, *newer = (replace(draft, release=release) for release in _releases())
    try:
        return Tried(oldest, _built(oldest, path, run))
    except UnsupportedError:
        for told in newer:
            with contextlib.suppress(UnsupportedError):
                return Tried(told, _built(told, path, run))
        raise


def _releases() -> tuple[str, ...]:
    return tuple(sorted(recipe_schema()["$defs"]["tensorflow"]["enum"]))


def first_line(error: MobileprepError) -> str:
    """What a comment says of an error."""
    return error.message.partition("\n")[0]


def _reason(draft: Draft) -> str:
    """What the recipe lacks for a check, where that is plain to see."""
    unknown = [i.name for i in draft.inputs if i.shape is None]
    if not unknown:
        return ""
    return f"the graph does not tell the shape of {', '.join(unknown)}"


def _smaller(draft: Draft) -> Iterator[Draft]:
    """The draft with smaller weights, in order of cost."""
    draft = replace(draft, check=EIGHT_BIT_LIMIT)
    yield replace(draft, quantize="weights")
    yield replace(draft, quantize=_CHANNEL)
    yield replace(draft, quantize="weights", then="[equalize_ranges]")
    yield replace(draft, quantize=_FLOAT16)


def _rejected(draft: Draft, reason: str) -> str:
    """A comment on a way of storing weights that moves outputs too far."""
    before = f"then: {draft.then}, " if draft.then else ""
    return f"Rejected '{before}quantize: {draft.quantize}': {reason.partition('; at most')[0]}."


def _built(draft: Draft, path: Path, run: RunStages) -> Report:
    recipe = load_recipe(path, environ=os.environ, text=recipe_text(draft))
    state = plan_state([recipe])
    run(state)
    (built,) = collect(state)
    return build_report(built)


def told(report: Report) -> str:
    """What a build came to, in one line."""
    size, before = report.model.bytes, report.source.bytes
    line = f"{before:,} bytes frozen, {size:,} prepared"
    model = None if report.check is None else report.check.model
    return f"{line}; outputs differ by at most {model.largest_difference:.2g}" if model else line
