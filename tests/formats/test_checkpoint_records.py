from __future__ import annotations

import pytest

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.checkpoint_reader import (
    TensorEntry,
    check_versions,
    element_type,
    entry_of,
    parse,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graph
from tests.formats.checkpoint_writer import shape_into


def shape(*sizes: int) -> graph.TensorShapeProto:
    proto = graph.TensorShapeProto()
    shape_into(proto, sizes)
    return proto


def test_entry_size_in_bytes():
    entry = entry_of(DType.DOUBLE, shape(2, 3), "f")
    assert entry == TensorEntry(DType.DOUBLE, (2, 3))
    assert (entry.size, entry.nbytes) == (6, 48)
    assert entry_of(DType.STRING, shape(2), "f").nbytes == 0
    assert entry_of(DType.BFLOAT16, shape(), "f").nbytes == 2


@pytest.mark.parametrize(
    "sizes", [(-1,), (1 << 40, 1 << 40), (0, 1 << 62), (1,) * 33, (2,) * 30_000]
)
def test_impossible_shape_is_refused(sizes):
    with pytest.raises(CorruptFileError, match="shape"):
        entry_of(DType.FLOAT, shape(*sizes), "f")


def test_unknown_rank_is_refused():
    with pytest.raises(CorruptFileError, match="shape"):
        entry_of(DType.FLOAT, graph.TensorShapeProto(unknown_rank=True), "f")


def test_element_types_of_dtypes():
    assert element_type(DType.STRING).hasobject
    assert element_type(DType.RESOURCE) is None
    assert element_type(DType(4711)) is None
    assert element_type(DType.QINT8) == "i1"


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x7f", b"\x08"])
def test_invalid_message_is_refused(data):
    with pytest.raises(CorruptFileError, match="BundleHeaderProto"):
        parse(pb.BundleHeaderProto, memoryview(data), "f")


def test_checkpoint_for_newer_readers_is_refused():
    check_versions(graph.VersionDef(producer=9, min_consumer=1), "f")
    for versions in (graph.VersionDef(min_consumer=2), graph.VersionDef(bad_consumers=[1])):
        with pytest.raises(UnsupportedError, match="newer reader"):
            check_versions(versions, "f")
