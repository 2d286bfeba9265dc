"""rename_node: another name for a node, wherever it is named."""

import pytest

from mobileprep.errors import TransformError
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown

NAMES = {"old_node_name": "deep/out", "new_node_name": "out"}


def _graph():
    where = AttrValue("list(string)", (b"loc:@deep/out",))
    return Graph(
        [
            placeholder(),
            node("deep/out", "Split", "x", num_split=2),
            node("b", "Add", "deep/out:1 deep/out ^deep/out", _class=where),
        ]
    )


def test_golden():
    result = apply("rename_node", _graph(), **NAMES)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "out = Split(x) T=float32 num_split=2\n"
        "b = Add(out:1, out, ^out) T=float32 _class=b'loc:@out'"
    )


def test_a_node_that_is_not_there_is_a_warning():
    graph = Graph([placeholder()])
    result = apply("rename_node", graph, **NAMES)
    assert result.graph is graph
    assert result.warnings == ("rename_node: the graph has no node 'deep/out'",)


def test_existing_name_is_an_error():
    with pytest.raises(TransformError, match="there is a node 'b' already"):
        apply("rename_node", _graph(), old_node_name="deep/out", new_node_name="b")
