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


@dataclass(frozen=True)
class Tried:
    """A draft that builds, and the report of its build."""

    draft: Draft
    report: Report


def tried(draft: Draft, path: Path, run: RunStages) -> Tried:
    """The draft with the most that builds: checked and quantized, checked, or neither.

    What a build runs stays in the store, so that the user's first build has little left to do.

    Args:
        draft: without check and quantization.
        path: where the recipe will lie.
        run: called with the plan of each draft that is tried.

    Raises:
        MobileprepError: the model cannot be built even so.
    """
    draft, report = _registered(draft, lambda plain: _built(plain, path, run))
    why: list[str] = []
    for better in _better(draft):
        try:
            return Tried(*_explained(better, path, run, why))
        except MobileprepError as error:
            why.append(first_line(error))
    told = replace(draft, unchecked=f"{_reason(draft) or why[-1]}.", unquantized=_UNQUANTIZED)
    return Tried(told, report)


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


def _better(draft: Draft) -> Iterator[Draft]:
    yield replace(draft, check=EIGHT_BIT_LIMIT, quantize=True)
    yield replace(draft, check=FLOAT_LIMIT)


def _explained(draft: Draft, path: Path, run: RunStages, why: list[str]) -> tuple[Draft, Report]:
    report = _built(draft, path, run)
    if draft.quantize and report.check is not None and report.check.warnings:
        # A check that proves little is none: what 8 bits do would not be seen.
        raise AccuracyError(report.check.warnings[0])
    if why and not draft.quantize:
        draft = replace(draft, unquantized=f"The weights stay float: {why[-1]}.")
    return draft, report


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
    gaps = [s.largest_difference for s in report.steps if s.largest_difference is not None]
    return f"{line}; outputs differ by at most {gaps[-1]:.2g}" if gaps else line
