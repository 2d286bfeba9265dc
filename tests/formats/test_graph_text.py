"""Graphs in text format: messages that the graph keeps as opaque bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import ArgDef, OpDef
from mobileprep.graph.serde import graph_to_bytes

# TFT_PRODUCT of a TFT_TENSOR of TFT_FLOAT and of an unknown type.
TYPE = bytes.fromhex("08031208" + "08e8071203" + "08d201" + "1203" + "08d836")
DEBUG = b"\x0a\x03one\x12\x04body"
# Type and shape of a resource.
HANDLE = b"\x08\x01\x12\x04\x12\x02\x08\x02"
UNREADABLE = [b"\x08", b"\x0f\x0f", b"\x0a\x02\xff\xfe", b"\x12\x05\x08"]


def _graph(debug: tuple[bytes, bytes], handle: bytes = HANDLE) -> Graph:
    signature = OpDef("f", (ArgDef("a", DType.RESOURCE, handle_data=(handle,)),), ())
    body = (Node("n", "NoOp", debug_info=debug),)
    library = Library({"f": Function(signature, body, {}, {}, {}, {}, {})})
    return Graph([Node("first", "NoOp"), Node("a", "NoOp", debug_info=debug)], library)


def _round_trip(graph: Graph, folder: Path) -> tuple[str, Graph]:
    path = folder / "graph.pbtxt"
    write_graph(path, graph, as_text=True)
    return path.read_text(), read_graph(path)


def test_types_and_debug_records_are_written_as_text(tmp_path: Path) -> None:
    graph = _graph((DEBUG, TYPE))
    text, copy = _round_trip(graph, tmp_path)
    assert "experimental_type {\n    type_id: TFT_PRODUCT\n    args {\n" in text
    assert "type_id: 7000\n" in text
    assert 'experimental_debug_info {\n    original_node_names: "one"\n' in text
    assert "handle_data {\n          dtype: DT_FLOAT\n" in text
    assert graph_to_bytes(copy) == graph_to_bytes(graph)


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_unreadable_records_are_omitted_only_from_text(unreadable: bytes, tmp_path: Path) -> None:
    graph = _graph((unreadable, TYPE), UNREADABLE[0])
    copy = _round_trip(graph, tmp_path)[1]
    assert copy["a"].debug_info == (b"", TYPE)
    assert copy.library.functions["f"].nodes[0].debug_info == (b"", TYPE)
    assert copy.library.functions["f"].signature.inputs[0].handle_data == ()
    write_graph(tmp_path / "graph.pb", graph)
    assert read_graph(tmp_path / "graph.pb")["a"].debug_info == (unreadable, TYPE)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("experimental_type { type_id: TFT_TENSOR }", b"\x08\xe8\x07"),
        ('experimental_type < s: "x" >', b"\x1a\x01x"),
        ("experimental_type { }", b""),
        ("experimental_type { type_id: TFT_OF_A_LATER_RELEASE }", b""),
        ("experimental_type { later { field: 3 } }", b""),
        # As older versions wrote it.
        ('experimental_type: "\\010\\003"', b"\x08\x03"),
    ],
)
def test_known_types_are_read(record: str, expected: bytes, tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(f'node {{ name: "a" op: "NoOp" {record} }}')
    assert read_graph(path)["a"].debug_info == (b"", expected)
