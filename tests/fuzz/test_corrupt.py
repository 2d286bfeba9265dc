"""Bugs that fuzzing found stay fixed: every case in ``tests/corrupt``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzz.case import NOTE, read_case
from tests.fuzz.judge import problems
from tests.fuzz.limits import run_case

CORRUPT = Path(__file__).parents[1] / "corrupt"

if not sys.platform.startswith("linux"):
    pytest.skip("process limits work on Linux only", allow_module_level=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("name", sorted(p.parent.name for p in CORRUPT.glob(f"*/{NOTE}")))
def test_fuzzing_bugs_stay_fixed(name: str) -> None:
    case = read_case(CORRUPT / name)
    assert problems(case, run_case(case)) == []
