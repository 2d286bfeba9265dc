"""Empty file names, such as those from unset variables of scripts, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.transforms.graphs import node

PLACEHOLDER = node("x", "Placeholder", T=None, dtype=DType.FLOAT)


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
def test_empty_name_is_refused(run: Run, workdir: Path, command: tuple[str, ...]) -> None:
    write_graph(Path("m.pb"), Graph([PLACEHOLDER, node("y", "Relu", "x")]))
    result = run(*command)
    assert (result.code, result.out) == (2, "")
    assert "an empty name is not a file" in result.err
    assert [file.name for file in workdir.iterdir()] == ["m.pb"]
