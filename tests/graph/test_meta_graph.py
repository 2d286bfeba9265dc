"""MetaGraphs whose graph was transformed: collections, savers, and other fields."""

import re
from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.formats.saved_model import read_meta_graph
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.meta_graph import TRAINABLE, graph_of, write_meta_graph
from mobileprep.graph.serde import graph_to_bytes
from tests.transforms.graphs import const, node

BEFORE = Graph([node("w", "VariableV2"), node("old", "NoOp"), node("step", "NoOp")])
NEW = [
    node("low", "VariableV2").with_attrs(**{TRAINABLE: attr.boolean(True)}),
    const("low/start", 1.0),
    node("low/Assign", "Assign", "low low/start"),
    node("low/read", "Identity", "low"),
    node("bare", "VariableV2"),
    node("count", "VariableV2"),
    const("count/start", 0.0),
    node("count/Assign", "Assign", "count count/start"),
    node("count/read", "Identity", "count"),
]
AFTER = Graph([n for n in (*BEFORE, *NEW) if n.name != "old"])


def record(name: str) -> bytes:
    return pb.VariableDef(variable_name=f"{name}:0").SerializeToString()


def written(folder: Path, after: Graph, record_of_old: bytes = b"") -> pb.MetaGraphDef:
    proto = pb.MetaGraphDef()
    proto.meta_info_def.tags.append("train")
    proto.graph_def.ParseFromString(graph_to_bytes(BEFORE))
    proto.saver_def.save_tensor_name = "save/control_dependency:0"
    collections = proto.collection_def
    collections["variables"].bytes_list.value.extend([record("w"), record_of_old or record("old")])
    collections["trainable_variables"].bytes_list.value.append(record("w"))
    collections["train_op"].node_list.value.extend(["step", "old"])
    collections["cond_context"].bytes_list.value.append(b"any bytes")
    path = folder / "a.meta"
    path.write_bytes(proto.SerializeToString())
    meta = read_meta_graph(path)
    write_meta_graph(folder / "b.meta", meta, graph_of(meta), after)
    return pb.MetaGraphDef.FromString((folder / "b.meta").read_bytes())


def test_new_variables_are_in_the_collections(tmp_path):
    proto = written(tmp_path, AFTER)
    of = {
        key: [pb.VariableDef.FromString(v) for v in proto.collection_def[key].bytes_list.value]
        for key in ("variables", "trainable_variables")
    }
    assert [v.variable_name for v in of["variables"]] == ["w:0", "low:0", "count:0"]
    assert [v.variable_name for v in of["trainable_variables"]] == ["w:0", "low:0"]
    low = of["trainable_variables"][1]
    assert (low.initializer_name, low.snapshot_name) == ("low/Assign", "low/read:0")
    assert low.initial_value_name == "low/start:0"
    assert [v.trainable for v in of["variables"]] == [False, True, False]


def test_collections_lose_nodes_that_are_gone(tmp_path):
    proto = written(tmp_path, AFTER)
    assert list(proto.collection_def["train_op"].node_list.value) == ["step"]
    assert list(proto.collection_def["cond_context"].bytes_list.value) == [b"any bytes"]


def test_import_creates_a_saver_if_variables_are_new(tmp_path):
    assert not written(tmp_path, AFTER).HasField("saver_def")
    assert written(tmp_path, BEFORE).saver_def.save_tensor_name == "save/control_dependency:0"


def test_the_file_is_recognized_and_has_the_graph(tmp_path):
    assert written(tmp_path, AFTER).meta_info_def.tags == ["train"]
    meta = read_meta_graph(tmp_path / "b.meta")
    assert [n.name for n in graph_of(meta)] == [n.name for n in AFTER]


def test_a_damaged_record_of_a_variable_is_an_error(tmp_path):
    message = "a collection of variables has a record that is not a VariableDef"
    with pytest.raises(CorruptFileError, match=message) as error:
        written(tmp_path, AFTER, record_of_old=b"\xff")
    assert re.search(r"a\.meta$", error.value.where)
