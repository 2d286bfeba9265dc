"""Graph files by the public face."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep import CorruptFileError, load_graph, save_graph
from mobileprep.graph.serde import graph_to_bytes
from tests.building.stages.jobs import classifier


@pytest.mark.parametrize("as_text", [False, True])
def test_a_graph_comes_back_as_it_was_saved(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "graph"
    save_graph(classifier(), path, as_text=as_text)
    assert path.read_bytes().startswith(b"node {") == as_text
    for spelt in (path, str(path)):
        assert graph_to_bytes(load_graph(spelt)) == graph_to_bytes(classifier())


def test_binary_is_the_default_and_the_same_path_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    save_graph(classifier(), path)
    assert path.read_bytes() == graph_to_bytes(classifier())
    save_graph(load_graph(path), path)
    assert path.read_bytes() == graph_to_bytes(classifier())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError) as caught:
        load_graph(tmp_path / "none.pb")
    assert caught.value.where == str(tmp_path / "none.pb")
