"""Ranges of numbers in protobuf text format."""

from __future__ import annotations

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.text_proto import text_to_wire

ATTRIBUTE = 'node {{ attr {{ key: "a" value {{ {} }} }} }}'


def value(text: str):
    data = ATTRIBUTE.format(text).encode()
    graph = pb.GraphDef.FromString(bytes(text_to_wire(data, pb.GraphDef, "g.pbtxt")))
    return graph.node[0].attr["a"]


@pytest.mark.parametrize("number", [-(1 << 63) - 1, 1 << 63])
def test_int64_overflow_is_refused(number: int) -> None:
    with pytest.raises(CorruptFileError):
        value(f"i: {number}")


@pytest.mark.parametrize(
    ("name", "minimum", "maximum"),
    [
        ("int_val", -(1 << 31), (1 << 31) - 1),
        ("uint32_val", 0, (1 << 32) - 1),
        ("uint64_val", 0, (1 << 64) - 1),
    ],
)
def test_limits_of_tensor_elements(name: str, minimum: int, maximum: int) -> None:
    for number in (minimum, maximum):
        assert list(getattr(value(f"tensor {{ {name}: {number} }}").tensor, name)) == [number]
    for number in (minimum - 1, maximum + 1):
        with pytest.raises(CorruptFileError):
            value(f"tensor {{ {name}: {number} }}")
