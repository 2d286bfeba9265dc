"""quantize_nodes with ranges: layers in eight bits, and floats in between."""

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import RangeFile, TensorRange, range_file_text
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import (
    apply,
    const,
    conv,
    node,
    normal,
    op_counts,
    placeholder,
    pool,
    run,
    shown,
    with_taken,
)

NAME = "quantize_nodes"
X = normal(1, 8, 8, 4, seed=3)
DEPTHWISE = "TensorFlow has no kernel of its own for eight-bit depthwise convolutions"


def _network(*between, last="relu", tail=()):
    """Two convolutions with a bias, an activation and what is asked between them."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 6, seed=1) / 8),
            const("b", normal(6, seed=2)),
            conv("first", "x w"),
            node("bias", "BiasAdd", "first b"),
            node("relu", "Relu", "bias"),
            *between,
            const("w2", normal(1, 1, 6, 5, seed=4) / 4),
            conv("second", f"{last} w2"),
            node("out", "Tanh", "second"),
            *tail,
        ]
    )


@pytest.fixture
def ranges(tmp_path: Path):
    """Writes the ranges of a graph's tensors for one input, or given ones."""

    def write(graph: Graph, *names: str, given: dict | None = None) -> str:
        found = dict(zip(names, Interpreter(graph).run(list(names), {"x": X}), strict=True))
        limits = {n: TensorRange(float(v.min()), float(v.max())) for n, v in found.items()}
        limits |= {n: TensorRange(*ends) for n, ends in (given or {}).items()}
        path = tmp_path / "ranges.yaml"
        path.write_text(range_file_text(RangeFile(limits)))
        return str(path)

    return write


def _peak_share(graph, before, x=X):
    want = run(before, x)
    return np.abs(run(graph, x) - want).max() / np.abs(want).max()


def test_golden(ranges):
    graph = Graph(
        [
            placeholder(),
            const("w", [[1.0, -0.5], [0.25, 0.75]]),
            node("layer", "MatMul", "x w", transpose_a=False, transpose_b=False),
            node("out", "Softmax", "layer"),
        ]
    )
    file = ranges(Graph([placeholder()]), given={"x": (-1.0, 3.0)})
    result = apply(NAME, graph, range_file=file, rule=("granularity=channel",)).graph
    assert shown(result).split("\n") == [
        "x = Placeholder()",
        "x_eightbit/min = Const() value=float32[]:-1.00392",
        "x_eightbit/max = Const() value=float32[]:2.99608",
        (
            "x_eightbit/quantize = QuantizeV2(x, x_eightbit/min, x_eightbit/max)"
            " T=quint8 mode=MIN_FIRST"
        ),
        "w_eightbit/values = Const() value=quint8[2, 2]",
        "w_eightbit/min = Const() value=float32[]:-128",
        "w_eightbit/max = Const() value=float32[]:127",
        "w_eightbit/scales = Const() value=float32[2]",
        (
            "layer/eightbit = QuantizedMatMul(x_eightbit/quantize:0, w_eightbit/values,"
            " x_eightbit/quantize:1, x_eightbit/quantize:2, w_eightbit/min, w_eightbit/max)"
            " T1=quint8 T2=quint8 Toutput=qint32 transpose_a=False transpose_b=False"
        ),
        (
            "layer/eightbit/floats = Dequantize(layer/eightbit:0, layer/eightbit:1,"
            " layer/eightbit:2) T=qint32 mode=MIN_FIRST"
        ),
        "layer = Mul(layer/eightbit/floats, w_eightbit/scales) T=float32",
        "out = Softmax(layer) T=float32",
    ]


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize("source", ["dynamic", "observed"])
def test_the_numbers_are_close_to_those_of_floats(source, granularity, tf115, ranges):
    """Half a step of inputs and of weights, 1/255 of their ranges each, over two layers."""
    graph = _network()
    options = {"range_file": ranges(graph, "x", "relu")} if source == "observed" else {}
    rule = (f"granularity={granularity}",)
    result = apply(NAME, graph, ranges=source, rule=rule, tf115=tf115, **options)
    check_graph(result.graph, "test")
    assert result.matched == 2
    assert op_counts(result.graph)["QuantizedConv2D"] == 2
    assert _peak_share(result.graph, graph) < 0.02


def test_known_ranges_need_no_reductions_and_no_activation_that_they_cut_at(ranges):
    graph = _network()
    ops = op_counts(apply(NAME, graph, range_file=ranges(graph, "x", "relu")).graph)
    assert not {"Min", "Max", "RequantizationRange", "Requantize", "Relu"} & ops.keys()
    assert (ops["QuantizeV2"], ops["BiasAdd"]) == (2, 1)


