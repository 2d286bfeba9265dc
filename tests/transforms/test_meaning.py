"""Transforms that keep every float as it is, on random graphs: same answers, sound graphs."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mobileprep.graph.verify import check_graph
from tests.transforms.graphs import apply, normal, run
from tests.transforms.strategies import graphs

KEEPING = {
    "add_default_attributes": {},
    "inline_partitionedcall": {},
    "merge_duplicate_nodes": {},
    "obfuscate_names": {},
    "remove_attribute": {"attribute_name": "_class"},
    "remove_control_dependencies": {},
    "remove_device": {},
    "remove_dropout": {},
    "remove_ema": {},
    "remove_no_ops": {},
    "remove_nodes": {"op": ("Identity", "StopGradient")},
    "rename_node": {"old_node_name": "n0", "new_node_name": "another"},
    "set_device": {"device": "/cpu:0"},
    "share_constants": {},
    "sort_by_execution_order": {},
    "strip_unused_nodes": {},
}
# The original's order depends on the order before; and a node is renamed but once.
ONCE_IS_ENOUGH = sorted(set(KEEPING) - {"rename_node", "sort_by_execution_order"})
fast = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", sorted(KEEPING))
@fast
@given(graph=graphs(), tf115=st.booleans())
def test_a_transform_that_keeps_floats_keeps_every_bit(name, graph, tf115):
    x = normal(2, 3)
    after = apply(name, graph, tf115=tf115, **KEEPING[name]).graph
    check_graph(after, name)
    np.testing.assert_array_equal(run(after, x), run(graph, x))


@pytest.mark.parametrize("name", ONCE_IS_ENOUGH)
@fast
@given(graph=graphs())
def test_a_second_time_changes_nothing(name, graph):
    once = apply(name, graph, **KEEPING[name]).graph
    twice = apply(name, once, **KEEPING[name])
    assert twice.graph.nodes == once.nodes


@pytest.mark.parametrize("name", sorted(KEEPING))
@fast
@given(graph=graphs())
def test_the_same_graph_comes_back_where_nothing_matched(name, graph):
    result = apply(name, graph, **KEEPING[name])
    assert result.matched or result.graph is graph
