"""Fixtures for the cases of every format."""

from __future__ import annotations

import pytest

from tests.fuzz import seeds


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import the whole package before a case forks."""
    seeds.import_all()