def test_a_rectification_gives_the_same_bytes_where_the_range_cuts_in_its_place(ranges):
    graph = _network()
    file = ranges(graph, "x", "relu")
    folded = apply(NAME, graph, range_file=file).graph
    kept = apply(NAME, graph, range_file=file, outputs=("out", "relu")).graph
    assert (op_counts(folded)["Relu"], op_counts(kept)["Relu"]) == (0, 1)
    np.testing.assert_array_equal(run(folded, X), run(kept, X))


def test_relu6_stays_where_the_range_goes_beyond_it(ranges):
    six = node("six", "Relu6", "bias")
    graph = _network(six, last="six")
    within = apply(NAME, graph, range_file=ranges(graph, "x", given={"six": (0.0, 5.0)})).graph
    beyond = apply(NAME, graph, range_file=ranges(graph, "x", given={"six": (0.0, 9.0)})).graph
    assert (op_counts(within)["Relu6"], op_counts(beyond)["Relu6"]) == (0, 1)


def test_sums_between_adjacent_layers_are_requantized(ranges):
    graph = Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 6, seed=1) / 8),
            const("w2", normal(1, 1, 6, 5, seed=4) / 4),
            conv("first", "x w"),
            node("relu", "Relu", "first"),
            conv("out", "relu w2"),
        ]
    )
    file = ranges(graph, "x", "relu")
    result = apply(NAME, graph, range_file=file, rule=("granularity=tensor",)).graph
    assert op_counts(result)["Requantize"] == 1
    assert not {"Relu", "RequantizationRange"} & op_counts(result).keys()
    assert str(result["first_eightbit/quantize"].inputs[0]) == "first/eightbit:0"
    assert _peak_share(result, graph) < 0.02


def test_a_tensor_is_quantized_once_however_many_layers_take_it():
    more = [const("w3", normal(1, 1, 6, 3)), conv("third", "relu w3"), node("end", "Tanh", "third")]
    result = apply(NAME, _network(tail=more), outputs=("out", "end"), ranges="dynamic").graph
    taken = {str(result[f"{n}/eightbit"].inputs[0]) for n in ("second", "third")}
    assert taken == {"relu_eightbit/quantize:0"}


def test_weights_that_two_layers_share_are_stored_once():
    more = [conv("third", "relu w2"), node("end", "Tanh", "third")]
    result = apply(NAME, _network(tail=more), outputs=("out", "end"), ranges="dynamic").graph
    stored = [n for n in result if n.op == "Const" and n.attr_tensor("value").dtype is DType.QUINT8]
    assert len(stored) == 2


CARRIED = {
    "MaxPool": ([pool("p", "relu")], "p", "QuantizedMaxPool"),
    "Identity": ([node("i", "Identity", "relu")], "i", "Identity"),
    "Reshape": (
        [const("s", [1, 4, 16, 6], np.int32), node("r", "Reshape", "relu s")],
        "r",
        "Reshape",
    ),
    "Squeeze": (
        [
            const("axis", 1, np.int32),
            node("wide", "ExpandDims", "relu axis", Tdim=DType.INT32),
            node("s", "Squeeze", "wide", squeeze_dims=(1,)),
        ],
        "s",
        "Squeeze",
    ),
}


@pytest.mark.parametrize("source", ["dynamic", "observed"])
@pytest.mark.parametrize("op", CARRIED)
def test_eight_bits_are_carried_on(op, source, ranges):
    between, last, eightbit = CARRIED[op]
    graph = _network(*between, last=last)
    file = {"range_file": ranges(graph, "x", "relu")} if source == "observed" else {}
    result = apply(NAME, graph, ranges=source, **file).graph
    carried = [n for n in result if n.op == eightbit and n.attr_dtype("T") is DType.QUINT8]
    assert len(carried) == 1
    assert (op_counts(result)["QuantizeV2"], last in result) == (2, False)
    assert _peak_share(result, graph) < 0.02


@pytest.mark.parametrize("fetched", [True, False])
def test_values_needed_in_float_are_computed_in_float(fetched, ranges):
    tail = [] if fetched else [node("end", "Tanh", "p")]
    outputs = ("out", "p") if fetched else ("out", "end")
    graph = _network(pool("p", "relu"), last="p", tail=tail)
    result = apply(NAME, graph, outputs=outputs, range_file=ranges(graph, "x", "relu")).graph
    assert result["p"].op == "MaxPool"
    assert "QuantizedMaxPool" not in op_counts(result)


