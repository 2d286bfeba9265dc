"""Every error names its file, has help, is printable, and has a bounded length."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import lru_cache

import pytest

from mobileprep import errors
from mobileprep.cli._shared.failures import mend_of
from mobileprep.cli.main import verb_names
from mobileprep.errors import InternalError, MobileprepError, RecipeError
from tests.fuzz.__main__ import import_formats
from tests.fuzz.batches import run_cases
from tests.fuzz.case import Case, formats
from tests.fuzz.judge import problems
from tests.fuzz.runs import case_of

SEED = 9
CASES_PER_VERB = 12
"""Cases to run for each verb."""
NO_FILES = frozenset({"completion", "ops", "schema"})
ENDLESS = frozenset({"watch"})  # runs builds until it is interrupted

if not sys.platform.startswith("linux"):
    pytest.skip("process limits work on Linux only", allow_module_level=True)
import_formats()


@lru_cache(maxsize=1)
def by_verb() -> dict[str, list[Case]]:
    """Cases of all formats, by verb; most verbs read graphs."""
    cases: dict[str, list[Case]] = {}
    for name in formats:
        for number in range(400 if name == "graph" else 40):
            case = case_of(name, SEED, number)
            cases.setdefault(case.arguments[0], []).append(case)
    return cases


def test_every_verb_that_reads_files_is_fuzzed() -> None:
    assert set(by_verb()) == set(verb_names()) - NO_FILES - ENDLESS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("verb", sorted(set(verb_names()) - NO_FILES - ENDLESS))
def test_every_verb_rejects_damaged_files_with_help(verb: str) -> None:
    cases = by_verb()[verb]
    chosen = random.Random(SEED).sample(cases, min(CASES_PER_VERB, len(cases)))
    outcomes = list(run_cases(chosen))
    assert [problems(case, outcome) for case, outcome in outcomes] == [[]] * len(chosen)
    # `choose` prints the problem of each model in its table.
    least = 1 if verb == "choose" else 2
    assert any(outcome.code >= least for _, outcome in outcomes), "no case failed"


def error_classes(base: type[MobileprepError] = MobileprepError) -> Iterator[type[MobileprepError]]:
    """All error error_classes, including those of single layers."""
    for kind in base.__subclasses__():
        yield kind
        yield from error_classes(kind)


def test_every_error_class_has_an_exit_code_and_help(imported: None) -> None:
    own = [kind for kind in error_classes() if kind.__module__.startswith("mobileprep.")]
    assert {kind.__module__ for kind in own} > {errors.__name__}
    for kind in own:
        assert kind.exit_code in {*range(2, 10), 70}, kind
        # Each problem of a recipe has its own help, and users cannot fix a bug.
        if not issubclass(kind, (RecipeError, InternalError)):
            assert mend_of(kind.__new__(kind)), kind
