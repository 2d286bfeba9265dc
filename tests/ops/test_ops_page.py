"""The page of ops."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("PIL.Image", reason="the cases of pictures need Pillow")


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("page", ROOT / "tools" / "make_ops_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command = "python tools/make_ops_page.py docs/ops.md"
    assert (ROOT / "docs" / "ops.md").read_text(encoding="utf-8") == module.render(), command
