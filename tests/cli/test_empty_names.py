"""An empty name, as of a variable that a script has not set, names no file and no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.transforms.graphs import node

GIVEN = node("x", "Placeholder", T=None, dtype=DType.FLOAT)


@pytest.mark.parametrize(
    "command",
    [
        ("summarize_graph", "--in_graph="),
        ("graph_to_dot", "--graph=", "--dot_output=o.dot"),
        ("transform_graph", "--in_graph=", "--out_graph=o.pb", "--transforms=fold_constants"),
        ("convert_graphdef_memmapped_format", "--in_graph=", "--out_graph=o.pb"),
        ("benchmark_model", "--graph="),
        ("label_image", "--graph="),
        ("run", "--graph", ""),
        ("tflite", "--in_graph=", "--out_file=o.tflite"),
        ("compare_graphs", "m.pb", ""),
        ("compare", "", "m.pb"),
        ("diff", "m.pb", ""),
        ("diff", "", "m.pb"),
        ("migrate", ""),
        ("check-target", ""),
        ("init", "", "--recipe=-"),
        ("verify", ""),
    ],
)
def test_an_empty_name_is_told_where_a_model_lies_in_the_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("m.pb"), Graph([GIVEN, node("y", "Relu", "x")]))
    told = run(*command)
    assert (told.code, told.out) == (2, "")
    assert "an empty name is not a file" in told.err
    assert [file.name for file in tmp_path.iterdir()] == ["m.pb"]
