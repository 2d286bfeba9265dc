"""Event files for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mobileprep.formats.tf_record import TFRecordFile
from mobileprep.formats.wire import Cursor, delimited
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.inspection.drawing_files import FILE_NAME, write_event_file
from tests.transforms.graphs import const, conv, node, placeholder

TIME = b"\x09" + bytes(8)


def network() -> Graph:
    return Graph(
        [
            placeholder(),
            const("w", np.ones((3, 3, 1, 64))),
            const("b", np.arange(64)),
            conv("layer", "x w"),
            node("out", "BiasAdd", "layer b", data_format="NHWC"),
        ]
    )


def written(folder: Path, graph: Graph) -> Graph:
    shapes = {"layer": ((-1, 4, 4, 64),), "x": (None,)}
    path = write_event_file(folder, graph, shapes)
    records = TFRecordFile(path)
    assert len(records) == 2
    assert records.record(0) == TIME + delimited(3, b"brain.Event:2")
    cursor = Cursor(records.record(1))
    assert bytes(cursor.take(len(TIME))) == TIME
    assert cursor.varint() == 4 << 3 | 2
    return graph_from_bytes(cursor.take(cursor.varint()), str(path))


def test_holds_the_graph_without_large_values(tmp_path):
    graph = written(tmp_path / "logs", network())
    assert [n.name for n in graph] == ["x", "w", "b", "layer", "out"]
    assert "value" not in graph["w"].attrs
    np.testing.assert_array_equal(graph["b"].attr_tensor("value").array(), np.arange(64))
    assert graph["layer"].attr_shapes("_output_shapes") == ((-1, 4, 4, 64),)
    assert graph["x"].attr_shapes("_output_shapes") == (None,)
    assert "_output_shapes" not in graph["out"].attrs


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    for folder in ("one", "other"):
        write_event_file(tmp_path / folder, network(), {})
    one, other = ((tmp_path / f / FILE_NAME).read_bytes() for f in ("one", "other"))
    assert one == other