def test_tensors_of_one_range_are_joined_in_eight_bits(ranges):
    between = [
        node("negative", "Neg", "bias"),
        node("other", "Relu", "negative"),
        const("axis", 3, np.int32),
        node("joined", "ConcatV2", "relu other axis", N=2, Tidx=DType.INT32),
        const("w3", normal(1, 1, 12, 6)),
        conv("middle", "joined w3"),
    ]
    graph = _network(*between, last="middle")
    result = apply(NAME, graph, range_file=ranges(graph, "x", "joined", "middle")).graph
    (joined,) = (n for n in result if n.op == "ConcatV2")
    assert joined.attr_dtype("T") is DType.QUINT8
    assert "Relu" not in op_counts(result)
    floats = apply(
        NAME, graph, outputs=("out", "joined"), range_file=ranges(graph, "x", "joined", "middle")
    )
    np.testing.assert_array_equal(run(result, X), run(floats.graph, X))


def test_tensor_without_a_range_is_measured_with_a_warning(ranges):
    graph = _network()
    result = apply(NAME, graph, range_file=ranges(graph, "x"))
    assert op_counts(result.graph)["Min"] == 1
    assert [count for reason, count in result.skipped.items() if "not known" in reason] == [1]
    assert result.warnings == ("no range is known of 'relu': measured each time the graph runs",)
    assert not apply(NAME, graph, ranges="dynamic").warnings


def test_a_range_that_all_elements_follow_from_is_known(ranges):
    between = [pool("mean", "relu", "AvgPool"), node("end", "Tanh", "mean")]
    graph = _network(*between, last="mean")
    result = apply(NAME, graph, outputs=("out", "end"), range_file=ranges(graph, "x", "relu"))
    assert not result.warnings


def test_an_empty_tensor_has_a_range_too():
    graph = _network()
    result = apply(NAME, graph, ranges="dynamic").graph
    assert run(result, np.empty((0, 8, 8, 4), np.float32)).shape == (0, 8, 8, 5)


def test_8bit_placeholders_are_used_directly():
    result = apply(NAME, _network(), ranges="dynamic", input_min=-1.0, input_max=1.0).graph
    assert [str(r) for r in result["first/eightbit"].inputs[:1]] == ["x"]


def _gate(name, op, source, **attrs):
    return node(name, op, source, **attrs)


def test_layers_of_a_branch_run_inside_it():
    """Their constants wait for nothing: oneDNN loses what waits for a Pad that it fuses."""
    graph = Graph(
        [
            placeholder(),
            const("w", normal(1, 1, 4, 4)),
            placeholder("on", DType.BOOL),
            node("way", "Switch", "x on"),
            node("weights", "Switch", "w on"),
            conv("layer", "way:1 weights:1"),
            node("out", "Merge", "way layer", N=2),
        ]
    )
    result = apply(NAME, graph, inputs=("x", "on"), ranges="dynamic").graph
    check_graph(result, "test")
    assert not result["w_eightbit/values"].inputs
    want = Interpreter(graph).run(["out"], {"x": X, "on": np.True_})[0]
    got = Interpreter(result).run(["out"], {"x": X, "on": np.True_})[0]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()
    off = Interpreter(result).run(["out"], {"x": X, "on": np.False_})[0]
    np.testing.assert_array_equal(off, X)


def test_weights_of_a_branch_that_the_input_is_not_in_stay_float():
    graph = Graph(
        [
            placeholder(),
            const("w", normal(1, 1, 4, 4)),
            placeholder("on", DType.BOOL),
            node("weights", "Switch", "w on"),
            conv("layer", "x weights:1"),
            node("out", "Merge", "x layer", N=2),
        ]
    )
    result = apply(NAME, graph, inputs=("x", "on"), ranges="dynamic")
    assert result.graph is graph
    assert result.skipped == {"its weights come through a branch that its input does not": 1}


def _layer(weights="w", values=None, **attrs):
    value = normal(3, 3, 4, 5) if values is None else values
    return Graph([placeholder(), const("w", value), conv("out", f"x {weights}", **attrs)])


