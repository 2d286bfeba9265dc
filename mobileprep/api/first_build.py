"""Builds a first recipe before it is written, so that it checks what it can and no more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from mobileprep.api.fit import check_models
from mobileprep.api.targets import build_report, plan_state
from mobileprep.errors import AccuracyError, MobileprepError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.opdefs.definitions import DEFAULT_RELEASE, RELEASES, TF115
from mobileprep.pipeline.runner import collect
from mobileprep.pipeline.state import State
from mobileprep.recipe.first import Draft, recipe_text
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.report.collect import Report

# How far outputs may move, as a share of the largest magnitude: by weights of 8 bits, and by
# the rounding of folded ones.
EIGHT_BIT_LIMIT = 0.05
FLOAT_LIMIT = 0.001
_T = TypeVar("_T")
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
    draft, plain_report = _registered(draft, lambda plain: _built(plain, path, run))
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
    return Tried(replace(draft, unchecked=unchecked, about_weights=(_UNQUANTIZED,)), plain_report)


def untried(draft: Draft, path: Path) -> Draft:
    """Return a draft that its release loads, as far as that is known without building it.

    Args:
        draft: without check and quantization.
        path: where the recipe will lie.
    """
    plain = replace(draft, release=draft.release or DEFAULT_RELEASE)
    with contextlib.suppress(MobileprepError):
        return _registered(draft, lambda tried: check_models([_recipe(tried, path)]))[0]
    return plain


def _registered(draft: Draft, attempt: Callable[[Draft], _T]) -> tuple[Draft, _T]:
    """Return the first draft that its release loads: as it is, downgraded, with a newer release.

    Args:
        draft: its release is fixed, unless it is empty.
        attempt: raises UnsupportedError if the release does not load the model of a draft.
    """
    wanted = draft.release
    plain = replace(draft, release=wanted or DEFAULT_RELEASE)
    try:
        return plain, attempt(plain)
    except UnsupportedError as error:
        for other in _loadable(plain, first_line(error), fixed=bool(wanted)):
            with contextlib.suppress(UnsupportedError):
                return other, attempt(other)
        raise


def _loadable(plain: Draft, reason: str, *, fixed: bool) -> Iterator[Draft]:
    """Yield drafts for a model that the release of ``plain`` does not load as it is."""
    if plain.release == TF115:
        yield replace(plain, downgrade=f"{reason}.")
    for release in RELEASES if not fixed else ():
        if release != plain.release:
            why = f"TensorFlow {release}, as the default does not load the model: {reason}."
            yield replace(plain, release=release, release_reason=why)


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
    state = plan_state([_recipe(draft, path)])
    run(state)
    (built,) = collect(state)
    return build_report(built)


def _recipe(draft: Draft, path: Path) -> Recipe:
    return load_recipe(path, environ=os.environ, text=recipe_text(draft))


def told(report: Report) -> str:
    """What a build came to, in one line."""
    size, before = report.model.bytes, report.source.bytes
    line = f"{before:,} bytes frozen, {size:,} prepared"
    model = None if report.check is None else report.check.model
    return f"{line}; outputs differ by at most {model.largest_difference:.2g}" if model else line
