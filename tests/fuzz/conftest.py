"""What the cases of every format need."""

from __future__ import annotations

import pytest

from tests.fuzz import seeds


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """All of the package is imported before a case forks."""
    seeds.import_all()
