"""The table of kernel code sizes matches the 1.15 wheel."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.reference

TOOL = Path(__file__).parents[2] / "tools" / "make_kernel_code.py"


def test_table_is_up_to_date(original: Path) -> None:
    pytest.importorskip("elftools")
    tool = runpy.run_path(str(TOOL))
    library = original / "tensorflow_core/python/_pywrap_tensorflow_internal.so"
    table = json.loads(tool["TABLE"].read_text(encoding="utf-8"))
    assert table == {"bytes": tool["kernel_code"](library), "source": tool["SOURCE"]}
