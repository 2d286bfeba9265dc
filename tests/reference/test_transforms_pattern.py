"""Pattern transforms give the same graphs as the original Graph Transform Tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.wire import Cursor
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes
from tests.reference.conftest import Original
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.original import differences, known_to_original
from tests.reference.pattern_cases import CASES, NETWORK
from tests.transforms.graphs import apply, placeholder

pytestmark = pytest.mark.reference

INFO = "serialized_remote_fused_graph_execute_info"


def ours(
    graph: Graph, name: str, options: Mapping[str, Any], inputs: str = "x", outputs: str = "out"
) -> Graph:
    names = {"inputs": inputs.split(","), "outputs": outputs.split(",")}
    return apply(name, known_to_original(graph), **names, tf115=True, **options).graph


def to_call(name: str, options: Mapping[str, Any]) -> str:
    """A call in the syntax of ``--transforms``; tuples become repeated arguments."""
    arguments = [
        f'{key}="{str(item).lower() if isinstance(item, bool) else item}"'
        for key, value in options.items()
        for item in (value if isinstance(value, tuple) else (value,))
    ]
    return f"{name}({' '.join(arguments)})" if arguments else name


@pytest.mark.parametrize(
    ("name", "nodes", "options"),
    [pytest.param(n, v, o, id=f"{n}: {k}") for n, k, v, o in CASES],
)
def test_purpose_built_graphs_are_equal(
    theirs: Original, name: str, nodes: list[Any], options: Mapping[str, Any]
) -> None:
    graph = Graph([placeholder(), *nodes])
    mine = ours(graph, name, options)
    assert not unequal(mine, theirs(graph, to_call(name, options)))


def unequal(mine: Graph, original: Graph) -> list[str]:
    """List differences; the protobufs in attributes of fused nodes are compared by field."""
    lines = []
    for n in mine:
        other = original.get(n.name)
        if other is not None and INFO in n.attrs:
            (a, inside_a), (b, inside_b) = (
                parse_info(n.attrs[INFO].value),
                parse_info(other.attrs[INFO].value),
            )
            lines += [] if a == b else [f"{n.name}: {a} here, {b} there"]
            lines += differences(inside_a, inside_b)
    bare = (g.with_nodes(n.without_attrs(INFO) for n in g) for g in (mine, original))
    return lines + differences(*bare)


def parse_info(info: bytes) -> tuple[list[tuple[int, bytes]], Graph]:
    cursor, fields = Cursor(info, file="info"), []
    while cursor:
        number = cursor.varint() >> 3
        fields.append((number, bytes(cursor.take(cursor.varint()))))
    return fields[1:], graph_from_bytes(fields[0][1], "info")


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21])
@pytest.mark.parametrize("percentiles", [(5.0, 5.0), (0.0, 0.0), (10.0, 25.0), (33.0, 99.0)])
def test_ranges_from_a_log_are_equal(
    theirs: Original, tmp_path: Path, count: int, percentiles: tuple[float, float]
) -> None:
    graph = theirs(Graph([placeholder(), *NETWORK]), "quantize_nodes")
    names = [n.name for n in graph if n.op == "RequantizationRange"]
    ranges = np.abs(np.random.default_rng(0).standard_normal((len(names), count, 2))) * [-1, 1]
    lines = [
        f"op.cc:79] ;{name}__print__;__requant_min_max:[{low:.9g}][{high:.9g}]"
        for name, seen in zip(names, ranges, strict=True)
        for low, high in seen
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(["begin", *lines, f"{names[0]}__print__;__requant_min_max:[1]"]))
    options = {
        "min_max_log_file": str(log),
        "min_percentile": percentiles[0],
        "max_percentile": percentiles[1],
    }
    name = "freeze_requantization_ranges"
    assert not differences(ours(graph, name, options), theirs(graph, to_call(name, options)))


# Real models

MODELS = {
    "arm-kws/Basic_LSTM_S.pb": ("wav_data", "labels_softmax"),
    "arm-kws/CNN_S.pb": ("wav_data", "labels_softmax"),
    "arm-kws/DS_CNN_S.pb": ("wav_data", "labels_softmax"),
    "made-qat-mnist-tf115/frozen_eval_graph.pb": ("input", "output"),
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": ("input", "output"),
    "mtcnn/mtcnn.pb": ("input,min_size,thresholds,factor", "prob,landmarks,box"),
    "tf2onnx-models/fc-layers/frozen.pb": ("X", "output"),
    "tf2onnx-models/gru/frozen.pb": ("X", "output"),
    "tf2onnx-models/lstm/frozen.pb": ("X", "output"),
    "tfjs-facemesh/facemesh.pb": ("input_1", "Identity,Identity_1,Identity_2"),
    "tfjs-posenet/posenet.pb": ("image", "MobilenetV1/offset_2/BiasAdd"),
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": ("input", "Identity"),
    "android-wakeword-streaming-rnn/graph.pb": (
        "model/rnn_initial_states,model/inputX",
        "model/softmax,model/logit,model/rnn_states",
    ),
}
STEPS = [
    ("fold_batch_norms", {}),
    ("fold_old_batch_norms", {}),
    ("flatten_atrous_conv", {}),
    ("fuse_pad_and_conv", {}),
    ("fuse_resize_and_conv", {}),
    ("fuse_resize_pad_and_conv", {}),
    ("backport_concatv2", {}),
    ("quantize_nodes", {}),
    ("quantize_nodes", {"fallback_min": -10.0, "fallback_max": 10.0}),
]
# Merging duplicates orders nodes by a hash, which does not cover large constants.
UNORDERED = {"quantize_nodes"}
# Colocation with a merged node is redirected to the remaining one; see merge_duplicate_nodes.
COLOCATION = "_class"


@pytest.mark.parametrize("prepared", ["", "remove_nodes(op=Identity)", "quantize_weights"])
@pytest.mark.parametrize("path", MODELS)
def test_real_models_are_equal(theirs: Original, models: Path, path: str, prepared: str) -> None:
    inputs, outputs = MODELS[path]
    graph = known_to_original(read_graph(models / path))
    if prepared:
        graph = theirs(graph, prepared, inputs, outputs)
    for name, options in STEPS:
        expected = theirs(graph, to_call(name, options), inputs, outputs)
        mine = ours(graph, name, options, inputs, outputs)
        lines = differences(mine, expected, ordered=name not in UNORDERED)
        assert not [d for d in lines if COLOCATION not in d], name


@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks_are_equal(theirs: Original, name: str) -> None:
    network = cached_network(name)
    graph = known_to_original(read_graph(network.path))
    # The documented chain before batch norms are folded.
    before = "strip_unused_nodes remove_nodes(op=Identity) fold_constants(ignore_errors=true)"
    folded = theirs(graph, before, network.input, network.output)
    for step, options in STEPS:
        call = (
            f"{step}(ignore_errors=true)" if step == "fold_batch_norms" else to_call(step, options)
        )
        expected = theirs(folded, call, network.input, network.output)
        try:
            mine = ours(folded, step, options, network.input, network.output)
        except TransformError as error:
            # The original ignores it.
            assert step == "fold_batch_norms", error
            mine = folded
        assert not differences(mine, expected, ordered=step not in UNORDERED), step
