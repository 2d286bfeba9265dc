"""Every error names its file, is cut, printable and has a mend: asked of each class and verb."""

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
from tests.fuzz.judge import faults
from tests.fuzz.runs import case_of

SEED = 9
EACH = 12
"""Cases of each verb that are run."""
NO_FILES = frozenset({"completion", "schema"})
ENDLESS = frozenset({"watch"})  # runs what ``build`` runs, until it is interrupted

if not sys.platform.startswith("linux"):
    pytest.skip("processes are limited as Linux does it", allow_module_level=True)
import_formats()


@lru_cache(maxsize=1)
def by_verb() -> dict[str, list[Case]]:
    """Cases of all formats by the verb that they run; most verbs take graphs."""
    found: dict[str, list[Case]] = {}
    for name in formats:
        for number in range(400 if name == "graph" else 40):
            case = case_of(name, SEED, number)
            found.setdefault(case.arguments[0], []).append(case)
    return found


def test_every_verb_that_reads_files_is_fuzzed() -> None:
    assert set(by_verb()) == set(verb_names()) - NO_FILES - ENDLESS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("verb", sorted(set(verb_names()) - NO_FILES - ENDLESS))
def test_every_verb_refuses_mutants_in_words(verb: str) -> None:
    cases = by_verb()[verb]
    chosen = random.Random(SEED).sample(cases, min(EACH, len(cases)))
    outcomes = list(run_cases(chosen))
    assert [faults(case, outcome) for case, outcome in outcomes] == [[]] * len(chosen)
    assert any(outcome.code > 1 for _, outcome in outcomes), "nothing was refused"


def classes(base: type[MobileprepError] = MobileprepError) -> Iterator[type[MobileprepError]]:
    """All classes of errors, those of single layers too."""
    for kind in base.__subclasses__():
        yield kind
        yield from classes(kind)


def test_every_class_of_any_layer_has_an_exit_code_and_a_mend(imported: None) -> None:
    own = [kind for kind in classes() if kind.__module__.startswith("mobileprep.")]
    assert {kind.__module__ for kind in own} > {errors.__name__}
    for kind in own:
        assert kind.exit_code in {*range(2, 10), 70}, kind
        # A recipe's problems have their mends beside them, and a bug is for us to mend.
        if not issubclass(kind, (RecipeError, InternalError)):
            assert mend_of(kind.__new__(kind)), kind
