"""Fits of device profiles, and matches of logs with models."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from mobileprep.building.device_measurements import measured_ops
from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.inspection.device_fit import fit_device, profile_text, relative_error
from mobileprep.inspection.device_logs import OpTime
from mobileprep.recipe.data import device_named
from mobileprep.runtime.accounting.costs import NodeCost
from mobileprep.targets.measurements import MeasuredOp, Measurement
from mobileprep.targets.op_classes import ClassCost, ClassRate, class_costs, op_class
from mobileprep.targets.targets import Device, find_device


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("Conv2D", "convolution"),
        ("_MklNativeFusedConv2D", "convolution"),
        ("tflite.TRANSPOSE_CONV", "convolution"),
        ("Convolution (NHWC, QS8, QC8W) IGEMM", "convolution"),
        ("Deconvolution (NHWC, F32)", "convolution"),
        ("DepthwiseConv2dNative", "depthwise"),
        ("DEPTHWISE_CONV_2D", "depthwise"),
        ("Convolution (NHWC, F32) DWConv", "depthwise"),
        ("BatchMatMulV2", "product"),
        ("Fully Connected (NC, F32) GEMM", "product"),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", "product"),
        ("FusedBatchNormV3", "activation"),
        ("Relu6", "activation"),
        ("BiasAdd", "activation"),
        ("Convert (NC, F32, QD8)", "other"),
        ("Softmax (NC, F32)", "other"),
        ("AddV2", "other"),
    ],
)
def test_op_class(op: str, kind: str) -> None:
    assert op_class(op) == kind


def test_costs_by_class() -> None:
    nodes = [
        NodeCost("a", "Conv2D", 100, 7, 3),
        NodeCost("b", "Conv2D", None, 1, 1, calls=2),
        NodeCost("c", "Softmax", 5, 2, 2),
    ]
    expected = (ClassCost("convolution", 3, 100, 12), ClassCost("other", 1, 5, 4))
    assert class_costs(nodes) == expected


def measurement(name: str, *ops: tuple[ClassCost, float], mean_ms: float = 0.0) -> Measurement:
    total = mean_ms or sum(ms for _, ms in ops)
    rows = tuple(MeasuredOp(cost.kind, "", ms, cost) for cost, ms in ops)
    costs = tuple(
        ClassCost(
            kind,
            sum(c.nodes for c, _ in ops if c.kind == kind),
            sum(c.flops for c, _ in ops if c.kind == kind),
            sum(c.bytes for c, _ in ops if c.kind == kind),
        )
        for kind in dict.fromkeys(cost.kind for cost, _ in ops)
    )
    return Measurement(
        *(name, "Pixel 3", "", "", "", "bench", "0" * 64, total, 1), costs=costs, ops=rows
    )


def exact(flops: int, moved: int) -> tuple[ClassCost, float]:
    """A convolution at 2 GFLOP/s and 4 GB/s, with an overhead of 50 microseconds."""
    return ClassCost("convolution", 1, flops, moved), flops / 2e6 + moved / 4e6 + 0.05


def test_exact_times_give_their_rates() -> None:
    sizes = [(10**6, 10**5), (2 * 10**6, 9 * 10**5), (7 * 10**6, 10**4), (10**5, 10**6)]
    ones = [measurement("m", exact(*a), exact(*b)) for a, b in pairwise(sizes)]
    device = fit_device(ones, "pixel")
    assert device.rates == (ClassRate("convolution", 2.0, 4.0, 50.0),)
    assert device.title == "Pixel 3"
    assert device.basis == (
        "fitted to 3 measurements, median error 0% on models that the fit does not contain"
    )
    assert device.source == "mobileprep device fit: bench, 1 thread"
    assert relative_error(device, ones[0]) == pytest.approx(0, abs=1e-9)


def test_coefficients_are_not_negative() -> None:
    # The larger op is faster, so that no positive rate per operation fits better than overhead.
    small, large = ClassCost("product", 1, 10, 0), ClassCost("product", 1, 1000, 0)
    device = fit_device([measurement("a", (small, 3.0), (large, 2.0))], "d")
    (rate,) = device.rates
    assert (rate.gflops, rate.gbytes) == (None, None)
    assert device.basis == "fitted to 1 measurement, error unknown"


def test_runs_without_profiling_set_the_scale() -> None:
    one = measurement("a", exact(10**6, 10**5), mean_ms=0.9 * exact(10**6, 10**5)[1])
    device = fit_device([one], "d")
    assert device.seconds(one.costs) * 1e3 == pytest.approx(one.mean_ms, rel=1e-3)


def test_without_times_of_ops_only_the_rate_is_fitted() -> None:
    # 4 and 2 GFLOP/s; the times of ops of the second are incomplete, and do not count.
    first = replace(measurement("a", exact(4 * 10**6, 0)), ops=(), mean_ms=1.0)
    second = replace(measurement("b", exact(4 * 10**6, 0)), mean_ms=100.0)
    device = fit_device([first, replace(second, mean_ms=2.0, ops=second.ops[:0])], "d")
    assert (device.rates, device.gflops) == ((), 3.0)
    assert fit_device([second], "d").rates == ()


def test_unmatched_products_and_convolutions_share_their_time_by_operations() -> None:
    one = measurement("a", (ClassCost("convolution", 1, 3 * 10**6, 0), 1.0), mean_ms=4.0)
    costs = (*one.costs, ClassCost("product", 1, 10**6, 0))
    ops = (MeasuredOp("Fully Connected (NC, F32) GEMM", "", 4.0),)
    device = fit_device([replace(one, costs=costs, ops=ops)], "d")
    # 3 of 4 milliseconds for the convolution; both at 1 GFLOP/s.
    assert device.rates == (ClassRate("convolution", 1.0), ClassRate("product", 1.0))


def test_extreme_times_give_valid_profiles(tmp_path: Path) -> None:
    slow = measurement("a", (ClassCost("product", 1, 1, 1 << 60), 1e14))
    fast = measurement("b", (ClassCost("convolution", 1, 1 << 60, 0), 1e-12))
    for one in (slow, fast):
        (tmp_path / "d.yaml").write_text(profile_text(fit_device([one], "d")))
        device_named("d.yaml", tmp_path / "d.yaml")


def test_profile_is_read_back(tmp_path: Path) -> None:
    rates = (ClassRate("other", None, 2.0, 3.0),)
    device = Device("d", 'a "phone"', 1.5, "s", "fitted to 2", peak=False, error=0.1, rates=rates)
    (tmp_path / "d.yaml").write_text(profile_text(device))
    assert device_named("d.yaml", tmp_path / "d.yaml") == device
    assert yaml.safe_load(profile_text(device))["rates"] == {
        "other": {"gbytes": 2.0, "overhead_us": 3.0}
    }


def test_times_by_class() -> None:
    rates = (ClassRate("convolution", 2.0, None, 10.0), ClassRate("other", None, 1.0))
    device = Device("d", "d", 1.0, "s", rates=rates)
    costs = [
        ClassCost("convolution", 3, 4 * 10**9, 10**9),
        ClassCost("other", 1, 10**9, 5 * 10**8),
        ClassCost("product", 1, 10**9, 1),
    ]
    # 4 GFLOP at 2 GFLOP/s, 3 nodes of 10 microseconds, and half a gigabyte at 1 GB/s.
    assert device.seconds(costs) == pytest.approx(2.0 + 30e-6 + 0.5)
    assert Device("d", "d", 2.0, "s").seconds(costs) == pytest.approx(6 / 2)


def test_book_example_of_inception_on_a_raspberry_pi() -> None:
    # TensorFlow's guide counts 11.48 billion operations, and 5 billion a second for the board.
    cost = ClassCost("convolution", 95, 11_480_000_000, 0)
    assert find_device("raspberry-pi-3").seconds([cost]) == pytest.approx(2.296)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs": ()}, "no measurement has the costs of its model"),
        ({"device": "Pixel 4"}, "measurements are of 2 devices: Pixel 3, Pixel 4"),
    ],
)
def test_unusable_measurements_are_refused(changes: dict[str, object], message: str) -> None:
    one = measurement("a", exact(10**6, 10**5))
    others = [replace(one, **changes)]
    with pytest.raises(UsageError, match=message):
        fit_device(others if "costs" in changes else [one, *others], "d")


GRAPH = Graph(
    [
        Node("x", "Placeholder"),
        Node("c", "Conv2D", (parse_ref("x"),)),
        Node("b", "BiasAdd", (parse_ref("c"),)),
        Node("r", "Relu", (parse_ref("b"),)),
        Node("d", "DepthwiseConv2dNative", (parse_ref("r"),)),
        Node("s", "Softmax", (parse_ref("d"),)),
    ]
)
COSTS = [NodeCost(n.name, n.op, i, i, i) for i, n in enumerate(GRAPH) if n.name != "x"]


def kinds(ops: tuple[MeasuredOp, ...]) -> list[tuple[str, int] | None]:
    return [None if op.cost is None else (op.cost.kind, op.cost.flops) for op in ops]


def test_fused_ops_have_the_cost_of_their_convolution() -> None:
    ops = [
        OpTime("_FusedConv2D", "r", 1.0),
        OpTime("DepthwiseConv2dNative", "d", 1.0),
        OpTime("Softmax", "s", 1.0),
        OpTime("_FusedMatMul", "s", 1.0),
        OpTime("Copy", "unknown", 1.0),
    ]
    expected = [("convolution", 1), ("depthwise", 4), ("other", 5), None, None]
    assert kinds(measured_ops(ops, GRAPH, COSTS)) == expected


def test_delegates_match_by_order() -> None:
    # XNNPACK computes the convolution, whose window has one element, as a product.
    ops = [
        OpTime("Copy (NC, X32)", "[Delegate]:0", 1.0),
        OpTime("Fully Connected (NC, F32) GEMM", "[Delegate]:1", 1.0),
        OpTime("Convolution (NHWC, F32) DWConv", "[Delegate]:2", 1.0),
    ]
    assert kinds(measured_ops(ops, GRAPH, COSTS)) == [None, ("convolution", 1), ("depthwise", 4)]
    assert kinds(measured_ops(ops[:2], GRAPH, COSTS)) == [None, None]
    assert kinds(measured_ops([ops[0], ops[2], ops[1]], GRAPH, COSTS)) == [None, None, None]
