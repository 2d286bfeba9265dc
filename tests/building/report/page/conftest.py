"""Fixtures for tests in Chromium; modules define the fixture ``page_file``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.building.report.page.browser import browser, built, chromium, opened


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as chrome:
        yield chrome


@pytest.fixture
def page(chrome: Any, page_file: Path) -> Iterator[Any]:
    with opened(chrome, page_file) as page:
        yield page


@pytest.fixture(scope="module")
def plain_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chromium()  # skip the build without Chromium
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("page")
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        return built(folder)
