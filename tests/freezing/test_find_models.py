"""Finding the graph and the checkpoint of a model in files and directories."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    UnsupportedError,
    UsageError,
)
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.find_models import FoundModel, find_model, inference_graph
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from tests.building.stages.jobs import classifier
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import FLOAT, const, node, placeholder, ref_variable

W = np.zeros(3, np.float32)


def graph(variable="w", *, trains=False):
    nodes = [
        placeholder("x", -1, 3),
        *ref_variable(variable, 3),
        node("y", "Add", "x", f"{variable}/read", T=FLOAT),
    ]
    if trains:
        nodes.append(const("rate", np.float32(1)))
        nodes.append(node("t", "ApplyGradientDescent", variable, "rate", "x", T=FLOAT))
    return Graph(nodes)


def write_meta(path, model):
    meta = pb.MetaGraphDef()
    meta.meta_info_def.tensorflow_version = "1.15.0"
    meta.graph_def.ParseFromString(graph_to_bytes(model))
    path.write_bytes(meta.SerializeToString())


def write_saved_model(folder):
    (folder / "variables").mkdir(parents=True)
    meta = pb.MetaGraphDef()
    meta.graph_def.ParseFromString(graph_to_bytes(classifier()))
    model = pb.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())


def test_graph_without_variables_is_frozen(tmp_path):
    for text in (False, True):
        write_graph(tmp_path / "any.name", classifier(), as_text=text)
        expected = FoundModel("frozen", tmp_path / "any.name")
        assert find_model(tmp_path / "any.name") == expected
    assert find_model(tmp_path) == expected


def test_checkpoint_is_selected_by_its_variables(tmp_path):
    write_graph(tmp_path / "b.pb", graph("v"))
    write_bundle(tmp_path / "b", {"w": W})
    write_bundle(tmp_path / "a", {"v": W, "v/Adam": W})
    write_bundle(tmp_path / "c", {"v": np.zeros(5, np.float32)})
    expected = FoundModel("graph", tmp_path / "b.pb", tmp_path / "a")
    assert find_model(tmp_path / "b.pb") == expected
    assert find_model(tmp_path / "a") == expected
    assert find_model(tmp_path / "a.index") == expected
    assert find_model(tmp_path / "a.data-00000-of-00001") == expected
    assert find_model(tmp_path) == expected


def test_missing_checkpoint_is_reported_with_the_variables(tmp_path):
    write_graph(tmp_path / "g.pb", graph())
    write_bundle(tmp_path / "m", {"other": W})
    for path in (tmp_path, tmp_path / "g.pb"):
        with pytest.raises(InvalidGraphError, match="holds the variables 'w'") as caught:
            find_model(path)
        assert "--checkpoint" in caught.value.hint
    with pytest.raises(InvalidGraphError, match="'w'"):
        find_model(tmp_path / "g.pb", tmp_path / "m")
    with pytest.raises(UsageError, match="is a checkpoint without a graph"):
        find_model(tmp_path / "m.index")


def test_newest_checkpoint_is_selected(tmp_path):
    write_graph(tmp_path / "g.pb", graph())
    for step in (9, 10, 100):
        write_bundle(tmp_path / f"model.ckpt-{step}", {"w": W})
    assert find_model(tmp_path).checkpoint == tmp_path / "model.ckpt-100"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"')
    assert find_model(tmp_path).checkpoint == tmp_path / "model.ckpt-9"
    assert find_model(tmp_path / "checkpoint").checkpoint == tmp_path / "model.ckpt-9"


def test_newest_meta_graph_of_a_training_directory(tmp_path):
    write_graph(tmp_path / "graph.pbtxt", graph(trains=True), as_text=True)
    for step in (1, 20):
        write_bundle(tmp_path / f"model.ckpt-{step}", {"w": W})
        write_meta(tmp_path / f"model.ckpt-{step}.meta", graph(trains=True))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"')
    model = find_model(tmp_path)
    assert (model.kind, model.path.name) == ("meta_graph", "model.ckpt-20.meta")
    assert model.checkpoint is None  # The recipe finds the checkpoint of the same name.
    assert "graph.pbtxt" in model.notes[0]


def test_inference_graph_is_preferred_to_a_training_graph(tmp_path):
    write_graph(tmp_path / "eval.pb", graph())
    write_bundle(tmp_path / "m", {"w": W})
    write_meta(tmp_path / "m.meta", graph(trains=True))
    assert find_model(tmp_path).path.name == "eval.pb"
    named = find_model(tmp_path / "m.meta")
    assert (named.kind, named.path.name) == ("meta_graph", "m.meta")
    inference = inference_graph(named)
    assert inference is not None
    assert (inference.path.name, inference.checkpoint) == ("eval.pb", tmp_path / "m")


def test_saved_model_is_found_by_directory_file_or_variables(tmp_path):
    folder = tmp_path / "net" / "1"
    write_saved_model(folder)
    write_bundle(folder / "variables" / "variables", {"w": W})
    expected = FoundModel("saved_model", folder)
    for path in (folder, folder / "saved_model.pb", folder / "variables" / "variables.index"):
        assert find_model(path) == expected
    (folder / "saved_model.pb").rename(tmp_path / "model.pb")
    with pytest.raises(CorruptFileError, match="under another name"):
        find_model(tmp_path / "model.pb")


def test_newest_version_is_selected(tmp_path):
    for version in ("9", "00000010"):
        write_saved_model(tmp_path / version)
    model = find_model(tmp_path)
    assert model.path == tmp_path / "00000010"
    assert "newest" in model.notes[0]


def test_several_models_are_refused(tmp_path):
    write_graph(tmp_path / "a.pb", classifier())
    write_graph(tmp_path / "a.pbtxt", classifier(), as_text=True)
    write_graph(tmp_path / "b.pb", classifier())
    with pytest.raises(UsageError, match=r"holds 2 models: a\.pb, b\.pb") as caught:
        find_model(tmp_path)
    assert str(tmp_path / "a.pb") in caught.value.hint
    for name in ("x", "y"):
        (tmp_path / "below" / name).mkdir(parents=True)
        write_graph(tmp_path / "below" / name / "frozen.pb", classifier())
    with pytest.raises(UsageError, match=r"x/frozen\.pb, y/frozen\.pb"):
        find_model(tmp_path / "below")


def test_path_without_a_model_is_reported(tmp_path):
    (tmp_path / "notes.yaml").write_text("version: 1\n")
    (tmp_path / "photo.pb").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(CorruptFileError, match="holds no model"):
        find_model(tmp_path)
    with pytest.raises(CorruptFileError, match="holds no node"):
        find_model(tmp_path / "notes.yaml")
    with pytest.raises(UnsupportedError, match=r"is an image \(JPEG\)"):
        find_model(tmp_path / "photo.pb")
    with pytest.raises(CorruptFileError, match="does not exist"):
        find_model(tmp_path / "none.pb")
