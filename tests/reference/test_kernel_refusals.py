"""``check-target`` reports the layouts, dilations, and strides that kernels reject."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.building.transforming import transform
from mobileprep.graph.files import write_graph
from mobileprep.targets.target_check import target_gaps
from tests.reference.native import NativeError, ops_run_in_115
from tests.reference.newest import from_tensorflow
from tests.reference.shipped import ops_run_in_221

pytestmark = pytest.mark.reference

FIRST, LAST = {4: "NCHW", 5: "NCDHW"}, {4: "NHWC", 5: "NDHWC"}
RANKS = {
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"), 4),
    **dict.fromkeys(("DepthwiseConv2dNativeBackpropInput", "BiasAdd"), 4),
    **dict.fromkeys(("MaxPool", "MaxPoolV2", "AvgPool", "SpaceToDepth", "DepthToSpace"), 4),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 4),
    **dict.fromkeys(("Conv3D", "Conv3DBackpropInputV2", "MaxPool3D", "AvgPool3D"), 5),
}
DILATED = ("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3D")
CASES = [
    *((op, layout, 1, (1, 1)) for op in RANKS for layout in ("first", "last")),
    *((op, "last", 2, (1, 1)) for op in DILATED),
    *((op, "last", 1, (1, 2)) for op in ("Conv2D", "DepthwiseConv2dNative", "MaxPool")),
]
# It ignores dilations.
RUNS_WRONGLY = {("DepthwiseConv2dNative", 2, "1.15")}


def _output(tf: ModuleType, op: str, shape: list[int], **attrs: Any) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, shape, "x")
    rank, depth = len(shape), 4
    sides = [3] * (rank - 2)
    if "FusedBatchNorm" in op:
        of_channels = dict.fromkeys(("scale", "offset", "mean", "variance"), tf.ones([depth]))
        batch_norm = getattr(tf.raw_ops, op)
        layout = {k: v for k, v in attrs.items() if k == "data_format"}
        return batch_norm(x=x, **of_channels, is_training=False, **layout)[0]
    kernel = getattr(tf.raw_ops, op)
    multiplier = 1 if "Depthwise" in op else depth
    filters = tf.constant(np.ones([*sides, depth, multiplier], np.float32))
    if "Pool" in op:
        window = [1 if size == 1 else 2 for size in _window(rank, attrs["data_format"])]
        arguments: dict[str, Any] = {"value" if op == "AvgPool" else "input": x, "ksize": window}
    elif "BackpropInput" in op:
        arguments = {"input_sizes": shape, "filter": filters, "out_backprop": x}
    elif "Depth" in op and "Conv" not in op:
        return kernel(input=x, block_size=2, data_format=attrs["data_format"])
    elif op == "BiasAdd":
        return kernel(value=x, bias=tf.ones([depth]), data_format=attrs["data_format"])
    else:
        arguments = {"input": x, "filter": filters}
    if "Pool" in op:
        attrs.pop("dilations")
    return kernel(**arguments, padding="SAME", **attrs)


def _window(rank: int, layout: str) -> list[int]:
    return [1, 1, *[2] * (rank - 2)] if layout.startswith("NC") else [1, *[2] * (rank - 2), 1]


@pytest.mark.parametrize("release", ["1.15", "2.21"])
@pytest.mark.parametrize(("op", "layout", "dilation", "strides"), CASES)
def test_gaps_are_nodes_that_kernels_reject(
    op: str,
    layout: str,
    dilation: int,
    strides: tuple[int, int],
    release: str,
    original: Path,
    tf: ModuleType,
    tmp_path: Path,
) -> None:
    rank = RANKS[op]
    sides = [8] * (rank - 2)
    spread = [dilation] * (rank - 2)
    steps = list(strides) if rank == 4 else [1] * (rank - 2)
    if layout == "first":
        shape, dilations, strided = [2, 4, *sides], [1, 1, *spread], [1, 1, *steps]
    else:
        shape, dilations, strided = [2, *sides, 4], [1, *spread, 1], [1, *steps, 1]
    data_format = (FIRST if layout == "first" else LAST)[rank]
    with tf.Graph().as_default() as built:
        attrs = {"data_format": data_format, "dilations": dilations, "strides": strided}
        tf.identity(_output(tf, op, shape, **attrs), "out")
    read = from_tensorflow(built)
    warnings: list[str] = []
    graph = transform(read, "downgrade", inputs=["x"], outputs=["out"], warn=warnings.append).graph
    write_graph(tmp_path / "graph.pb", graph)
    feeds = {"x": np.ones(shape, np.float32)}
    runs: Callable[[], object] = (
        (lambda: ops_run_in_115(original, tmp_path / "graph.pb", feeds, "out", tmp_path))
        if release == "1.15"
        else (lambda: ops_run_in_221(tf, tmp_path / "graph.pb", feeds, "out"))
    )
    gaps = target_gaps(graph, release, "linux")
    if gaps and (op, dilation, release) not in RUNS_WRONGLY:
        with pytest.raises((NativeError, tf.errors.OpError)):
            runs()
    else:
        runs()
    assert {gap.cause for gap in gaps} <= {"no kernel"}