NEAR_MISSES = {
    "it is not a float32 op": _layer(T=DType.HALF),
    "channels first has no 8-bit form": _layer(data_format="NCHW"),
    "dilations have no 8-bit form": _layer(dilations=(1, 2, 2, 1)),
    "explicit padding has no 8-bit form": _layer(
        padding="EXPLICIT", explicit_paddings=(0, 0, 1, 1, 1, 1, 0, 0)
    ),
    "unequal strides have no 8-bit form": _layer(strides=(1, 2, 1, 1)),
    "groups of channels have no 8-bit form": Graph(
        [
            const("x", normal(1, 5, 5, 4)),
            const("w", normal(3, 3, 2, 6)),
            conv("out", "x w"),
        ]
    ),
    "the windows of its eight-bit form may lie elsewhere": _layer(
        strides=(1, 4, 4, 1), padding="VALID"
    ),
    "its weights are not constant": _layer(weights="x"),
    "its weights hold infinity or NaN": _layer(values=np.full((1, 1, 4, 5), np.nan)),
    "its weights have the wrong shape": _layer(values=normal(4, 5)),
    "its sums may not fit 32 bits": Graph(
        [placeholder(), const("w", np.ones((40000, 1))), node("out", "MatMul", "x w")]
    ),
    DEPTHWISE: Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 1)),
            conv("out", "x w", op="DepthwiseConv2dNative"),
        ]
    ),
    "its op has no 8-bit form": Graph(
        [placeholder(), const("w", normal(4, 5)), node("out", "BatchMatMulV2", "x w")]
    ),
}


@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_a_layer_that_has_no_eight_bit_form_stays_float(reason):
    result = apply(NAME, NEAR_MISSES[reason], ranges="dynamic", store_rest=False)
    assert result.graph is NEAR_MISSES[reason]
    assert result.skipped == {reason: 1}


def test_an_input_of_too_narrow_a_range_leaves_its_layer_float(ranges):
    """QuantizeV2 would make the range wider, and leave few of its steps to the values."""
    graph = _network()
    file = ranges(graph, "x", given={"relu": (0.0, 0.004)})
    result = apply(NAME, graph, range_file=file)
    assert (result.matched, result.graph["second"].op) == (1, "Conv2D")
    assert [reason for reason in result.skipped if "narrower" in reason]


@pytest.mark.parametrize(
    ("stride", "padding", "size"),
    [(s, p, k) for s in (1, 2, 3) for p in ("SAME", "VALID") for k in (1, 2, 3, 5) if k >= s - 1],
)
@pytest.mark.parametrize("extent", [6, 7, 8, 9])
def test_the_windows_of_every_chosen_convolution_lie_where_they_lay(extent, stride, padding, size):
    x = np.rint(normal(1, extent, extent, 1) * 30)
    weights = np.rint(normal(size, size, 1, 2) * 30)
    graph = _layer(values=weights, strides=(1, stride, stride, 1), padding=padding)
    result = apply(NAME, graph, ranges="dynamic")
    assert result.matched == 1
    want, got = run(graph, x), run(result.graph, x)
    # A window in another place differs by far more than rounding does.
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": "observed"}, "need a range file"),
        ({"ranges": "dynamic", "fallback_min": -1.0, "fallback_max": 1.0}, "fallback range"),
        ({"rule": ("mode=float",)}, "where ranges come from"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(TransformError, match=message) as error:
        apply(NAME, _network(), **options)
    assert error.value.hint


@pytest.mark.parametrize("ends", [(2.0, 1.0), (float("inf"), float("inf"))])
def test_a_range_that_is_none_is_refused(ends, ranges, monkeypatch):
    import mobileprep.transforms.quantize_nodes as module

    file = RangeFile({"x": TensorRange(*ends)})
    monkeypatch.setattr(module, "read_range_file", lambda _: file)
    with pytest.raises(TransformError, match="the range of 'x'"):
        apply(NAME, _network(), range_file="ranges.yaml")


def test_nothing_to_quantize_gives_the_same_object():
    graph = Graph([placeholder(), node("out", "Softmax", "x")])
    assert apply(NAME, graph, ranges="dynamic").graph is graph


def test_the_same_graph_gives_the_same_text():
    first, second = (apply(NAME, _network(), ranges="dynamic").graph for _ in range(2))
    assert shown(first) == shown(second)


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("rule", ["granularity=tensor", "granularity=channel", "mode=weights"])
@pytest.mark.parametrize("measured", [True, False])
def test_new_names_are_free(measured, rule, ranges, tf115):
    graph = _network(pool("pool", "relu"), last="pool")
    options = {"ranges": "dynamic"}
    if not measured:
        options = {"range_file": ranges(graph, "x", "bias", "relu", "pool")}
    given = {"outputs": ("out", "other"), "rule": (rule,), "tf115": tf115, **options}
    made = [n.name for n in apply(NAME, graph, **given).graph if n.name not in graph]
    assert len(made) > 5
    plain = apply(NAME, with_taken(graph, "free"), **given).graph
    for name in made:
        after = apply(NAME, with_taken(graph, name), **given).graph
        check_graph(after, "")
        assert after[name].op == "Exp"
        assert np.array_equal(run(after, X, "other"), run(plain, X, "other")), name
