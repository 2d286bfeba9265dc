"""Round trips of text graphs through TensorFlow."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.formats.protos import graph_text_pb2 as text
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.serde import graph_to_bytes

pytestmark = pytest.mark.reference


def _write_typed_graph(tf: ModuleType, folder: Path) -> Path:
    """Write a text graph in TensorFlow with typed nodes, also in a function."""

    def double(x):
        return tf.map_fn(lambda v: v * 2.0, x)

    spec = tf.TensorSpec([4], tf.float32)
    graph = tf.function(double).get_concrete_function(spec).graph.as_graph_def()
    for node in (*graph.node, *graph.library.function[0].node_def):
        node.experimental_type.type_id = text.TFT_PRODUCT
        node.experimental_type.args.add(type_id=text.TFT_TENSOR)
        node.experimental_debug_info.original_node_names.append(node.name)
    tf.io.write_graph(graph, str(folder), "theirs.pbtxt")
    return folder / "theirs.pbtxt"


def test_types_round_trip_through_tensorflow(tf: ModuleType, tmp_path: Path) -> None:
    from google.protobuf import text_format

    theirs = _write_typed_graph(tf, tmp_path)
    graph = read_graph(theirs)
    write_graph(tmp_path / "ours.pbtxt", graph, as_text=True)
    before_def, after_def = tf.compat.v1.GraphDef(), tf.compat.v1.GraphDef()
    text_format.Parse(theirs.read_text(), before_def)
    text_format.Parse((tmp_path / "ours.pbtxt").read_text(), after_def)
    for before, after in zip(before_def.node, after_def.node, strict=True):
        assert after.experimental_type == before.experimental_type
        assert after.experimental_debug_info == before.experimental_debug_info
    assert "TFT_TENSOR" in str(after_def.library)
    assert after_def == tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))


def test_type_names_match_tensorflow(tf: ModuleType) -> None:
    from tensorflow.core.framework import full_type_pb2

    assert dict(text.FullTypeId.items()) == dict(full_type_pb2.FullTypeId.items())
