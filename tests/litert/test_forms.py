"""The operators of ``docs/reference/litert.md`` in the newest LiteRT and TensorFlow releases."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from mobileprep.litert.versions import _RELEASES, first_release
from tests.litert import forms
from tests.litert.test_builtins import CASES

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference/litert.md"
SHORT: Final = {
    "float32": "f32",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "int16": "i16",
    "bool": "bool",
}
# Covered by tests of the graphs that become them.
ELSEWHERE: Final = frozenset(
    {
        *("CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
        *("IF", "WHILE", "CONV_3D_TRANSPOSE", "FAKE_QUANT", "RANDOM_UNIFORM", "RANK"),
        *("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "EMBEDDING_LOOKUP"),
        *("SPARSE_TO_DENSE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
    }
)


class Row(NamedTuple):
    """A row of the page's table."""

    dtypes: frozenset[str]
    ranks: range
    release: str


def rows() -> dict[str, Row]:
    table = PAGE.read_text("utf-8").partition("## Operators\n")[2].partition("\n## ")[0]
    table_rows = {}
    for code, dtypes, ranks, release in re.findall(
        r"^\| `([A-Z0-9_]+)` \| (.*?) \| (.*?) \| (.*?) \|$", table, re.M
    ):
        ends = [int(n) for n in re.findall(r"\d+", ranks)] or [0]
        kinds = frozenset(SHORT.get(name, name) for name in dtypes.split(", "))
        table_rows[code] = Row(kinds, range(ends[0], ends[-1] + 1), release)
    return table_rows


def test_page_lists_all_operators_and_their_first_release() -> None:
    assert {code: row.release for code, row in rows().items()} == {
        code: first_release(code) for code in sorted(_RELEASES)
    }


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("module", ["ai_edge_litert", "tensorflow.lite.python"])
def test_runtimes_run_every_form_on_the_page(tmp_path: Path, module: str, *, plain: bool) -> None:
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed")
    table, labels = rows(), set()

    def is_included(label: str) -> bool:
        code, dtype, rank, form = label.split()
        row = table[code]
        # See the lowering of Atan2, and literal axes in ranks.py.
        if code == "ATAN2" and form != "same":
            return False
        labels.add(code)
        ranks = (row.ranks[0], min(4, row.ranks[-1]), row.ranks[-1])
        return dtype in row.dtypes and int(rank) in ranks

    forms.build(tmp_path / "files", is_included)
    assert labels | set(CASES) | ELSEWHERE == set(table)
    result = tmp_path / "result.json"
    command = [sys.executable, forms.__file__, "run", str(tmp_path / "files"), str(result)]
    environment = {**os.environ, "LITERT_MODULE": f"{module}.interpreter"}
    subprocess.run(command + ["--plain"] * plain, check=True, env=environment)
    outcomes = json.loads(result.read_text())
    assert outcomes
    assert {k: v for k, v in outcomes.items() if not v.startswith("ok")} == {}
