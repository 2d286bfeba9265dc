"""Running graphs on arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep import CorruptFileError, Graph, InvalidGraphError, UsageError, run, save_graph
from mobileprep.formats.dtypes import DType
from tests.freezing.graphs import placeholder
from tests.freezing.saved import write_saved_model
from tests.transforms.graphs import node


def graph() -> Graph:
    nodes = [placeholder("x", -1, 2), placeholder("y", -1, 2)]
    return Graph([*nodes, node("sum", "Add", "x y"), node("out", "Relu", "sum")])


def test_feeds_are_converted_in_width_and_fetches_have_the_names_asked_for() -> None:
    given = {"x": [[1.0, -3.0]], "y": np.ones((1, 2), np.float64)}
    found = run(graph(), given, ["sum", "out:0"])
    assert {name: a.tolist() for name, a in found.items()} == {
        "sum": [[2.0, -2.0]],
        "out:0": [[2.0, 0.0]],
    }
    assert found["sum"].dtype == np.float32


def test_without_fetches_the_graph_s_ends_are_computed() -> None:
    assert list(run(graph(), {"x": np.ones((3, 2)), "y": np.ones((1, 2))})) == ["out"]


def test_paths_of_models_are_accepted(tmp_path: Path) -> None:
    save_graph(graph(), tmp_path / "model.pb")
    feeds = {"x": [[1.0, 2.0]], "y": [[1.0, 2.0]]}
    assert run(tmp_path / "model.pb", feeds)["out"].tolist() == [[2.0, 4.0]]
    (tmp_path / "exported").mkdir()
    write_saved_model(tmp_path / "exported")
    found = run(str(tmp_path / "exported"), {"in": [10.0, 20.0, 30.0]})
    assert len(found) == 1


def test_a_name_by_itself_is_one_fetch() -> None:
    given = {"x": [[1.0, -3.0]], "y": [[1.0, 1.0]]}
    assert list(run(graph(), given, "sum")) == ["sum"]


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(UsageError, match="the value for 'x' is not an array: "):
        run(graph(), {"x": [[1.0], [1.0, 2.0]]})


def test_strings_are_fed_as_strings() -> None:
    texts = Graph(
        [placeholder("t", -1, dtype=DType.STRING), node("out", "Identity", "t", T=DType.STRING)]
    )
    assert run(texts, {"t": ["a", "bc"]})["out"].tolist() == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("feeds", "fetches", "told"),
    [
        ({"x": [[1.0, 2.0]]}, ["out"], "nothing is fed to the placeholder 'y'"),
        ({"xx": [[1.0]]}, ["out"], "the graph has no tensor 'xx'"),
        ({"x": [1.0], "y": [1.0]}, ["out"], "'x' takes the shape [?, 2]"),
        ({"x": [["a", "b"]], "y": [[1.0, 1.0]]}, ["out"], "'x' takes float32"),
        ({}, ["none"], "'none' is not in the graph"),
    ],
)
def test_unsuitable_feed_is_refused(
    feeds: dict[str, object], fetches: list[str], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        run(graph(), feeds, fetches)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_a_graph_without_ends_needs_fetches() -> None:
    with pytest.raises(UsageError, match="no tensors are named"):
        run(Graph([]))


def test_unknown_engine_or_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown engine 'numpi'"):
        run(graph(), {}, ["out"], engine="numpi")
    with pytest.raises(CorruptFileError):
        run(tmp_path / "none.pb")


def test_failed_run_lists_sizes_of_open_shapes() -> None:
    open_shape = Graph(
        [
            node("x", "Placeholder", T=None, dtype=DType.FLOAT),
            node("y", "Placeholder", T=None, dtype=DType.FLOAT),
            node("out", "Add", "x y"),
        ]
    )
    with pytest.raises(InvalidGraphError) as error:
        run(open_shape, {"x": [1.0, 2.0], "y": [1.0, 2.0, 3.0]})
    assert "'x' is fed the shape [2]" in error.value.hint
