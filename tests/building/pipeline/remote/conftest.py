from __future__ import annotations

from collections.abc import Iterator

import pytest

from mobileprep.building.pipeline.remote import base, guarded, http, object_store
from tests.building.pipeline.remote.faulty_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes tenths."""
    for module in (base, http, object_store):
        monkeypatch.setattr(module, "SILENT_SECONDS", 0.4)
    monkeypatch.setattr(guarded, "FIRST_PAUSE", 0.001)
