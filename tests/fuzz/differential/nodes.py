"""Functions that add random nodes to a graph, one for each family of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.fuzz.differential.writer import MAX_SIZE, Tensor, Writer

FLOAT, INT, LONG, BOOL = DType.FLOAT, DType.INT32, DType.INT64, DType.BOOL
_MOVED = (FLOAT, INT, LONG, BOOL, DType.INT16, DType.UINT8, DType.INT8)
Added = list[Tensor] | None


def ints(w: Writer, values: Sequence[int], dtype: type = np.int32) -> Tensor:
    """A constant of sizes, axes, or indices."""
    return w.constant(np.array(list(values), dtype))


def moved(w: Writer, low: int = 0, high: int = 6) -> Tensor:
    """A tensor for ops that move elements."""
    if w.kind != "float" or w.rng.random() < 0.7:
        return w.floats(low, high)
    return w.of(_MOVED, low, high)


def axis_of(w: Writer, rank: int) -> int:
    return w.rng.randrange(-rank, rank) if rank else 0


def partner(w: Writer, x: Tensor) -> Tensor:
    """A tensor that broadcasts with another one."""
    draw = w.rng.random()
    if draw < 0.35:
        return w.source(x.shape, x.dtype)
    if draw < 0.5:
        match = w.pick(lambda t: t.dtype is x.dtype and fits(t.shape, x.shape))
        if match is not None:
            return match
    sizes = [1 if w.rng.random() < 0.4 else d for d in x.shape]
    sizes = sizes[w.rng.randint(0, len(sizes)) :] if w.rng.random() < 0.5 else sizes
    if w.rng.random() < 0.2:
        sizes = [w.rng.choice([2, 3]) if d == 1 else d for d in sizes]
    if w.rng.random() < 0.2 and len(x.shape) < 6:
        sizes = [w.rng.choice([1, 2]), *[1] * (len(x.shape) - len(sizes)), *sizes]
    if not fits(sizes, x.shape):
        return w.source((), x.dtype)
    return w.source(sizes, x.dtype)


def fits(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(tuple(a), tuple(b))) <= MAX_SIZE
    except ValueError:
        return False


def positive(w: Writer, x: Tensor) -> Tensor | None:
    """Positive values that stay positive when they are rounded to integers."""
    share = 0.0 if w.kind == "float" else 0.2
    least = max(share * float(x.value.max(initial=0)), 0.05)
    if x.value.size and x.value.min() > least:
        return x
    square = w.one(w.rng.choice(["Square", "Abs"]), x)
    if square is None:
        return None
    more = max(2 * share * float(square.value.max(initial=0)), 0.5)
    return w.one("AddV2", square, w.constant(np.float32(more)))


def small(w: Writer, x: Tensor, most: float) -> Tensor | None:
    """Values of limited magnitude."""
    if not x.value.size or np.abs(x.value).max() <= most:
        return x
    return w.one("Mul", x, w.constant(np.float32(most / float(np.abs(x.value).max()))))


_UNARY = (
    *("Abs", "Neg", "Square", "Sin", "Cos", "Relu", "Relu", "Relu6", "Elu", "Selu", "Softplus"),
    *("Sigmoid", "Sigmoid", "Tanh", "Tanh", "Softsign", "Erf", "Identity", "LeakyRelu", "L2Loss"),
    *("ZerosLike", "OnesLike"),
)
_ROUNDING = ("Floor", "Ceil", "Round", "Rint", "Sign")
_EIGHT_UNARY = (
    *("Abs", "Relu", "Relu", "Relu6", "Elu", "Sigmoid", "Tanh", "LeakyRelu", "Identity", "Neg"),
    *("Square", "Softsign", "Softplus", "Selu", "Erf"),
)


def unary(w: Writer) -> Added:
    if w.kind == "float" and w.rng.random() < 0.12:
        x = w.of((INT, LONG))
        return w.add(w.rng.choice(["Abs", "Neg", "Sign"] if x.dtype is INT else ["Neg"]), [x])
    x = w.floats()
    kind = w.rng.choice(_UNARY if w.kind == "float" else _EIGHT_UNARY)
    if w.kind == "float" and w.rng.random() < 0.1:
        kind = w.rng.choice(_ROUNDING)
    attrs = {"alpha": w.rng.choice([0.125, 0.2, 0.5])} if kind == "LeakyRelu" else {}
    return w.add(kind, [x], **attrs)


def limited(w: Writer) -> Added:
    """A function of positive or small values."""
    x = w.floats()
    kind = w.rng.choice(["Exp", "Expm1", "Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal"])
    y = small(w, x, 3.0) if kind.startswith("Exp") else positive(w, x)
    return None if y is None else w.add(kind, [y])


def binary(w: Writer) -> Added:
    kinds = ["AddV2", "Add", "Sub", "Mul", "Mul", "Maximum", "Minimum", "SquaredDifference"]
    if w.kind != "float":
        x = w.floats()
    elif w.rng.random() < 0.8:
        x = w.floats()
        kinds += ["RealDiv", "FloorDiv", "FloorMod", "DivNoNan", "MulNoNan", "Xdivy", "Pow"]
    else:
        x = w.of((INT, INT, LONG))
        if x.dtype is INT:
            kinds += ["FloorDiv", "FloorMod", "TruncateDiv"]
        else:
            kinds += ["FloorMod"]
            kinds.remove("SquaredDifference")
    kind = w.rng.choice(kinds)
    y = partner(w, x)
    if kind in ("RealDiv", "FloorDiv", "FloorMod", "TruncateDiv"):
        if x.dtype is not FLOAT:
            y = w.constant(np.where(y.value == 0, 3, y.value).astype(y.value.dtype))
        else:
            y = positive(w, y)
    elif kind == "Pow":
        x, y = positive(w, x), small(w, y, 2.0)
    if x is None or y is None or not fits(x.shape, y.shape):
        return None
    return w.add(
        kind,
        [x, y]
        if w.rng.random() < 0.6 or kind == "Pow" or "iv" in kind or kind == "FloorMod"
        else [y, x],
    )


def compared(w: Writer) -> Added:
    dtypes = (FLOAT, FLOAT, INT, LONG, DType.UINT8, DType.INT8, DType.INT16, BOOL)
    x = w.of(dtypes if w.kind == "float" else (FLOAT,))
    kinds = ["Equal", "NotEqual"]
    if x.dtype is not BOOL:
        kinds += ["Less", "LessEqual", "Greater", "GreaterEqual"]
    y = partner(w, x)
    return w.add(w.rng.choice(kinds), [x, y] if w.rng.random() < 0.6 else [y, x])


def logic(w: Writer) -> Added:
    x = w.of((BOOL,))
    if w.rng.random() < 0.3:
        return w.add("LogicalNot", [x])
    return w.add(w.rng.choice(["LogicalAnd", "LogicalOr"]), [x, partner(w, x)])


def selected(w: Writer) -> Added:
    x = moved(w)
    y = partner(w, x)
    shape = np.broadcast_shapes(x.shape, y.shape)
    if w.rng.random() < 0.3 and x.shape == y.shape:
        sizes = w.rng.choice([x.shape, x.shape[:1], ()])
        return w.add("Select", [w.source(sizes, BOOL), x, y])
    sizes = [1 if w.rng.random() < 0.3 else d for d in shape]
    sizes = sizes[w.rng.randint(0, len(sizes)) :] if w.rng.random() < 0.4 else sizes
    return w.add("SelectV2", [w.source(sizes, BOOL), x, y])


def cast(w: Writer) -> Added:
    targets = [INT, LONG, FLOAT, BOOL, DType.INT16, DType.UINT8, DType.INT8]
    x = w.of((FLOAT, INT, LONG, BOOL, DType.UINT8, DType.INT16))
    target = w.rng.choice([t for t in targets if t is not x.dtype])
    if target is DType.UINT8 and x.value.size and x.dtype is not BOOL and x.value.min() < 0:
        return None
    if x.value.size and np.abs(x.value.astype(np.float64)).max() > 120:
        return None
    return w.add("Cast", [x], DstT=target)


def reduction(w: Writer) -> Added:
    kinds = ["Mean", "Sum", "Max", "Min", "Prod"]
    draw = w.rng.random()
    if w.kind != "float" or draw < 0.7:
        x = w.floats(0)
    elif draw < 0.85:
        x = w.of((INT, LONG))
        kinds = ["Sum", "Max", "Min", "Prod"]
    else:
        x, kinds = w.of((BOOL,)), ["Any", "All"]
    if w.kind != "float":
        kinds = ["Mean", "Mean", "Sum", "Max", "Min"]
    count = w.rng.randint(0, x.rank) if w.rng.random() < 0.9 else x.rank
    axes = w.rng.sample(range(x.rank), count)
    axes = [a - x.rank if w.rng.random() < 0.3 else a for a in axes]
    values = ints(w, axes, w.rng.choice([np.int32, np.int64]))
    if len(axes) == 1 and w.rng.random() < 0.4:
        values = w.constant(np.int32(axes[0]))
    return w.add(w.rng.choice(kinds), [x, values], keep_dims=w.rng.random() < 0.5)


def arg(w: Writer) -> Added:
    x = w.floats(1) if w.rng.random() < 0.7 or w.kind != "float" else w.of((INT,), 1)
    axis = w.constant(np.int32(axis_of(w, x.rank)))
    kind = w.rng.choice(["ArgMax", "ArgMin"])
    return w.add(kind, [x, axis], output_type=w.rng.choice([INT, LONG]))


def top_k(w: Writer) -> Added:
    x = w.floats(1)
    k = w.constant(np.int32(w.rng.randint(1, x.shape[-1])))
    return w.add("TopKV2", [x, k], 2)


def cumulated(w: Writer) -> Added:
    x = w.floats(1) if w.rng.random() < 0.7 else w.of((INT, LONG), 1)
    flags = {n: w.rng.random() < 0.4 for n in ("exclusive", "reverse")}
    return w.add("Cumsum", [x, w.constant(np.int32(axis_of(w, x.rank)))], **flags)


def softmax(w: Writer) -> Added:
    x = w.floats(1)
    x = small(w, x, 8.0) if x else None
    return None if x is None else w.add(w.rng.choice(["Softmax", "Softmax", "LogSoftmax"]), [x])


def reshape(w: Writer) -> Added:
    x = moved(w)
    draw = w.rng.random()
    if draw < 0.25:
        axes = [i for i, d in enumerate(x.shape) if d == 1]
        axes = w.rng.sample(axes, w.rng.randint(0, len(axes)))
        return w.add("Squeeze", [x], squeeze_dims=[int(a) for a in axes])
    if draw < 0.5 and x.rank < 6:
        axis = w.rng.randrange(-x.rank - 1, x.rank + 1)
        return w.add("ExpandDims", [x, w.constant(np.int32(axis))])
    if not x.value.size:
        return w.add("Reshape", [x, ints(w, w.rng.sample(x.shape, x.rank))])
    factors = [p for d in x.shape for p in _factors(d)]
    w.rng.shuffle(factors)
    sizes = [1] * w.rng.randint(0 if not factors else 1, 6)
    for factor in factors:
        sizes[w.rng.randrange(len(sizes))] *= factor
    if sizes and w.rng.random() < 0.3:
        sizes[w.rng.randrange(len(sizes))] = -1
    if w.rng.random() < 0.15:
        like = w.pick(lambda t: t.value.size == x.value.size)
        sizes_of = None if like is None else w.one("Shape", like, out_type=INT)
        if sizes_of is not None:
            return w.add("Reshape", [x, sizes_of])
    return w.add("Reshape", [x, ints(w, sizes, w.rng.choice([np.int32, np.int64]))])


def _factors(number: int) -> list[int]:
    factors, by = [], 2
    while number > 1:
        while number % by == 0:
            factors.append(by)
            number //= by
        by += 1
    return factors


def transpose(w: Writer) -> Added:
    x = moved(w)
    return w.add("Transpose", [x, ints(w, w.rng.sample(range(x.rank), x.rank))])


def concat(w: Writer) -> Added:
    x = moved(w, 1)
    axis = axis_of(w, x.rank)
    parts = [x]
    for _ in range(w.rng.randint(1, 3)):
        sizes = list(x.shape)
        sizes[axis] = w.rng.randint(1, 3)
        same = w.pick(
            lambda t: (
                t.dtype is x.dtype
                and t.rank == x.rank
                and all(i == axis % x.rank or t.shape[i] == x.shape[i] for i in range(x.rank))
            )
        )
        parts.append(
            same if same is not None and w.rng.random() < 0.6 else w.source(sizes, x.dtype)
        )
    w.rng.shuffle(parts)
    return w.add("ConcatV2", [*parts, w.constant(np.int32(axis))])


def pack(w: Writer) -> Added:
    x = moved(w, 0, 5)
    parts = [x, *(w.source(x.shape, x.dtype) for _ in range(w.rng.randint(0, 2)))]
    return w.add("Pack", parts, axis=w.rng.randrange(-x.rank - 1, x.rank + 1))


def split(w: Writer) -> Added:
    x = moved(w, 1)
    axis = axis_of(w, x.rank)
    size = x.shape[axis]
    if w.rng.random() < 0.4:
        return w.add("Unpack", [x], size, num=size, axis=axis) if size < 5 else None
    where = w.constant(np.int32(axis))
    if w.rng.random() < 0.5:
        count = w.rng.choice([n for n in range(1, size + 1) if size % n == 0])
        return w.add("Split", [where, x], count, num_split=count)
    cuts = sorted(w.rng.sample(range(1, size), w.rng.randint(0, min(2, size - 1))))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    if w.rng.random() < 0.3:
        sizes[w.rng.randrange(len(sizes))] = -1
    return w.add("SplitV", [x, ints(w, sizes), where], len(sizes), num_split=len(sizes))


def sliced(w: Writer) -> Added:
    x = moved(w, 1)
    begin = [w.rng.randrange(d) for d in x.shape]
    size = [
        w.rng.choice([-1, w.rng.randint(1, d - b)]) for b, d in zip(begin, x.shape, strict=True)
    ]
    return w.add("Slice", [x, ints(w, begin), ints(w, size)])


def strided(w: Writer) -> Added:
    x = moved(w, 1)
    masks = dict.fromkeys(
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
    )
    begins, ends, strides = [], [], []
    remaining = list(x.shape[: w.rng.randint(1, x.rank)])
    is_elided = False
    while remaining:
        place = len(begins)
        draw = w.rng.random()
        if draw < 0.08 and x.rank + masks["new_axis_mask"].bit_count() < 6:
            masks["new_axis_mask"] |= 1 << place
            begins.append(0), ends.append(0), strides.append(1)
            continue
        if draw < 0.16 and not is_elided:
            is_elided = True
            masks["ellipsis_mask"] |= 1 << place
            begins.append(0), ends.append(0), strides.append(1)
            remaining = (
                list(x.shape[x.rank - w.rng.randint(0, len(remaining)) :]) if len(remaining) else []
            )
            # Dimensions that follow an ellipsis are counted from the end.
            continue
        size = remaining.pop(0)
        if draw < 0.35:
            masks["shrink_axis_mask"] |= 1 << place
            at = w.rng.randrange(-size, size)
            begins.append(at), ends.append(at + 1), strides.append(1)
            continue
        stride = w.rng.choice([1, 1, 1, 2, -1, -2])
        low, high = sorted(w.rng.sample(range(size + 1), 2))
        begin, end = (low, high) if stride > 0 else (high - 1, low - 1)
        if stride < 0 and end < 0:
            end = -size - 1
        if w.rng.random() < 0.2:
            masks["begin_mask"] |= 1 << place
        if w.rng.random() < 0.2:
            masks["end_mask"] |= 1 << place
        if begin >= 0 and w.rng.random() < 0.2 and begin < size:
            begin -= size
        begins.append(begin), ends.append(end), strides.append(stride)
    values = [ints(w, v) for v in (begins, ends, strides)]
    try:
        return w.add("StridedSlice", [x, *values], **masks)
    except Exception:  # noqa: BLE001 - a random slice may be invalid
        return None


def gathered(w: Writer) -> Added:
    x = moved(w, 1)
    batch = w.rng.randint(0, min(2, x.rank - 1)) if w.rng.random() < 0.3 else 0
    axis = w.rng.randrange(batch, x.rank)
    sizes = [*x.shape[:batch], *w.shape(0, max(0, min(2, 6 - x.rank)))]
    state = np.random.default_rng(w.rng.getrandbits(48))
    values = state.integers(0, x.shape[axis], sizes).astype(w.rng.choice([np.int32, np.int64]))
    places = w.constant(values) if w.depth or w.rng.random() < 0.6 else w.placeholder(values)
    if w.rng.random() < 0.3:
        axis -= x.rank
    return w.add("GatherV2", [x, places, w.constant(np.int32(axis))], batch_dims=batch)


def gathered_nd(w: Writer) -> Added:
    x = moved(w, 1)
    depth = w.rng.randint(1, x.rank)
    sizes = w.shape(1, 2)
    state = np.random.default_rng(w.rng.getrandbits(48))
    values = np.stack([state.integers(0, d, sizes) for d in x.shape[:depth]], -1).astype(np.int32)
    return w.add("GatherNd", [x, w.constant(values)])


def scattered(w: Writer) -> Added:
    sizes = w.shape(1, 3)
    count = w.rng.randint(1, sizes[0])
    places = np.array(w.rng.sample(range(sizes[0]), count), np.int32)[:, None]
    updates = w.source((count, *sizes[1:]), w.rng.choice([FLOAT, FLOAT, INT]))
    return w.add("ScatterNd", [w.constant(places), updates, ints(w, sizes)])


def tiled(w: Writer) -> Added:
    x = moved(w, 1)
    times = [w.rng.choice([1, 1, 2, 3]) for _ in x.shape]
    if x.value.size * math.prod(times) > MAX_SIZE:
        return None
    return w.add("Tile", [x, ints(w, times, w.rng.choice([np.int32, np.int64]))])


def broadcast(w: Writer) -> Added:
    x = moved(w)
    sizes = [w.rng.choice([1, 2, 3]) if d == 1 else d for d in x.shape]
    sizes = [w.rng.choice([1, 2]) for _ in range(w.rng.randint(0, 6 - x.rank))] + sizes
    if math.prod(sizes) > MAX_SIZE:
        return None
    return w.add("BroadcastTo", [x, ints(w, sizes)])


def sizes_of(w: Writer) -> Added:
    x = w.floats()
    kind = w.rng.choice(["Shape", "Size", "Rank"])
    attrs = {} if kind == "Rank" else {"out_type": w.rng.choice([INT, LONG])}
    return w.add(kind, [x], **attrs)


def filled(w: Writer) -> Added:
    draw = w.rng.random()
    if draw < 0.3:
        return w.add(
            "Fill", [ints(w, w.shape(0, 4)), w.source((), w.rng.choice([FLOAT, INT, BOOL]))]
        )
    if draw < 0.6:
        start, count = w.rng.randint(-3, 3), w.rng.randint(1, 6)
        kind = w.rng.choice([np.int32, np.float32])
        return w.add("Range", [w.constant(kind(v)) for v in (start, start + 2 * count, 2)])
    state = np.random.default_rng(w.rng.getrandbits(48))
    places = state.integers(-1, 4, w.shape(0, 3)).astype(w.rng.choice([np.int32, np.int64]))
    indices = w.constant(places) if w.depth else w.placeholder(places)
    kind = w.rng.choice([np.float32, np.int32])
    values = [w.constant(np.int32(4)), w.constant(kind(2)), w.constant(kind(-1))]
    return w.add("OneHot", [indices, *values], axis=w.rng.randrange(-1, places.ndim + 1))


def reversed_(w: Writer) -> Added:
    x = moved(w, 1)
    axes = w.rng.sample(range(x.rank), w.rng.randint(1, x.rank))
    if w.rng.random() < 0.3:
        shifts = [w.rng.randint(-3, 3) for _ in axes]
        return w.add("Roll", [x, ints(w, shifts), ints(w, axes)])
    return w.add("ReverseV2", [x, ints(w, axes)])


def padded(w: Writer) -> Added:
    x = moved(w, 1)
    draw = w.rng.random()
    if draw < 0.3:
        mode = w.rng.choice(["REFLECT", "SYMMETRIC"])
        most = [max(d - (mode == "REFLECT"), 0) for d in x.shape]
        pairs = [[w.rng.randint(0, min(2, m)), w.rng.randint(0, min(1, m))] for m in most]
        return w.add("MirrorPad", [x, w.constant(np.array(pairs, np.int32))], mode=mode)
    pairs = [[w.rng.choice([0, 0, 1, 2]), w.rng.choice([0, 0, 1])] for _ in x.shape]
    amounts = w.constant(np.array(pairs, w.rng.choice([np.int32, np.int64])))
    if draw < 0.6:
        return w.add("Pad", [x, amounts])
    return w.add("PadV2", [x, amounts, w.constant(w.numbers((), x.dtype))])


def where(w: Writer) -> Added:
    return w.add("Where", [w.of((BOOL,), 1)])


def matmul(w: Writer) -> Added:
    x = w.floats(2, 6)
    if x.rank == 2 and w.rng.random() < 0.6:
        flags = {n: w.rng.random() < 0.3 for n in ("transpose_a", "transpose_b")}
        inner, outer = x.shape[0 if flags["transpose_a"] else 1], w.rng.randint(1, 5)
        sizes = (outer, inner) if flags["transpose_b"] else (inner, outer)
        return w.add("MatMul", [x, w.source(sizes)], **flags)
    flags = {n: w.rng.random() < 0.3 for n in ("adj_x", "adj_y")}
    inner, outer = x.shape[-2 if flags["adj_x"] else -1], w.rng.randint(1, 4)
    sizes = (outer, inner) if flags["adj_y"] else (inner, outer)
    batch = list(x.shape[:-2])
    if w.rng.random() < 0.4:
        batch = [1 if w.rng.random() < 0.5 else d for d in batch]
        batch = batch[w.rng.randint(0, len(batch)) :]
    return w.add("BatchMatMulV2", [x, w.source((*batch, *sizes))], **flags)


_EINSUMS = ("ij,jk->ik", "bij,bjk->bik", "ij,ij->i", "bij,kj->bik", "bhid,bhjd->bhij", "ij->ji")


def einsum(w: Writer) -> Added:
    equation = w.rng.choice(_EINSUMS)
    sizes = {c: w.rng.randint(1, 4) for c in "bhijkd"}
    terms = equation.split("->")[0].split(",")
    return w.add("Einsum", [w.source([sizes[c] for c in t]) for t in terms], equation=equation)


def image(w: Writer) -> Tensor:
    """A batch of images."""
    match = w.pick(lambda t: t.dtype is FLOAT and t.rank == 4 and min(t.shape) > 0)
    if match is not None and w.rng.random() < 0.7:
        return match
    r = w.rng.randint
    return w.source((r(1, 2), r(1, 6), r(1, 6), r(1, 4)))


def convolution(w: Writer) -> Added:
    x = image(w)
    kind = w.rng.choice(["Conv2D", "Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"])
    h, v = w.rng.randint(1, 3), w.rng.randint(1, 3)
    stride = w.rng.choice([1, 1, 2])
    padding = w.rng.choice(["SAME", "VALID"])
    dilation = w.rng.choice([1, 1, 2]) if stride == 1 else 1
    window = [(h - 1) * dilation + 1, (v - 1) * dilation + 1]
    if padding == "VALID" and (window[0] > x.shape[1] or window[1] > x.shape[2]):
        padding = "SAME"
    attrs = {"strides": [1, stride, stride, 1], "padding": padding}
    last = w.rng.randint(1, 4)
    if kind == "Conv2DBackpropInput":
        sizes = [
            d * stride if padding == "SAME" else (d - 1) * stride + k
            for d, k in zip(x.shape[1:3], (h, v), strict=True)
        ]
        weights = w.constant(w.numbers((h, v, last, x.shape[3])))
        inputs = [ints(w, [x.shape[0], *sizes, last]), weights, x]
        return w.add(kind, inputs, **attrs)
    attrs["dilations"] = [1, dilation, dilation, 1]
    depth = last if kind == "Conv2D" else w.rng.randint(1, 2)
    weights = w.constant(w.numbers((h, v, x.shape[3], depth)))
    if w.kind == "float" and not w.depth and w.rng.random() < 0.1:
        weights = w.placeholder(weights.value)
    y = w.one(kind, x, weights, **attrs)
    if y is not None and w.rng.random() < 0.6:
        y = w.one("BiasAdd", y, w.constant(w.numbers(y.shape[-1:])))
    if y is not None and w.rng.random() < 0.4:
        y = w.one(w.rng.choice(["Relu", "Relu6", "Tanh"]), y)
    return None if y is None else [y]


def pooled(w: Writer) -> Added:
    x = image(w)
    h, v = (w.rng.randint(1, min(3, d)) for d in x.shape[1:3])
    attrs = {
        "ksize": [1, h, v, 1],
        "strides": [1, w.rng.randint(1, 2), w.rng.randint(1, 2), 1],
        "padding": w.rng.choice(["SAME", "VALID"]),
    }
    return w.add(w.rng.choice(["MaxPool", "AvgPool"]), [x], **attrs)


def normalized(w: Writer) -> Added:
    x = image(w)
    depth = x.shape[3]
    statistics = [w.constant(np.abs(w.numbers((depth,))) + np.float32(0.5)) for _ in range(4)]
    return w.add("FusedBatchNormV3", [x, *statistics], 1, is_training=False, epsilon=0.001)


def resized(w: Writer) -> Added:
    x = image(w)
    sizes = [w.rng.randint(1, 7), w.rng.randint(1, 7)]
    if x.shape[0] * sizes[0] * sizes[1] * x.shape[3] > MAX_SIZE:
        return None
    flag = w.rng.choice(["align_corners", "half_pixel_centers", "none"])
    attrs = {n: n == flag for n in ("align_corners", "half_pixel_centers")}
    kind = w.rng.choice(["ResizeBilinear", "ResizeNearestNeighbor"])
    return w.add(kind, [x, ints(w, sizes)], **attrs)


def blocks(w: Writer) -> Added:
    x = image(w)
    n, h, v, c = x.shape
    kind = w.rng.choice(["SpaceToDepth", "DepthToSpace", "SpaceToBatchND", "BatchToSpaceND"])
    if kind == "SpaceToDepth" and not (h % 2 or v % 2):
        return w.add(kind, [x], block_size=2)
    if kind == "DepthToSpace" and not c % 4:
        return w.add(kind, [x], block_size=2)
    if kind == "SpaceToBatchND":
        pads = w.constant(np.array([[0, h % 2], [0, v % 2]], np.int32))
        return w.add(kind, [x, ints(w, [2, 2]), pads])
    if kind == "BatchToSpaceND" and n % 2 == 0:
        return w.add(kind, [x, ints(w, [2, 1]), w.constant(np.zeros((2, 2), np.int32))])
    return None


def matrices(w: Writer) -> Added:
    x = w.floats(2, 5)
    draw = w.rng.random()
    if draw < 0.5:
        bounds = [w.constant(np.int32(w.rng.randint(-1, min(2, d)))) for d in x.shape[-2:]]
        return w.add("MatrixBandPart", [x, *bounds])
    if draw < 0.75:
        return w.add("MatrixDiag", [w.floats(1, 4)])
    return w.add("MatrixSetDiag", [x, w.source((*x.shape[:-2], min(x.shape[-2:])))])


def scaled(w: Writer) -> Added:
    """A tensor of another magnitude, which needs its own range."""
    x = w.floats()
    factor = np.float32(w.rng.choice([0.01, 0.05, 20, 100]))
    return w.add("Mul", [x, w.constant(factor)])


def dead(w: Writer) -> Added:
    """The addition of several tensors."""
    x = w.floats()
    return w.add("AddN", [x, *(w.source(x.shape) for _ in range(w.rng.randint(0, 3)))])


def rare(w: Writer) -> Added:
    """A rare op."""
    return w.rng.choice(_RARE)(w)


def _two_floats(w: Writer) -> Added:
    x = w.floats()
    y = partner(w, x)
    kind = w.rng.choice(["Atan2", "Xlogy", "Xlog1py", "TruncateMod"])
    if kind in ("Xlogy", "Xlog1py", "TruncateMod"):
        y = positive(w, y) or y
    return w.add(kind, [x, y])


def _one_float(w: Writer) -> Added:
    x = w.floats()
    kind = w.rng.choice(["Erfc", "Tan", "IsFinite", "IsNan", "IsInf", "Inv"])
    y = small(w, x, 1.0) if kind == "Tan" else positive(w, x) if kind == "Inv" else x
    return None if y is None else w.add(kind, [y])


def _clipped(w: Writer) -> Added:
    x = w.floats()
    return w.add("ClipByValue", [x, w.constant(np.float32(-1.5)), w.constant(np.float32(2))])


def _xor(w: Writer) -> Added:
    x = w.of((INT,))
    return w.add("BitwiseXor", [x, partner(w, x)])


def _bucketized(w: Writer) -> Added:
    return w.add("Bucketize", [w.floats()], boundaries=[-1.5, 0.25, 2.0])


def _cumulated_products(w: Writer) -> Added:
    x = w.floats(1)
    flags = {n: w.rng.random() < 0.4 for n in ("exclusive", "reverse")}
    return w.add("Cumprod", [x, w.constant(np.int32(axis_of(w, x.rank)))], **flags)


def _norm(w: Writer) -> Added:
    x = w.floats(1)
    axes = w.rng.sample(range(x.rank), w.rng.randint(1, x.rank))
    return w.add("EuclideanNorm", [x, ints(w, axes)], keep_dims=w.rng.random() < 0.5)


def _local(w: Writer) -> Added:
    return w.add("LRN", [image(w)], depth_radius=w.rng.randint(1, 2), bias=1.0, alpha=0.5)


def _segments(w: Writer) -> Added:
    x = w.floats(1)
    count = x.shape[0]
    ids = sorted(w.rng.randint(0, 2) for _ in range(count))
    if w.rng.random() < 0.5:
        ids = [0, *ids[1:]]
        ids = [sorted(set(ids)).index(i) for i in ids]
        return w.add("SegmentSum", [x, ints(w, ids)])
    w.rng.shuffle(ids)
    kind = w.rng.choice(["Max", "Min", "Prod", "Sum"])
    return w.add(f"UnsortedSegment{kind}", [x, ints(w, ids), w.constant(np.int32(3))])


def _sequences(w: Writer) -> Added:
    x = w.floats(2, 5)
    batch, seq = w.rng.sample(range(x.rank), 2)
    lengths = [w.rng.randint(0, x.shape[seq]) for _ in range(x.shape[batch])]
    return w.add("ReverseSequence", [x, ints(w, lengths)], batch_dim=batch, seq_dim=seq)


def _unique(w: Writer) -> Added:
    return w.add("Unique", [w.of((FLOAT, INT, LONG), 1, 1)], 2, out_idx=w.rng.choice([INT, LONG]))


def _updated(w: Writer) -> Added:
    x = w.floats(1, 4)
    places = w.rng.sample(range(x.shape[0]), w.rng.randint(1, x.shape[0]))
    updates = w.source((len(places), *x.shape[1:]))
    rows = w.constant(np.array(places, np.int32)[:, None])
    return w.add("TensorScatterUpdate", [x, rows, updates])


def _volume(w: Writer) -> Added:
    r = w.rng.randint
    x = w.source((1, r(1, 3), r(1, 4), r(1, 4), r(1, 3)))
    padding = w.rng.choice(["SAME", "VALID"])
    if w.rng.random() < 0.5:
        weights = w.constant(
            w.numbers((1, r(1, x.shape[2]), r(1, x.shape[3]), x.shape[4], r(1, 3)))
        )
        return w.add("Conv3D", [x, weights], strides=[1, 1, r(1, 2), 1, 1], padding=padding)
    sizes = {
        "ksize": [1, 1, r(1, x.shape[2]), r(1, x.shape[3]), 1],
        "strides": [1, 1, r(1, 2), 1, 1],
    }
    return w.add(w.rng.choice(["MaxPool3D", "AvgPool3D"]), [x], padding=padding, **sizes)


def _channels_first(w: Writer) -> Added:
    r = w.rng.randint
    x = w.floats(4, 4)
    if w.rng.random() < 0.3:
        x = w.floats(2, 5)
        return w.add("BiasAdd", [x, w.constant(w.numbers(x.shape[1:2]))], data_format="NCHW")
    _, c, h, v = x.shape
    if not x.value.size:  # no window fits
        return None
    attrs = {"strides": [1, 1, r(1, 2), r(1, 2)], "padding": "VALID", "data_format": "NCHW"}
    if w.rng.random() < 0.5:
        return w.add("MaxPool", [x], ksize=[1, 1, r(1, h), r(1, v)], **attrs)
    weights = w.constant(w.numbers((r(1, min(h, 3)), r(1, min(v, 3)), c, r(1, 3))))
    return w.add("Conv2D", [x, weights], **attrs)


def _explicit(w: Writer) -> Added:
    r = w.rng.randint
    x = image(w)
    weights = w.constant(w.numbers((r(1, 3), r(1, 3), x.shape[3], r(1, 3))))
    pads = [0, 0, r(1, 2), r(1, 2), r(1, 2), r(0, 2), 0, 0]
    attrs = {"strides": [1, 1, r(1, 2), 1], "padding": "EXPLICIT", "explicit_paddings": pads}
    return w.add("Conv2D", [x, weights], **attrs)


def _spectrum(w: Writer) -> Added:
    x = w.floats(1, 4)
    spectrum = w.add("RFFT", [x, ints(w, [w.rng.choice([4, 8])])])
    return None if spectrum is None else w.add("ComplexAbs", spectrum)


def _many(w: Writer) -> Added:
    x = w.floats()
    return w.add("ShapeN", [x, w.source(w.shape())], 2, out_type=w.rng.choice([INT, LONG]))


_RARE = (
    *(_two_floats, _one_float, _clipped, _xor, _bucketized, _cumulated_products, _norm, _local),
    *(_segments, _sequences, _unique, _updated, _volume, _channels_first, _explicit, _many),
)


def computed(w: Writer) -> Added:
    """An op whose sizes or bounds the graph computes."""
    x = moved(w, 1)
    draw = w.rng.random()
    sizes = w.one("Shape", x, out_type=w.rng.choice([INT, INT, LONG]))
    if sizes is None:
        return None
    if draw < 0.2:
        return w.add("BroadcastTo", [w.source((1,), x.dtype), sizes])
    if draw < 0.35:
        return w.add("Fill", [sizes, w.source((), w.rng.choice([FLOAT, INT]))])
    if draw < 0.6:
        places = np.array([w.rng.randrange(d) for d in x.shape], np.int32)
        begin = w.constant(places) if w.depth else w.placeholder(places)
        return w.add("Slice", [x, begin, ints(w, [1] * x.rank)])
    bounds = [ints(w, [v]) for v in (0, 1, 1)]
    first = w.one("StridedSlice", sizes, *bounds, shrink_axis_mask=1)
    if first is None:
        return None
    if draw < 0.8:
        rest = w.constant(np.asarray(-1, first.value.dtype))
        packed = w.one("Pack", first, rest, axis=0)
        return None if packed is None else w.add("Reshape", [x, packed])
    if first.dtype is INT:
        return w.add("Range", [w.constant(np.int32(0)), first, w.constant(np.int32(1))])
    return w.add("Cast", [first], DstT=FLOAT)


FLOAT_NODES: dict[Callable[[Writer], Added], int] = {
    unary: 8, limited: 4, binary: 14, compared: 4, logic: 2, selected: 4, cast: 3, reduction: 6,
    arg: 2, top_k: 1, cumulated: 2, softmax: 2, reshape: 6, transpose: 4, concat: 4, pack: 3,
    split: 4, sliced: 3, strided: 6, gathered: 4, gathered_nd: 2, scattered: 1, tiled: 2,
    broadcast: 2, sizes_of: 2, filled: 2, reversed_: 2, padded: 4, where: 1, matmul: 5, einsum: 1,
    convolution: 4, pooled: 2, normalized: 1, resized: 2, blocks: 2, matrices: 2, dead: 1, rare: 7,
    computed: 3,
}  # fmt: skip
INTEGER_NODES: dict[Callable[[Writer], Added], int] = {
    unary: 8, limited: 2, binary: 14, selected: 4, reduction: 5, arg: 1, softmax: 3, reshape: 5,
    transpose: 4, concat: 8, pack: 4, split: 4, sliced: 3, strided: 4, gathered: 3, tiled: 1,
    broadcast: 1, reversed_: 1, padded: 4, matmul: 8, convolution: 12, pooled: 5, normalized: 1,
    resized: 2, blocks: 2, scaled: 8, dead: 1, compared: 1, gathered_nd: 1, top_k: 1,
}  # fmt: skip
BODY_NODES: dict[Callable[[Writer], Added], int] = {
    unary: 6, binary: 10, selected: 2, reduction: 3, reshape: 2, transpose: 2, concat: 2, split: 2,
    sliced: 1, matmul: 2, softmax: 1, padded: 1, reversed_: 1, gathered: 1, compared: 1,
}  # fmt: skip
