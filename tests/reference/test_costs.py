"""Counts of operations match TensorFlow's profiler."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.graph.files import read_graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.accounting.costs import inferred_costs

pytestmark = pytest.mark.reference

NETWORKS = {
    "tfjs-posenet/posenet.pb": ("image", (1, 385, 385, 3)),
    "tfjs-facemesh/facemesh.pb": ("input_1", (1, 192, 192, 3)),
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": ("input", (1, 224, 224, 3)),
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": ("input", (1, 28, 28, 1)),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_flops_match_the_profiler(network: str, models: Path, tf: ModuleType) -> None:
    from tensorflow.python.framework import ops

    graph = read_graph(models / network)
    name, shape = NETWORKS[network]
    ends = [n.name for n in graph if n.name not in graph.consumers and n.op != "NoOp"]
    costs = {n.name: n.flops for n in inferred_costs(graph, ends, {name: shape}).nodes}
    definition = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
    compared = 0
    with tf.Graph().as_default() as imported:
        fed = tf.compat.v1.placeholder(tf.float32, shape)
        tf.import_graph_def(definition, name="", input_map={f"{name}:0": fed})
        for node in imported.as_graph_def().node:
            flops = ops.get_stats_for_node_def(imported, node, "flops").value
            if flops is None or node.name not in costs:
                continue
            assert costs[node.name] == flops, (node.name, node.op)
            compared += 1
    assert compared > 5
