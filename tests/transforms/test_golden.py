"""The lines that each transform removes from its example and adds, in `tests/golden/transforms`.

``python -m tests.transforms.test_golden`` rewrites them.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import tempfile
from pathlib import Path

import pytest

from mobileprep.graph.text import graph_text
from mobileprep.transforms.base import Context, transform_names
from mobileprep.transforms.chains.chain import ChainStep, run_step
from tests.transforms.busy import write_files
from tests.transforms.examples import example

_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "transforms"


def changes(name: str) -> str:
    """The lines that the transform removes from its example and adds to it."""
    given = example(name)
    context = Context(given.inputs, given.outputs)
    result = run_step(given.graph, ChainStep(name, given.options), context)
    before, after = (graph_text(g).splitlines() for g in (given.graph, result.graph))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    return "".join(f"{_rounded(line)}\n" for line in lines if not line.startswith("@@"))


def _rounded(line: str) -> str:
    line = _NUMBER.sub(lambda m: f"{float(m[0]):.4g}", line)
    return re.sub(r"sha256 \w+", "sha256", line)


@pytest.mark.parametrize("name", transform_names())
def test_a_transform_changes_these_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    found, golden = changes(name), (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert _NUMBER.sub("#", found) == _NUMBER.sub("#", golden)
    numbers = [[float(n) for n in _NUMBER.findall(text)] for text in (found, golden)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3)  # last digits depend on the processor


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        for each in transform_names():
            (FOLDER / f"{each}.txt").write_text(changes(each), encoding="utf-8")
