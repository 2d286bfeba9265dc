"""Detection of GraphDefs, MetaGraphDefs, and SavedModels in binary and text form."""

from __future__ import annotations

import time

import pytest
from google.protobuf import text_format

from mobileprep.errors import CorruptFileError
from mobileprep.formats.kinds import expect_kind, kind_of, looks_like_text
from mobileprep.formats.protos import graph_pb2, saved_model_pb2

GRAPH = graph_pb2.GraphDef(node=[graph_pb2.NodeDef(name="a" * 30, op="Const")])
META = saved_model_pb2.MetaGraphDef(graph_def=GRAPH)
META.meta_info_def.tags.append("serve")
WITH_OPS = saved_model_pb2.MetaGraphDef(graph_def=GRAPH)
WITH_OPS.meta_info_def.meta_graph_version = "1"
WITH_OPS.meta_info_def.stripped_op_list.op.add(name="Const")
SAVED = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[META])
KINDS = [
    (GRAPH, "GraphDef"),
    (graph_pb2.GraphDef(versions=graph_pb2.VersionDef(producer=27)), "GraphDef"),
    (META, "MetaGraphDef"),
    (WITH_OPS, "MetaGraphDef"),
    (SAVED, "SavedModel"),
]


@pytest.mark.parametrize(("message", "kind"), KINDS)
def test_kind_of_messages(message, kind):
    binary = message.SerializeToString()
    text = text_format.MessageToString(message).encode()
    assert (kind_of(binary), kind_of(b"# made by hand\n" + text)) == (kind, kind)
    assert not looks_like_text(binary)
    assert looks_like_text(text)
    expect_kind(binary, kind, "f")


@pytest.mark.parametrize("data", [b"", b"hello", b"\x0a", b"\x0a\xff", b"\x7f\x01", b"\xff" * 20])
def test_unknown_kind_is_accepted(data):
    assert kind_of(data) is None
    expect_kind(data, "GraphDef", "f")


def test_unexpected_kind_is_reported_with_a_hint():
    message = r"m\.meta: is a MetaGraphDef, not a GraphDef"
    with pytest.raises(CorruptFileError, match=message) as error:
        expect_kind(META.SerializeToString(), "GraphDef", "m.meta")
    assert error.value.hint.startswith("in a recipe, name it as `meta_graph:`")


@pytest.mark.parametrize("head", [b"\n" * 60, b"#" * 60, b"# a\n" * 30, b" \t" * 40])
def test_leading_whitespace_and_comments_take_linear_time(head):
    started = time.process_time()
    assert kind_of(head * 1000 + b"\x7f") is None
    assert kind_of(head + b"\nnode {}") == "GraphDef"
    assert time.process_time() - started < 1
