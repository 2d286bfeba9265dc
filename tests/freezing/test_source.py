"""Loading models from files of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.guess import guess
from mobileprep.freezing.model import FreezeOptions, SavedValue, TensorSpec
from mobileprep.freezing.source import load_source, signatures_of
from mobileprep.freezing.trace import Flows
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.damage import KINDS, check_damaged
from tests.freezing.graphs import FLOAT, node, placeholder, source
from tests.freezing.saved import MODEL, W, meta, write_meta, write_saved_model
from tests.work import lines_run


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


def _sparse(info: pb.TensorInfo) -> None:
    info.dtype = 1
    for size in (-1, 4):
        info.tensor_shape.dim.add().size = size
    info.coo_sparse.indices_tensor_name = "sp/indices:0"
    info.coo_sparse.values_tensor_name = "sp/values:0"
    info.coo_sparse.dense_shape_tensor_name = "sp/shape:0"


def test_parts_of_a_sparse_argument_have_names() -> None:
    meta_graph = meta()
    _sparse(meta_graph.signature_def["serving_default"].inputs["sp"])
    assert signatures_of(meta_graph)["serving_default"].inputs == {
        "in": TensorSpec("x:0", DType.FLOAT, (3,)),
        "sp/indices": TensorSpec("sp/indices:0", DType.INT64, (-1, 2)),
        "sp/values": TensorSpec("sp/values:0", DType.FLOAT, (-1,)),
        "sp/dense_shape": TensorSpec("sp/shape:0", DType.INT64, (2,)),
    }


def test_sparse_argument_of_unknown_rank() -> None:
    meta_graph = meta()
    info = meta_graph.signature_def["serving_default"].outputs["sp"]
    _sparse(info)
    info.tensor_shape.Clear()
    info.tensor_shape.unknown_rank = True
    outputs = signatures_of(meta_graph)["serving_default"].outputs
    assert (outputs["sp/indices"].shape, outputs["sp/dense_shape"].shape) == ((-1, -1), (-1,))


def test_tensors_of_a_composite_argument_are_numbered() -> None:
    meta_graph = meta()
    parts = meta_graph.signature_def["serving_default"].outputs["ragged"].composite_tensor
    for name, kind in (("values:0", 1), ("splits:0", 9)):
        parts.components.add(name=name, dtype=kind)
    outputs = signatures_of(meta_graph)["serving_default"].outputs
    assert {key: (spec.name, spec.dtype) for key, spec in outputs.items()} == {
        "out": ("y:0", DType.FLOAT),
        "ragged/0": ("values:0", DType.FLOAT),
        "ragged/1": ("splits:0", DType.INT64),
    }


def test_control_dependencies_carry_no_tensor():
    graph = Graph(
        [
            placeholder("x", 2),
            node("two", "Split", "x", "x", T=FLOAT, num_split=2),
            node("a", "Relu", "two", T=FLOAT),
            node("b", "Relu", "two:1", T=FLOAT),
            node("c", "Relu", "x", "^a", T=FLOAT),
        ]
    )
    flows = Flows(graph)
    assert flows.downstream([Ref("two", 1)]) == {"b"}
    assert flows.downstream([Ref("x")]) == {"two", "a", "b", "c"}
    assert flows.downstream([Ref("x")], past={"two"}) == {"c"}
    assert flows.leading_to(["b"]) == {"b", "two", "x"}
    assert flows.takes(Ref("two"), {"a"})
    assert not flows.takes(Ref("two", 1), {"a"})
    assert flows.is_used("a")
    assert not flows.takers("a")


def test_tracing_takes_linear_time_in_edges():
    def work(count):
        # Each node of the chain waits for many others.
        clocks = [node(f"c{i}", "NoOp") for i in range(100)]
        controls = [f"^c{i}" for i in range(100)]
        chain = [node("n0", "Relu", "x", *controls, T=FLOAT)]
        chain += [node(f"n{i}", "Relu", f"n{i - 1}", *controls, T=FLOAT) for i in range(1, count)]
        model = source([placeholder("x", 2), *clocks, *chain])
        assert [t.name for t in guess(model).outputs] == [f"n{count - 1}"]
        return lines_run(lambda: guess(model))

    assert work(80) < 2.5 * work(40)
