"""Rewrite operators with many dimensions into forms that every supported runtime runs.

Kernels of older runtimes abort the process, or fail to prepare, above a number of dimensions that
differs by operator. Most of these operators can run on fewer dimensions: adjacent dimensions that
are treated alike are one dimension in memory, so a RESHAPE before and after is exact and cheap.

The limits were measured with ``tests/litert/forms.py`` on tflite-runtime 2.14.0, ai-edge-litert
1.0.1, 1.2.0, 1.4.0, and 2.3.0, and TensorFlow 2.21, with XNNPACK and without. Limits up to 5 are
those of the kernels of 2.14; limits of 6 are those of XNNPACK in later releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options, OptionValue
from mobileprep.litert.program import (
    Op,
    Program,
    Readers,
    Value,
    builtin,
    integers,
    reshape,
)

Sizes = tuple[int, ...]

_UNARY: Final = (
    *("ABS", "CEIL", "ELU", "FLOOR", "GELU", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6"),
    *("RELU_N1_TO_1", "ROUND", "RSQRT", "SQRT", "TANH"),
)
MAX_RANKS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), 4),
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD", "POW", "LOGICAL_AND", "LOGICAL_OR"), 4),
    **dict.fromkeys(("BITWISE_XOR", "RIGHT_SHIFT", "MUL", "SQUARED_DIFFERENCE", "PRELU"), 4),
    **dict.fromkeys(("SUB", "DIV", "MAXIMUM", "MINIMUM", "SELECT_V2"), 5),
    "ADD": 6,
    **dict.fromkeys(("PAD", "PADV2", "SLICE", "STRIDED_SLICE", "BATCH_MATMUL"), 5),
    **dict.fromkeys(("L2_NORMALIZATION", "SOFTMAX"), 4),
    **dict.fromkeys(("TRANSPOSE", "CONCATENATION", "SPLIT", "FULLY_CONNECTED"), 6),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", *_UNARY), 6),
}
"""The maximum rank of each operator; for binary operators, if the shapes differ."""

_REDUCTIONS: Final = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
_JOINTS: Final = ("CONCATENATION", "SPLIT")
# Operators on the last dimension only.
_ROWS: Final = ("L2_NORMALIZATION", "SOFTMAX", "FULLY_CONNECTED")
_PADS: Final = ("PAD", "PADV2")
_MOVERS: Final = (*_PADS, "SLICE", "STRIDED_SLICE")
_BINARY: Final = tuple(
    code
    for code in MAX_RANKS
    if code not in (*_UNARY, *_MOVERS, *_ROWS, *_JOINTS, *_REDUCTIONS)
    and code not in ("BATCH_MATMUL", "TRANSPOSE")
)
_MASKS: Final = ("begin_mask", "end_mask", "shrink_axis_mask")
# The runtime computes these in place, ignoring that a RESHAPE shares the memory of the input.
_IN_PLACE: Final = ("ADD", "SUB", "MUL", "DIV")
# Operators that broadcast a scalar or a row in any rank.
_FAST: Final = ("ADD", "MUL")


def exceeds_rank(op: Op) -> bool:
    """Return whether an operator has more dimensions than every supported runtime can run."""
    limit = MAX_RANKS.get(op.code)
    if limit is None or _rank(op) <= limit:
        return False
    if op.code not in _BINARY:
        return op.code != "SOFTMAX" or op.outputs[0].dtype is DType.INT16
    inputs = op.operands
    if any(value.shape is None for value in inputs):
        return False
    if len({value.shape for value in inputs}) == 1:
        return op.code in ("MAXIMUM", "MINIMUM") and _rank(op) > MAX_RANKS["ABS"]
    kind, out = inputs[0].dtype, op.outputs[0].shape
    if op.code == "PRELU" and kind is DType.FLOAT:
        return False
    if op.code in _FAST and kind in (DType.FLOAT, DType.INT8) and out is not None:
        small = [value for value in inputs if value.shape != out]
        return len(small) != 1 or _is_row(small[0].shape or (), out) is False
    return True


def _rank(op: Op) -> int:
    data = op.inputs[:1] if op.code in ("TRANSPOSE", *_MOVERS, *_REDUCTIONS) else op.inputs
    return max(value.rank or 0 for value in (*data, *op.outputs[:1]) if value is not None)


def _is_row(sizes: Sizes, out: Sizes) -> bool:
    """Return whether a shape is a scalar or a vector along the last dimension."""
    return math.prod(sizes[:-1]) == 1 and (sizes[-1:] in ((), (1,)) or sizes[-1] == out[-1])


def with_supported_ranks(program: Program) -> Program:
    """Reduce the dimensions of operators to the supported ranks, if sizes are known."""
    if not any(map(exceeds_rank, program.ops)):
        return program
    work = _Rewriter(Readers(program))
    for op in program.ops:
        if not (exceeds_rank(op) and work.rewrite(op)):
            work.ops.append(op)
    read = {port.value for port in program.outputs}
    retained: list[Op] = []
    for op in reversed(work.ops):
        if op not in work.helpers or op.outputs[0] in read:
            retained.append(op)
            read.update(op.operands)
    return program.with_ops(retained[::-1])


def with_convolutions(program: Program) -> Program:
    """Replace each dense layer whose weights have several scales by a convolution.

    FULLY_CONNECTED supports such weights since 2.17, CONV_2D in every release.
    """
    work = _Rewriter(Readers(program))
    for op in program.ops:
        if op.code != "FULLY_CONNECTED" or not work.convolved(op):
            work.ops.append(op)
    return program.with_ops(work.ops)


class _Cut(Struct, frozen=True):
    """The effect of a slice or a padding on one axis.

    Args:
        entries: the axis's entry in each constant input.
        masks: the option bits that are set for it.
        size: the resulting size, or -1 if unknown.
    """

    entries: tuple[int | tuple[int, int], ...]
    masks: tuple[str, ...]
    size: int


class _Rewriter:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self.ops: list[Op] = []
        self.helpers: set[Op] = set()
        self._forms: dict[tuple[Value, Sizes], Value] = {}

    def rewrite(self, op: Op) -> bool:
        """Add equivalent operators with fewer dimensions; return False if sizes are unknown."""
        rules: Mapping[str, Callable[[Op], bool]] = {
            **dict.fromkeys(_MOVERS, self._moved),
            "TRANSPOSE": self._transposed,
            **dict.fromkeys(_ROWS, self._rows),
            **dict.fromkeys(_JOINTS, self._joint),
            **dict.fromkeys(_REDUCTIONS, self._reduced),
            "BATCH_MATMUL": self._product,
        }
        return rules.get(op.code, self._repeated)(op)

    def _repeated(self, op: Op) -> bool:
        """Rewrite an operator that broadcasts its smaller inputs."""
        inputs, out = op.operands, op.outputs[0].shape
        if out is None:
            return False
        shapes = [(1,) * (len(out) - len(v.shape or ())) + (v.shape or ()) for v in inputs]
        groups = _groups(shapes, out)
        merged = [_merged(sizes, groups) for sizes in shapes]
        target = _merged(out, groups)
        shared = op.code in _IN_PLACE and any(
            value.data is None and not self._readers.once(value) for value in inputs
        )
        fits = len(groups) <= MAX_RANKS[op.code] and not shared
        if fits and all(map(_is_reshape, (*merged, target, out))):
            values = [self._form(v, sizes, op) for v, sizes in zip(inputs, merged, strict=True)]
            self._add(op, values, target)
            return True
        common = self._common_shape(op, inputs, out)
        self.ops.append(
            replace(op, inputs=tuple(self._broadcast(v, out, common, op) for v in inputs))
        )
        return True

    def _common_shape(self, op: Op, inputs: Sequence[Value], out: Sizes) -> Value:
        """Return the shape to broadcast inputs to, computed at run time if unknown."""
        if -1 not in out:
            return integers(f"{op.outputs[0].name}_shape", out)
        shapes: list[Value] = []
        for value in inputs:
            name = f"{op.outputs[0].name}_shape_{len(shapes)}"
            if value.shape is not None and -1 not in value.shape:
                shapes.append(integers(name, value.shape))
                continue
            shapes.append(Value(name, DType.INT32, (len(value.shape or ()),)))
            sizes_op = builtin("SHAPE", [value], shapes[-1:], out_type="INT32")
            self.ops.append(replace(sizes_op, node=op.node))
        common, *rest = shapes
        for i, shape in enumerate(rest):
            rank = max(common.shape or (0,), shape.shape or (0,))
            both = Value(f"{op.outputs[0].name}_shape_of_{i + 2}", DType.INT32, rank)
            self.ops.append(Op("BROADCAST_ARGS", (common, shape), (both,), node=op.node))
            common = both
        return common

    def _broadcast(self, value: Value, out: Sizes, common: Value, op: Op) -> Value:
        if value.shape == out and -1 not in out:
            return value
        name = f"{value.name}_for_{op.outputs[0].name}"
        done = replace(value, name=name, shape=out, data=None)
        self._add_helper(builtin("BROADCAST_TO", [value, common], [done]), op)
        return done

    def _product(self, op: Op) -> bool:
        """Rewrite a batched matrix product, with batch dimensions merged or broadcast."""
        values, out = list(op.operands), op.outputs[0].shape
        if out is None or any(value.shape is None for value in values):
            return False
        batch = out[:-2]
        shapes = [v.shape or () for v in values]
        fronts = [(1,) * (len(out) - len(sizes)) + sizes[:-2] for sizes in shapes]
        groups = _groups(fronts, batch)
        if len(groups) + 2 > MAX_RANKS[op.code]:
            if -1 in batch:
                return False
            for i, sizes in enumerate(shapes):
                whole = (*batch, *sizes[-2:])
                if sizes == whole or -1 in sizes:
                    continue
                common = integers(f"{values[i].name}_batch", whole)
                values[i] = self._broadcast(values[i], whole, common, op)
            fronts = [
                batch if -1 not in sizes else front
                for sizes, front in zip(shapes, fronts, strict=True)
            ]
            groups = _groups(fronts, batch)
        merged = [(*_merged(f, groups), *s[-2:]) for f, s in zip(fronts, shapes, strict=True)]
        target = (*_merged(batch, groups), *out[-2:])
        if len(target) > MAX_RANKS[op.code] or not all(map(_is_reshape, (*merged, target, out))):
            return False
        done = [self._form(v, sizes, op) for v, sizes in zip(values, merged, strict=True)]
        self._add(op, done, target)
        return True

    def _rows(self, op: Op) -> bool:
        """Rewrite an operator on the last dimension as one on a matrix of rows."""
        value, out = op.inputs[0], op.outputs[0].shape
        sizes = None if value is None else value.shape
        if value is None or sizes is None or out is None or len(sizes) != len(out):
            return False
        rows, columns = _size(out, range(len(out) - 1)), (sizes[-1], out[-1])
        if min(columns) < 0 or not _is_reshape(out):
            return False
        matrix = self._form(value, (rows, columns[0]), op)
        self._add(op, [matrix, *op.inputs[1:]], (rows, columns[1]))
        return True

    def convolved(self, op: Op) -> bool:
        """Replace a dense layer by a 1x1 convolution; return False if that is impossible."""
        value, weights, *bias = op.inputs
        out = op.outputs[0].shape
        if value is None or weights is None or weights.data is None or out is None:
            return False
        details, sizes = weights.quantization, value.shape
        if details is None or details.scales.size < 2 or sizes is None or not _is_reshape(out):
            return False
        rows, (count, depth) = _size(out, range(len(out) - 1)), weights.data.shape
        kernel = replace(
            weights, shape=(count, 1, 1, depth), data=weights.data.reshape(count, 1, 1, depth)
        )
        values: dict[str, OptionValue] = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
        values |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
        activation = "fused_activation_function"
        options = Options("Conv2DOptions", {**values, activation: op.option(activation, "NONE")})
        layer = replace(op, code="CONV_2D", options=options)
        pixels = self._form(value, (rows, 1, 1, depth), op)
        self._add(layer, [pixels, kernel, *bias], (rows, 1, 1, count))
        return True

    def _joint(self, op: Op) -> bool:
        """Rewrite a concatenation or split with three dimensions."""
        values, axis, joint = op.operands, op.operands[0].data, op
        if op.code == "SPLIT":
            values = values[1:]
        elif op.options is not None:
            axis, joint = np.array(op.option("axis")), op.with_options(axis=1)
        shapes = [value.shape or () for value in (*values, *op.outputs)]
        if axis is None or () in shapes or not all(map(_is_reshape, shapes)):
            return False
        rank = len(shapes[0])
        at = int(axis.reshape(())) % rank
        groups = [range(at), [at], range(at + 1, rank)]
        parts = [self._form(v, _merged(v.shape or (), groups), op) for v in values]
        if op.code == "SPLIT":
            parts.insert(0, integers(f"{op.outputs[0].name}_axis", 1))
        outputs = tuple(
            replace(v, name=f"{v.name}_merged", shape=_merged(v.shape or (), groups))
            for v in op.outputs
        )
        self.ops.append(replace(joint, inputs=tuple(parts), outputs=outputs))
        for merged, output in zip(outputs, op.outputs, strict=True):
            self._form(merged, output.shape or (), op, output)
        return True

    def _reduced(self, op: Op) -> bool:
        """Rewrite a reduction, merging adjacent dimensions that are all kept or all reduced."""
        value, axes = op.inputs[:2]
        out = op.outputs[0].shape
        if value is None or value.shape is None or axes is None or axes.data is None or out is None:
            return False
        rank = len(value.shape)
        reduced = {int(axis) % rank for axis in axes.data.reshape(-1)}
        groups: list[list[int]] = []
        for axis in range(rank):
            if groups and (axis in reduced) == (groups[-1][0] in reduced):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        merged = _merged(value.shape, groups)
        result_sizes = tuple(n for n, g in zip(merged, groups, strict=True) if g[0] not in reduced)
        if len(groups) > MAX_RANKS[op.code] or not all(map(_is_reshape, (merged, out))):
            return False
        chosen = [i for i, group in enumerate(groups) if group[0] in reduced]
        places = integers(f"{op.outputs[0].name}_axes", chosen)
        options = Options("ReducerOptions", {"keep_dims": False})
        self._add(
            replace(op, options=options), [self._form(value, merged, op), places], result_sizes
        )
        return True

    def _transposed(self, op: Op) -> bool:
        """Rewrite a transposition, merging dimensions that stay together."""
        value, order = op.inputs[:2]
        if value is None or value.shape is None or order is None or order.data is None:
            return False
        sizes, out = value.shape, op.outputs[0].shape
        places = [int(i) for i in order.data if sizes[int(i)] != 1]
        runs: list[list[int]] = []
        for place in places:
            follows = runs and not any(sizes[i] != 1 for i in range(runs[-1][-1] + 1, place))
            if follows and runs[-1][-1] < place:
                runs[-1].append(place)
            else:
                runs.append([place])
        blocks = sorted(runs)
        if not _is_reshape(sizes) or out is None:
            return False
        # Move one block at a time, which needs at most four dimensions.
        now = self._form(value, _merged(sizes, blocks), op)
        for i, run in enumerate(runs):
            at = blocks.index(run)
            if len(runs) <= MAX_RANKS[op.code]:
                turned, parts = runs, [[b] for b in blocks]
                move = [blocks.index(r) for r in runs]
            elif at == i:
                continue
            else:
                turned = [*blocks[:i], run, *blocks[i:at], *blocks[at + 1 :]]
                parts = [blocks[:i], blocks[i:at], [run], blocks[at + 1 :]]
                move = [0, 2, 1, 3]
            merged = tuple(_size(sizes, [a for b in part for a in b]) for part in parts)
            source = self._form(now, merged, op)
            done = replace(
                value,
                name=f"{op.outputs[0].name}_{i}",
                shape=tuple(merged[j] for j in move),
                data=None,
            )
            permutation = integers(f"{done.name}_permutation", move)
            self.ops.append(replace(op, inputs=(source, permutation), outputs=(done,)))
            now, blocks = done, turned
            if len(runs) <= MAX_RANKS[op.code]:
                break
        self._form(now, out, op, op.outputs[0])
        return True

    def _moved(self, op: Op) -> bool:
        """Rewrite a slice or a padding, changing as many axes at a time as the rank allows."""
        value, out = op.inputs[0], op.outputs[0].shape
        cuts = _cuts(op)
        if value is None or value.shape is None or cuts is None or out is None:
            return False
        sizes = value.shape
        steps: list[tuple[list[int], list[list[int]], Sizes]] = []
        pending = sorted(cuts)
        while pending or not steps:
            count = len(pending)
            while len(_around(pending[:count], len(sizes))) > MAX_RANKS[op.code]:
                count -= 1
            steps.append((pending[:count], _around(pending[:count], len(sizes)), sizes))
            sizes = tuple(cuts[i].size if i in pending[:count] else n for i, n in enumerate(sizes))
            pending = pending[count:]
        shapes = [_merged(before, groups) for _, groups, before in steps]
        if not all(map(_is_reshape, (*shapes, out))):
            return False
        now = value
        for number, (axes, groups, _) in enumerate(steps):
            now = self._form(now, shapes[number], op)
            chosen = [cuts.get(group[0]) if len(group) == 1 else None for group in groups]
            done = replace(
                op.outputs[0],
                name=f"{op.outputs[0].name}_part_{number}",
                shape=tuple(
                    n if cut is None or group[0] not in axes else cut.size
                    for n, cut, group in zip(shapes[number], chosen, groups, strict=True)
                ),
            )
            parts = [cut if g[0] in axes else None for cut, g in zip(chosen, groups, strict=True)]
            self.ops.append(_cut_op(op, now, parts, done))
            now = done
        self._form(now, out, op, op.outputs[0])
        return True

    def _add(self, op: Op, inputs: Sequence[Value | None], sizes: Sizes) -> None:
        """Add an operator on merged dimensions, and reshape its output to the original shape."""
        (output,) = op.outputs
        merged = replace(output, name=f"{output.name}_merged", shape=sizes)
        self.ops.append(replace(op, inputs=tuple(inputs), outputs=(merged,)))
        self._forms[output, sizes] = merged
        self._form(merged, output.shape or (), op, output)

    def _form(self, value: Value, sizes: Sizes, op: Op, output: Value | None = None) -> Value:
        """Reshape a tensor; one size may be -1."""
        if output is None and value.shape == sizes:
            return value
        cached = self._forms.get((value, sizes))
        if cached is not None and output is None:
            return cached
        name = f"{value.name}_as_{'x'.join(map(str, sizes)) or 'scalar'}".replace("-1", "n")
        if value.data is not None and output is None:
            done = replace(value, name=name, shape=sizes, data=value.data.reshape(sizes))
        else:
            done = output or replace(value, name=name, shape=sizes)
            self._add_helper(reshape(value, done), op)
        self._forms[value, sizes] = done
        return done

    def _add_helper(self, helper: Op, op: Op) -> None:
        """Add an operator that rewrites the inputs or the output of another."""
        self.ops.append(replace(helper, node=op.node))
        self.helpers.add(self.ops[-1])


def _is_reshape(sizes: Sizes) -> bool:
    """Return whether RESHAPE can produce a shape."""
    return sizes.count(-1) == 0 or (sizes.count(-1) == 1 and 0 not in sizes)


def _size(sizes: Sizes, axes: Iterable[int]) -> int:
    chosen = [sizes[i] for i in axes]
    return -1 if -1 in chosen else math.prod(chosen)


def _merged(sizes: Sizes, groups: Sequence[Sequence[int]]) -> Sizes:
    return tuple(_size(sizes, group) for group in groups)


def _groups(shapes: Sequence[Sizes], out: Sizes) -> list[list[int]]:
    """Group adjacent dimensions along which the same inputs are broadcast."""
    groups: list[list[int]] = []
    previous: object = None
    for axis, size in enumerate(out):
        if size == 1:
            if groups:
                groups[-1].append(axis)
            continue
        here = [sizes[axis] for sizes in shapes]
        # An unknown size may turn out to be 1, unless all others are 1.
        uncertain = -1 in here and len(here) - here.count(1) > 1
        pattern: object = axis if uncertain else tuple(n == 1 for n in here)
        if pattern == previous and groups:
            groups[-1].append(axis)
        else:
            groups.append([axis])
        previous = pattern
    if not groups:
        return [list(range(len(out)))]
    groups[0] = [*range(groups[0][0]), *groups[0]]
    return groups


def _around(axes: Sequence[int], rank: int) -> list[list[int]]:
    """Group dimensions: each of the given axes alone, runs of other axes merged."""
    groups: list[list[int]] = []
    alone = True
    for axis in range(rank):
        if axis in axes or alone:
            groups.append([axis])
        else:
            groups[-1].append(axis)
        alone = axis in axes
    return groups


def _cuts(op: Op) -> dict[int, _Cut] | None:
    """Return the effect of a slice or padding on each axis it changes; None if it is computed."""
    value, *others = op.inputs
    bounds = others[:1] if op.code in _PADS else others
    arrays = [bound.data for bound in bounds if bound is not None and bound.data is not None]
    if value is None or len(arrays) < len(bounds):
        return None
    cuts: dict[int, _Cut] = {}
    for axis, size in enumerate(value.shape or ()):
        entries = [array[axis].tolist() for array in arrays if axis < len(array)]
        cut = _CUTS[op.code](op, axis, size, entries) if entries else None
        if cut is not None:
            cuts[axis] = cut
    return cuts


def _padding(op: Op, axis: int, size: int, entries: list[Any]) -> _Cut | None:
    del op, axis
    ((before, after),) = entries
    grown = -1 if size < 0 else size + before + after
    return _Cut(((before, after),), (), grown) if before or after else None


def _slice(op: Op, axis: int, size: int, entries: list[Any]) -> _Cut | None:
    del op, axis
    begin, count = entries
    if begin == 0 and count in (-1, size):
        return None
    rest = -1 if size < 0 else size - begin
    return _Cut((begin, count), (), rest if count < 0 else count)


def _strided_slice(op: Op, axis: int, size: int, entries: list[Any]) -> _Cut | None:
    begin, end, stride = entries
    masks = tuple(name for name in _MASKS if int(str(op.option(name))) >> axis & 1)
    if "shrink_axis_mask" in masks:
        return _Cut((begin, begin + 1, 1), ("end_mask",) if begin == -1 else (), 1)
    start = None if "begin_mask" in masks else begin
    stop = None if "end_mask" in masks else end
    if stride == 1 and start in (None, 0) and (stop is None or 0 <= size <= stop):
        return None
    rest = -1 if size < 0 else len(range(*slice(start, stop, stride).indices(size)))
    return _Cut((begin, end, stride), masks, rest)


_CUTS: Final[Mapping[str, Callable[[Op, int, int, list[Any]], _Cut | None]]] = {
    **dict.fromkeys(_PADS, _padding),
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
}


def _cut_op(op: Op, value: Value, cuts: Sequence[_Cut | None], output: Value) -> Op:
    """Create a slice or a padding of merged dimensions; None keeps a dimension unchanged."""
    whole: dict[str, tuple[int | tuple[int, int], ...]] = {
        "SLICE": (0, -1),
        "STRIDED_SLICE": (0, 0, 1),
    }
    nothing = whole.get(op.code, ((0, 0),))
    columns = zip(*(nothing if cut is None else cut.entries for cut in cuts), strict=True)
    constants = [
        integers(f"{output.name}_bounds_{number}", column) for number, column in enumerate(columns)
    ]
    rest = op.inputs[1 + len(constants) :]
    options = op.options
    if op.code == "STRIDED_SLICE":
        values = {
            name: sum(1 << i for i, c in enumerate(cuts) if c is None or name in c.masks)
            for name in ("begin_mask", "end_mask")
        }
        options = Options("StridedSliceOptions", values)
    return replace(op, inputs=(value, *constants, *rest), outputs=(output,), options=options)
