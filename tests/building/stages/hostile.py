"""Invalid graphs that parse."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.building.stages.jobs import op, placeholder

_X, _Y = placeholder((-1, 3)), op("y", "Relu", "x")
_NODES = {
    "a cycle": [_X, op("y", "AddV2", "x", "z"), op("z", "Relu", "y")],
    "a missing input": [_X, op("y", "AddV2", "x", "gone")],
    "a duplicate name": [_X, _Y, _Y],
    "a malformed name": [_X, op("a b", "Relu", "x"), op("y", "Relu", "a b")],
    "an invalid dtype": [
        Node("x", "Placeholder", attrs={"dtype": attr.integer(1)}),
        _Y,
    ],
    "a placeholder without dtype": [Node("x", "Placeholder"), _Y],
    "an invalid shape": [_X.with_attrs(shape=attr.integer(3)), _Y],
    "a constant without value": [
        _X,
        Node("c", "Const", attrs={"dtype": attr.dtype(DType.FLOAT)}),
        op("y", "AddV2", "x", "c"),
    ],
    "a tensor after a control input": [_X, op("z", "Relu", "x"), op("y", "Relu", "^z", "x")],
}
HOSTILE = {name: Graph(nodes) for name, nodes in _NODES.items()}
