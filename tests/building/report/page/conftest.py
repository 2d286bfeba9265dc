"""Fixtures for tests in Chromium; modules define the fixture ``page_file``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.building.report.page.browser import browser, opened


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as chrome:
        yield chrome


@pytest.fixture
def page(chrome: Any, page_file: Path) -> Iterator[Any]:
    with opened(chrome, page_file) as page:
        yield page
