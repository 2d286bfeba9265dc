"""Files that a graph names are found where its folder lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets
from tests.ops.lookup.test_tables import STRING, table, text_const
from tests.ops.strings.test_joining import scalar, texts
from tests.transforms.graphs import node


def reading(name: str, *, passed_on: bool = False) -> Graph:
    """A table that is filled from the lines of a file."""
    file = text_const("file", np.full((), name.encode(), dtype=object))
    on = node("on", "Identity", "file", T=STRING)
    fill = node(
        "fill",
        "InitializeTableFromTextFileV2",
        f"table {'on' if passed_on else 'file'}",
        T=None,
        key_index=-2,
        value_index=-1,
    )
    return table([file, on, fill])


def found(graph: Graph, path: Path) -> list[int]:
    engine = open_engine("numpy", graph, path)
    return engine.run(["find"], {"words": texts("no", "?")})[0].tolist()


@pytest.mark.parametrize("folder", [".", "assets", "assets/more"])
@pytest.mark.parametrize("passed_on", [False, True])
def test_a_file_beside_the_graph_or_in_assets_is_read(
    folder: str, passed_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "words.txt").write_text("yes\nno\n")
    monkeypatch.chdir(Path(__file__).parent)
    name = "more/words.txt" if folder.endswith("more") else "words.txt"
    assert found(reading(name, passed_on=passed_on), tmp_path / "graph.pb") == [1, -1]


@pytest.mark.parametrize("folder", [".", "assets"])
@pytest.mark.parametrize(
    "name", ["/home/trainer/export/words.txt", "C:\\export\\words.txt", "export/words.txt"]
)
def test_a_path_of_another_machine_is_looked_for_by_its_name(
    name: str, folder: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "words.txt").write_text("yes\nno\n")
    assert found(reading(name), tmp_path / "graph.pb") == [1, -1]


def test_an_absolute_path_that_exists_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("yes\nno\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "words.txt").write_text("no\n")
    assert found(reading(str(tmp_path / "far" / "words.txt")), tmp_path / "graph.pb") == [0, -1]


def test_what_is_not_there_is_looked_for_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.txt").write_text("no\n")
    monkeypatch.chdir(tmp_path)
    assert found(reading("words.txt"), Path("elsewhere/graph.pb")) == [0, -1]
    with pytest.raises(CorruptFileError, match=r"none\.txt"):
        found(reading("none.txt"), Path("graph.pb"))


@pytest.mark.parametrize("name", ["/etc/hostname", "a\0b", "", "x" * 5000, "..", "\udcff.txt"])
def test_other_names_are_left_alone(name: str, tmp_path: Path) -> None:
    graph = reading("words.txt")
    value = np.full((), name.encode("utf-8", "surrogateescape"), dtype=object)
    graph = graph.with_nodes([text_const("file", value) if n.name == "file" else n for n in graph])
    assert with_found_assets(graph, [tmp_path]) is graph


def test_a_graph_without_files_stays_itself(tmp_path: Path) -> None:
    graph = table([text_const("keys", scalar("x"))])
    assert with_found_assets(graph, folders_near(tmp_path / "graph.pb")) is graph


def test_a_text_that_no_table_reads_may_be_a_file_s_name(tmp_path: Path) -> None:
    # Only joined to another; a path in its place would change what the model answers.
    (tmp_path / "words.txt").write_text("no\n")
    name = text_const("name", np.full((), b"words.txt", dtype=object))
    joined = node("joined", "StringJoin", "name name", T=None, N=2)
    graph = Graph([name, joined])
    assert with_found_assets(graph, [tmp_path]) is graph
