"""Cases of quantized ops: ranges with and without zero, odd shapes, all modes and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.reference.cases.base import F32, Case, scalar

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
TYPES = (QUINT8, QINT8, DType.QUINT16, DType.QINT16, QINT32)
MODES = ("MIN_COMBINED", "MIN_FIRST", "SCALED")
SEEDS = 40

Inputs = tuple[np.ndarray, ...]
Attrs = dict[str, Any]
Draw = Callable[["_Draws"], tuple[str, Inputs, Attrs]]

# TensorFlow delegates these to oneDNN, which must be off for the others.
ONEDNN = frozenset({"QuantizedDepthwiseConv2D", "QuantizedConcatV2"})


def cases() -> Iterator[Case]:
    for draw in (*_PLAIN, *_ONEDNN):
        for seed in range(SEEDS):
            draws = _Draws(np.random.default_rng([seed, len(draw.__name__)]))
            op, inputs, attrs = draw(draws)
            yield Case(op, inputs, attrs, note=f"{draw.__name__.strip('_')} {seed}")


def uses_onednn(case: Case) -> bool:
    return case.op in ONEDNN or case.attrs.get("Tfilter") is QINT8


class _Draws:
    """Numbers, shapes and ranges from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 0, high: int = 4, *, empty: bool = True) -> tuple[int, ...]:
        sizes = [self.size(1, 6) for _ in range(self.size(low, high))]
        if empty and sizes and self.rng.random() < 0.06:
            sizes[self.size(0, len(sizes) - 1)] = 0
        return tuple(sizes)

    def integers(self, shape: tuple[int, ...], dtype: DType = QUINT8) -> np.ndarray:
        kind = dtype.numpy
        assert kind is not None
        info = np.iinfo(kind)
        if self.rng.random() < 0.2:
            return self.rng.choice(np.array([info.min, info.max, 0, 1], kind), shape)
        reach = info.max
        if dtype is QINT32:
            reach = min(int(10 ** self.rng.uniform(1, 9.5)), reach)
        drawn = self.rng.integers(max(info.min, -reach - 1), reach, shape, endpoint=True)
        return np.asarray(drawn).astype(kind)

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """A range that contains zero, ends at zero, or is far from it."""
        width = 10.0 ** self.rng.uniform(-6, 6)
        low, high = self.one_of(
            (0, width),
            (-width, 0),
            (-width, width),
            (-width * self.rng.random(), width * self.rng.random()),
            (width, width * (1 + self.rng.random())),
            (-width * (1 + self.rng.random()), -width),
            (-1, 1),
            (-6 * self.rng.random(), 6 * self.rng.random()),
        )
        return scalar(low, F32), scalar(high, F32)

    def ranges(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        ends = np.array([self.range() for _ in range(count)], F32).reshape(count, 2)
        return ends[:, 0].copy(), ends[:, 1].copy()

    def floats(self, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
        """Values, some outside the range, some halfway between two 8-bit steps."""
        width = max(high - low, 1e-3)
        x = self.rng.uniform(low - width / 5, high + width / 5, shape)
        halves = low + self.rng.integers(0, 512, shape) * (width / 510)
        return np.where(self.rng.random(shape) < 0.5, x, halves).astype(F32)

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.size(0, len(shape) - 1) if shape and self.rng.random() < 0.4 else -1


def _quantize(d: _Draws) -> tuple[str, Inputs, Attrs]:
    mode, shape = d.one_of(*MODES), d.shape()
    attrs = {"T": d.one_of(*TYPES), "mode": mode, "narrow_range": d.flag()}
    attrs["ensure_minimum_range"] = d.one_of(0.01, 0.0, 0.1)
    if mode == "SCALED":
        attrs["round_mode"] = d.one_of("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN")
    axis = -1 if mode == "MIN_FIRST" else d.axis(shape)
    if axis != -1:
        ends = d.ranges(shape[axis])
        return "QuantizeV2", (d.floats(shape, -2, 2), *ends), {**attrs, "axis": axis}
    low, high = d.range()
    return "QuantizeV2", (d.floats(shape, float(low), float(high)), low, high), attrs


def _dequantize(d: _Draws) -> tuple[str, Inputs, Attrs]:
    mode, shape, dtype = d.one_of(*MODES), d.shape(), d.one_of(*TYPES)
    attrs = {"T": dtype, "mode": mode, "narrow_range": d.flag()}
    if mode == "MIN_COMBINED" and d.flag():
        attrs["dtype"] = DType.BFLOAT16
    axis = -1 if mode == "MIN_FIRST" else d.axis(shape)
    ends = d.range() if axis == -1 else d.ranges(shape[axis])
    return "Dequantize", (d.integers(shape, dtype), *ends), {**attrs, "axis": axis}


def _round_trip(d: _Draws) -> tuple[str, Inputs, Attrs]:
    # Version 3 rejects scalars.
    version, shape = d.one_of(2, 3, 4), d.shape(1, empty=False)
    kind, bits = d.one_of(np.float32, np.float64), d.one_of(1, 2, 4, 8, 8, 16, 24, 32, 61)
    attrs = {"signed_input": d.flag(), "range_given": d.flag(), "narrow_range": d.flag()}
    attrs["T"] = DType.FLOAT if kind is np.float32 else DType.DOUBLE
    # Versions 2 and 4 reject ranges along an axis.
    axis = d.axis(shape) if version == 3 or not attrs["range_given"] else -1
    ends = d.range() if axis == -1 else d.ranges(shape[axis])
    x = d.floats(shape, -2, 2) * F32(10 ** d.rng.uniform(-2, 2))
    inputs = tuple(np.asarray(a).astype(kind) for a in (x, *ends))
    if version == 3:
        inputs = (*inputs, scalar(bits))
    else:
        attrs |= {"num_bits": bits, "round_mode": d.one_of("HALF_UP", "HALF_TO_EVEN")}
    return f"QuantizeAndDequantizeV{version}", inputs, {**attrs, "axis": axis}


def _oldest_round_trip(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype, kind = d.one_of((DType.FLOAT, np.float32), (DType.DOUBLE, np.float64))
    low, high = d.range()
    attrs = {"T": dtype, "signed_input": d.flag(), "num_bits": d.one_of(1, 2, 4, 8, 16)}
    attrs |= {"range_given": d.flag(), "input_min": float(low), "input_max": float(high)}
    x = d.floats(d.shape(empty=False), float(low), float(high)).astype(kind)
    return "QuantizeAndDequantize", (x,), attrs


def _conv(d: _Draws) -> tuple[str, Inputs, Attrs]:
    stride, padding = d.size(1, 3), d.one_of("SAME", "VALID")
    x, filters = _image_and_filters(d, padding, 1, QUINT8)
    attrs = {"strides": [1, stride, stride, 1], "padding": padding}
    types = {"Tinput": QUINT8, "Tfilter": QUINT8, "out_type": QINT32}
    return "QuantizedConv2D", (x, filters, *d.range(), *d.range()), {**attrs, **types}


def _image_and_filters(d: _Draws, padding: str, dilation: int, dtype: DType) -> Inputs:
    filters = d.integers((d.size(1, 4), d.size(1, 4), d.size(1, 4), d.size(1, 5)), dtype)
    least = [(k - 1) * dilation + 1 if padding == "VALID" else 1 for k in filters.shape[:2]]
    height, width = (d.size(low, low + 7) for low in least)
    return d.integers((d.size(1, 2), height, width, filters.shape[2])), filters


def _signed_conv(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dilation, padding = d.size(1, 2), d.one_of("SAME", "VALID")
    strides = [1, 1, 1, 1] if dilation > 1 else [1, d.size(1, 3), d.size(1, 3), 1]
    x, filters = _image_and_filters(d, padding, dilation, QINT8)
    # CPUs without int8 instructions add pairs of products in 16 bits.
    inputs = (x, filters // 2, *d.range(), *d.range())
    attrs = {"strides": strides, "padding": padding, "dilations": [1, dilation, dilation, 1]}
    types = {"Tinput": QUINT8, "Tfilter": QINT8, "out_type": QINT32}
    return d.one_of("QuantizedConv2D", "QuantizedDepthwiseConv2D"), inputs, {**attrs, **types}


def _mat_mul(d: _Draws) -> tuple[str, Inputs, Attrs]:
    rows, summed, columns = (d.size(1, 9) for _ in range(3))
    turned = d.flag(), d.flag()
    x = d.integers((summed, rows) if turned[0] else (rows, summed))
    y = d.integers((columns, summed) if turned[1] else (summed, columns))
    attrs = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
    attrs |= {"transpose_a": turned[0], "transpose_b": turned[1]}
    return "QuantizedMatMul", (x, y, *d.range(), *d.range()), attrs


def _bias_add(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype, shape = d.one_of(QUINT8, QINT8), d.shape(2, empty=False)
    inputs = (d.integers(shape, dtype), d.integers(shape[-1:], dtype), *d.range(), *d.range())
    return "QuantizedBiasAdd", inputs, {"T1": dtype, "T2": dtype, "out_type": QINT32}


def _binary(d: _Draws) -> tuple[str, Inputs, Attrs]:
    whole = d.shape(1, empty=False)
    other = d.one_of(whole, whole[d.size(0, len(whole) - 1) :], (), (1,))
    x, y = (whole, other) if d.flag() else (other, whole)
    inputs = (d.integers(x), d.integers(y), *d.range(), *d.range())
    attrs = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
    return d.one_of("QuantizedAdd", "QuantizedMul"), inputs, attrs


def _relu(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype = d.one_of(QUINT8, QINT32)
    inputs = (d.integers(d.shape(), dtype), *d.range())
    attrs = {"Tinput": dtype, "out_type": dtype}
    return d.one_of("QuantizedRelu", "QuantizedRelu6"), inputs, attrs


def _pool(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype = d.one_of(QUINT8, QINT8)
    shape = (d.size(1, 2), d.size(1, 8), d.size(1, 8), d.size(1, 5))
    size = [1, d.size(1, min(shape[1], 4)), d.size(1, min(shape[2], 4)), 1]
    attrs = {"T": dtype, "ksize": size, "strides": [1, d.size(1, 3), d.size(1, 3), 1]}
    attrs["padding"] = d.one_of("SAME", "VALID")
    op = d.one_of("QuantizedAvgPool", "QuantizedMaxPool")
    return op, (d.integers(shape, dtype), *d.range()), attrs


def _concat(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype = d.one_of(QUINT8, QINT32)
    parts, axis, lows, highs = _parts(d, dtype)
    inputs = (scalar(axis), *parts, *lows, *highs)
    return "QuantizedConcat", inputs, {"T": dtype, "N": len(parts)}


def _concat_v2(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype = d.one_of(QUINT8, QINT8)
    parts, axis, lows, highs = _parts(d, dtype)
    inputs = (*parts, scalar(axis), *lows, *highs)
    return "QuantizedConcatV2", inputs, {"T": dtype, "N": len(parts)}


def _parts(d: _Draws, dtype: DType) -> tuple[list[np.ndarray], int, Any, Any]:
    count, shape = d.size(2, 4), d.shape(1, empty=False)
    axis = d.size(0, len(shape) - 1)
    sizes = [d.size(0 if d.rng.random() < 0.2 else 1, 4) for _ in range(count)]
    parts = [d.integers((*shape[:axis], n, *shape[axis + 1 :]), dtype) for n in sizes]
    ranges = [d.range()] * count if d.rng.random() < 0.3 else [d.range() for _ in range(count)]
    return parts, axis, *zip(*ranges, strict=True)


def _reshape(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype, shape = d.one_of(QUINT8, QINT32), d.shape(empty=False)
    sizes = np.array([-1, *shape[1:]], np.int32)
    return "QuantizedReshape", (d.integers(shape, dtype), sizes, *d.range()), {"T": dtype}


def _resize(d: _Draws) -> tuple[str, Inputs, Attrs]:
    dtype = d.one_of(QUINT8, QINT32)
    images = d.integers((d.size(1, 2), d.size(1, 8), d.size(1, 8), d.size(1, 4)), dtype)
    size = np.array([d.size(1, 14), d.size(1, 14)], np.int32)
    align, centred = d.one_of((False, False), (True, False), (False, True))
    attrs = {"T": dtype, "align_corners": align, "half_pixel_centers": centred}
    return "QuantizedResizeBilinear", (images, size, *d.range()), attrs


def _requantize(d: _Draws) -> tuple[str, Inputs, Attrs]:
    low, high = d.range()
    input_range = np.minimum(low, F32(0)), np.maximum(high, F32(0))
    width = F32(input_range[1] - input_range[0]) * F32(10 ** d.rng.uniform(0, 5))
    output_range = d.range() if d.flag() else (scalar(-width, F32), scalar(width, F32))
    inputs = (d.integers(d.shape(), QINT32), *output_range, *map(np.asarray, input_range))
    return "Requantize", inputs, {"Tinput": QINT32, "out_type": d.one_of(QUINT8, QINT8)}


def _requantization_range(d: _Draws) -> tuple[str, Inputs, Attrs]:
    inputs = (d.integers(d.shape(), QINT32), *d.range())
    return "RequantizationRange", inputs, {"Tinput": QINT32}


def _shrink(d: _Draws) -> tuple[str, Inputs, Attrs]:
    attrs = {"Tinput": QINT32, "out_type": QUINT8}
    return "QuantizeDownAndShrinkRange", (d.integers(d.shape(), QINT32), *d.range()), attrs


def _range_per_channel(d: _Draws) -> tuple[str, Inputs, Attrs]:
    shape = tuple(d.size(1, 5) for _ in range(4))
    inputs = (d.integers(shape, QINT32), *d.ranges(shape[3]))
    attrs = {"T": QINT32, "clip_value_max": d.one_of(6.0, 1e9)}
    return "RequantizationRangePerChannel", inputs, attrs


def _requantize_per_channel(d: _Draws) -> tuple[str, Inputs, Attrs]:
    shape = tuple(d.size(1, 5) for _ in range(4))
    low, high = d.ranges(shape[3])
    end = F32(max(np.abs(low).max(), np.abs(high).max()) * 10 ** d.rng.uniform(-3, 0.5))
    inputs = (d.integers(shape, QINT32), low, high, scalar(-end, F32), scalar(end, F32))
    return "RequantizePerChannel", inputs, {"T": QINT32, "out_type": d.one_of(QUINT8, QINT8)}


def _instance_norm(d: _Draws) -> tuple[str, Inputs, Attrs]:
    # For eight or more channels, TensorFlow uses the CPU's approximate roots.
    shape = (d.size(1, 2), d.size(1, 8), d.size(1, 8), d.size(1, 7))
    attrs = {"T": QUINT8, "variance_epsilon": d.one_of(1e-5, 1e-3)}
    attrs |= {"min_separation": d.one_of(1e-3, 0.1), "output_range_given": d.flag()}
    attrs |= {"given_y_min": -2.0, "given_y_max": d.one_of(2.0, 3.0)}
    return "QuantizedInstanceNorm", (d.integers(shape), *d.range()), attrs


def _batch_norm(d: _Draws) -> tuple[str, Inputs, Attrs]:
    # TensorFlow 2 rejects a single channel.
    shape = (d.size(1, 2), d.size(1, 4), d.size(1, 4), d.size(2, 5))
    attrs = {"Tinput": QUINT8, "out_type": QINT32, "variance_epsilon": 0.001}
    attrs["scale_after_normalization"] = d.flag()
    variances = scalar(0, F32), scalar(d.rng.uniform(0.5, 10), F32)
    inputs = [d.integers(shape), *d.range()]
    for ends in (d.range(), variances, d.range(), d.range()):
        inputs += [d.integers(shape[3:]), *ends]
    return "QuantizedBatchNormWithGlobalNormalization", tuple(inputs), attrs


_PLAIN: tuple[Draw, ...] = (
    *(_quantize, _dequantize, _round_trip, _oldest_round_trip, _conv, _mat_mul, _bias_add),
    *(_binary, _relu, _pool, _concat, _reshape, _resize, _requantize, _requantization_range),
    *(_shrink, _instance_norm, _batch_norm, _range_per_channel, _requantize_per_channel),
)
_ONEDNN: tuple[Draw, ...] = (_signed_conv, _concat_v2)
