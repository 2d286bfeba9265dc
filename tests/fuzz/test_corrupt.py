"""What fuzzing has found stays mended: every case below ``tests/corrupt``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzz.case import NOTE, kept_case
from tests.fuzz.judge import faults
from tests.fuzz.limits import run_case

CORRUPT = Path(__file__).parents[1] / "corrupt"

if not sys.platform.startswith("linux"):
    pytest.skip("processes are limited as Linux does it", allow_module_level=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("name", sorted(p.parent.name for p in CORRUPT.glob(f"*/{NOTE}")))
def test_a_finding_stays_mended(name: str) -> None:
    case = kept_case(CORRUPT / name)
    assert faults(case, run_case(case)) == []
