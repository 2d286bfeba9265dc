"""Subgraphs between feeds and fetches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.subgraph import (
    TableFiller,
    checked_feeds,
    cut_out,
    folders_near,
    with_found_assets,
)
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.lookup.test_tables import STRING, filled, table, text_const
from tests.ops.strings.test_conversion import scalar, texts
from tests.transforms.graphs import const, node, normal, placeholder

GRAPH = Graph(
    [
        placeholder(),
        placeholder("other"),
        const("two", 2.0),
        node("parts", "Split", "axis x", num_split=2),
        const("axis", 0, np.int32),
        node("double", "Mul", "parts:1 two"),
        node("late", "Neg", "double ^x ^other"),
        node("sum", "AddV2", "late other"),
    ]
)


def cut(fetches: list[str], **feeds: np.ndarray):
    return cut_out(GRAPH, fetches, {k.replace("_", ":"): v for k, v in feeds.items()}, "graph")


def test_subgraph_computes_the_same() -> None:
    x, other = normal(4, 3), normal(2, 3, seed=1)
    part = cut(["sum", "double"], x=x, other=other)
    fed = dict(zip(part.inputs, (x, other), strict=True))
    result = Interpreter(part.graph).run(list(part.outputs), fed)
    expected = Interpreter(GRAPH).run(["sum", "double"], {"x": x, "other": other})
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_placeholders_have_fed_shapes_and_types() -> None:
    part = cut(["double"], x=normal(4, 3))
    fed = part.graph[part.inputs[0]]
    assert fed.attr_shape("shape") == (4, 3)
    assert fed.attr_dtype("dtype") is DType.FLOAT


def test_inner_tensor_can_be_fed() -> None:
    part = cut(["double"], parts_1=normal(2, 3))
    assert {n.op for n in part.graph} == {"Placeholder", "Const", "Mul", "Identity"}


def test_control_inputs_from_feeds_are_removed() -> None:
    part = cut(["late"], x=normal(4, 3), other=normal(2, 3))
    assert all(not r.is_control for n in part.graph for r in n.inputs)


def test_feed_can_be_fetched() -> None:
    x = normal(2)
    part = cut(["x"], x=x)
    [result] = Interpreter(part.graph).run(list(part.outputs), {part.inputs[0]: x})
    np.testing.assert_array_equal(result, x)


def test_missing_feed_is_named() -> None:
    with pytest.raises(UsageError, match="'other'"):
        cut(["sum"], x=normal(4, 3))


@pytest.mark.parametrize("name", ["nothing", "double:1", "^x"])
def test_unknown_fetches_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not in the graph"):
        cut([name], x=normal(4, 3))


def test_invalid_feeds_are_refused() -> None:
    with pytest.raises(UsageError, match="'x' takes float32"):
        checked_feeds(GRAPH, {"x": np.zeros(3)}, "graph")
    with pytest.raises(UsageError, match="the feed 'y' is not in the graph"):
        checked_feeds(GRAPH, {"y": normal(3)}, "graph")


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


WORDS = {"words": texts("no", "?")}


def test_engine_fills_its_tables() -> None:
    engine = open_engine("numpy", filled(), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert engine.run(["size"], {})[0] == 2


def test_tables_are_filled_once_if_needed() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["default"], {})) == []
    assert list(filler.due(["find"], WORDS)) == ["fill"]
    assert list(filler.due(["find"], WORDS)) == []


def test_fed_lookup_needs_no_table() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["find"], {"find": texts("x")})) == []


def mutable_table(*fill: str) -> Graph:
    """A mutable_table table, and nodes that insert constants or feeds."""
    nodes = [
        text_const("keys", texts("yes", "no")),
        const("values", [7, 8], np.int64),
        node("numbers", "Placeholder", T=None, dtype=DType.INT64),
        *(node(f"fill{i}", *kind.split(" ", 1), T=None) for i, kind in enumerate(fill)),
    ]
    return table(nodes, kind="MutableHashTable")


@pytest.mark.parametrize("kind", ["LookupTableImportV2", "LookupTableInsertV2"])
def test_mutable_tables_are_filled(kind: str) -> None:
    engine = open_engine("numpy", mutable_table(f"{kind} table keys values"), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]


def test_fill_that_depends_on_a_feed_is_skipped() -> None:
    graph = mutable_table("LookupTableInsertV2 table words numbers")
    assert list(TableFiller(graph, "graph").due(["find"], WORDS)) == []
    assert open_engine("numpy", graph, None).run(["find"], WORDS)[0].tolist() == [-1, -1]


def test_filling_is_not_observed() -> None:
    names: list[str] = []

    def observe(nodes, *_) -> None:
        names.extend(n.name for n in nodes)

    engine = NumpyEngine(filled(), "graph", observer=observe)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert "find" in names
    assert "fill" not in names
