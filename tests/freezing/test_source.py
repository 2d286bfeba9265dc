"""Loading models from files of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions, SavedValue, TensorSpec
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import write_graph
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.damage import KINDS, check_damaged
from tests.freezing.graphs import FLOAT
from tests.freezing.saved import MODEL, W, meta, write_meta, write_saved_model


def frozen_value(model):
    return freeze(model, FreezeOptions(("y",))).graph["w"].attr_tensor("value").array()


def test_graph_with_its_checkpoint(tmp_path):
    write_bundle(tmp_path / "ckpt", {"w": W})
    for text in (False, True):
        path = tmp_path / "graph"
        write_graph(path, MODEL.graph, as_text=text)
        model = load_source(graph=path, checkpoint=tmp_path / "ckpt")
        np.testing.assert_array_equal(frozen_value(model), W)
        assert model.where == str(path)


def test_meta_graph_uses_the_checkpoint_next_to_it(tmp_path):
    path = write_meta(tmp_path)
    assert load_source(meta_graph=path).checkpoint is None
    write_bundle(tmp_path / "model", {"w": W})
    model = load_source(meta_graph=path)
    np.testing.assert_array_equal(frozen_value(model), W)
    assert model.restore_op == "save/restore_all"
    write_bundle(tmp_path / "other", {"w": W + 1})
    other = load_source(meta_graph=path, checkpoint=tmp_path / "other")
    np.testing.assert_array_equal(frozen_value(other), W + 1)


def test_saved_model_includes_its_variables(tmp_path):
    model = load_source(saved_model=write_saved_model(tmp_path))
    np.testing.assert_array_equal(frozen_value(model), W)
    signature = model.signatures["serving_default"]
    assert dict(signature.inputs) == {"in": TensorSpec("x:0", FLOAT, (3,))}
    assert list(signature.outputs) == ["out"]
    assert freeze(model, FreezeOptions()).outputs == ("y:0",)


def test_restore_op_of_a_saver_file(tmp_path):
    path = tmp_path / "saver.pb"
    path.write_bytes(pb.SaverDef(restore_op_name="mine/restore_all").SerializeToString())
    assert load_source(meta_graph=write_meta(tmp_path), saver=path).restore_op == "mine/restore_all"


def test_exactly_one_kind_of_model_is_required(tmp_path):
    with pytest.raises(UsageError, match="0 of a graph, a meta graph and a saved model"):
        load_source()
    with pytest.raises(UsageError, match="2 of a graph"):
        load_source(graph=tmp_path, saved_model=tmp_path)


def test_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(CorruptFileError, match="is a MetaGraphDef, not a GraphDef"):
        load_source(graph=write_meta(tmp_path))


def test_init_ops_of_a_signature_or_a_collection(tmp_path):
    proto = meta()
    proto.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init:0"
    proto.collection_def["saved_model_main_op"].node_list.value.append("main")
    model = load_source(meta_graph=write_meta(tmp_path, proto))
    assert model.init_ops == ("init", "main")
    assert list(model.signatures) == ["serving_default"]


def test_assets_of_the_model_or_a_collection(tmp_path):
    proto = meta()
    proto.asset_file_def.add(filename="new.txt").tensor_info.name = "b:0"
    old = pb.AssetFileDef(filename="old.txt", tensor_info=pb.TensorInfo(name="a:0"))
    asset = proto.collection_def["saved_model_assets"].any_list.value.add()
    asset.value = old.SerializeToString()
    folder = write_saved_model(tmp_path, proto)
    assets = load_source(saved_model=folder).assets
    assert [(a.tensor, a.path) for a in assets] == [
        ("a:0", tmp_path / "assets" / "old.txt"),
        ("b:0", tmp_path / "assets" / "new.txt"),
    ]


def test_asset_outside_of_the_model_is_refused(tmp_path):
    proto = meta()
    proto.asset_file_def.add(filename="../../etc/passwd").tensor_info.name = "b:0"
    with pytest.raises(ArtifactError, match="leads out of the folder"):
        load_source(meta_graph=write_meta(tmp_path, proto))


def test_slices_of_partitioned_variables_in_collections(tmp_path):
    proto = meta()
    record = pb.VariableDef(variable_name="w/part_1:0")
    info = record.save_slice_info_def
    info.full_name = "w"
    info.full_shape.extend((4, 3))
    info.var_offset.extend((1, 0))
    info.var_shape.extend((2, 3))
    proto.collection_def["variables"].bytes_list.value.append(record.SerializeToString())
    model = load_source(meta_graph=write_meta(tmp_path, proto))
    assert model.keys == {"w/part_1": SavedValue("w", "4 3 1,2:0,3")}


@pytest.mark.parametrize("collection", ["variables", "saved_model_assets"])
def test_damaged_records_are_refused(tmp_path, collection):
    proto = meta()
    if collection == "variables":
        proto.collection_def[collection].bytes_list.value.append(b"\x0a\xff")
    else:
        proto.collection_def[collection].any_list.value.add().value = b"\x0a\xff"
    with pytest.raises(CorruptFileError, match=r"that should be a .* is none"):
        load_source(meta_graph=write_meta(tmp_path, proto))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_raise_only_our_errors(tmp_path, kind):
    check_damaged(kind, MODEL.graph, meta(), {"w": W}, "y", tmp_path, turns=300)
