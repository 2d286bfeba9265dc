"""Asset files are searched near the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets
from tests.ops.lookup.test_tables import STRING, table, text_const
from tests.ops.strings.test_conversion import scalar, texts
from tests.transforms.graphs import node


def file_table(name: str, *, via_identity: bool = False) -> Graph:
    """A table filled from the lines of a file."""
    file = text_const("file", np.full((), name.encode(), dtype=object))
    identity = node("on", "Identity", "file", T=STRING)
    fill = node(
        "fill",
        "InitializeTableFromTextFileV2",
        f"table {'on' if via_identity else 'file'}",
        T=None,
        key_index=-2,
        value_index=-1,
    )
    return table([file, identity, fill])


def look_up(graph: Graph, path: Path) -> list[int]:
    engine = open_engine("numpy", graph, path)
    return engine.run(["find"], {"words": texts("no", "?")})[0].tolist()


@pytest.mark.parametrize("folder", [".", "assets", "assets/more"])
@pytest.mark.parametrize("via_identity", [False, True])
def test_file_near_the_graph_or_in_assets_is_read(
    folder: str, via_identity: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "words.txt").write_text("yes\nno\n")
    monkeypatch.chdir(Path(__file__).parent)
    name = "more/words.txt" if folder.endswith("more") else "words.txt"
    assert look_up(file_table(name, via_identity=via_identity), tmp_path / "graph.pb") == [1, -1]


@pytest.mark.parametrize("folder", [".", "assets"])
@pytest.mark.parametrize(
    "name", ["/home/trainer/export/words.txt", "C:\\export\\words.txt", "export/words.txt"]
)
def test_missing_absolute_path_is_searched_by_name(name: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "words.txt").write_text("yes\nno\n")
    assert look_up(file_table(name), tmp_path / "graph.pb") == [1, -1]


def test_existing_absolute_path_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("yes\nno\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "words.txt").write_text("no\n")
    assert look_up(file_table(str(tmp_path / "far" / "words.txt")), tmp_path / "graph.pb") == [
        0,
        -1,
    ]


def test_engine_searches_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.txt").write_text("no\n")
    monkeypatch.chdir(tmp_path)
    assert look_up(file_table("words.txt"), Path("elsewhere/graph.pb")) == [0, -1]
    with pytest.raises(CorruptFileError, match=r"none\.txt"):
        look_up(file_table("none.txt"), Path("graph.pb"))


@pytest.mark.parametrize("name", ["/etc/hostname", "a\0b", "", "x" * 5000, "..", "\udcff.txt"])
def test_other_names_are_not_changed(name: str, tmp_path: Path) -> None:
    graph = file_table("words.txt")
    value = np.full((), name.encode("utf-8", "surrogateescape"), dtype=object)
    graph = graph.with_nodes([text_const("file", value) if n.name == "file" else n for n in graph])
    assert with_found_assets(graph, [tmp_path]) is graph


def test_graph_without_files_is_not_changed(tmp_path: Path) -> None:
    graph = table([text_const("keys", scalar("x"))])
    assert with_found_assets(graph, folders_near(tmp_path / "graph.pb")) is graph


def test_other_strings_are_not_changed(tmp_path: Path) -> None:
    # The string is only joined to another; a path would change the output of the model.
    (tmp_path / "words.txt").write_text("no\n")
    name = text_const("name", np.full((), b"words.txt", dtype=object))
    joined = node("joined", "StringJoin", "name name", T=None, N=2)
    graph = Graph([name, joined])
    assert with_found_assets(graph, [tmp_path]) is graph
