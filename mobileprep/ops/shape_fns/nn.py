"""Shapes of the layers of neural networks other than convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    at_least_rank,
    broadcast,
    dim,
    merge,
    merge_dim,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("Softmax", "LogSoftmax")
def softmax(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [at_least_rank(args.shapes[0], 1)]


@shape_fn("LRN")
def lrn(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, an image's."""
    return [with_rank(args.shapes[0], 4)]


@shape_fn("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx")
def fused_batch_norm(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and vectors as long as there are channels."""
    rank = 5 if len(args.node.attr_str("data_format", "NHWC")) == 5 else 4
    shape = list(with_rank(args.shapes[0], rank))
    channel = 1 if args.node.attr_str("data_format", "NHWC").startswith("NC") else rank - 1
    used = 3 if args.node.attr_bool("is_training", True) else 5
    vectors = [with_rank(s, 1)[0] for s in args.shapes[1:used]]
    shape[channel] = reduce(merge_dim, vectors, shape[channel])
    outputs: list[TensorShape] = [tuple(shape), *[(shape[channel],)] * 4]
    # What the last output reserves is the kernel's affair.
    return [*outputs, None][: args.count()]


@shape_fn("BatchNormWithGlobalNormalization", "QuantizedBatchNormWithGlobalNormalization")
def batch_norm(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its channels merged with those of the statistics."""
    quantized = args.node.op.startswith("Quantized")
    shape = with_rank(args.shapes[0], 4)
    vectors = args.shapes[3:13:3] if quantized else args.shapes[1:5]
    channels = reduce(merge_dim, (with_rank(s, 1)[0] for s in vectors), shape[3])
    ranges: list[TensorShape] = [(), ()] if quantized else []
    return [(*shape[:3], channels), *ranges]


@shape_fn("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(args: ShapeArgs) -> Sequence[TensorShape]:
    """A loss for each row, and the gradient."""
    shape = with_rank(broadcast(args.shapes[0], args.shapes[1]), 2)
    if None in args.shapes:
        shape = with_rank(merge(args.shapes[0], args.shapes[1]), 2)
    return [shape[:1], shape]


@shape_fn("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(args: ShapeArgs) -> Sequence[TensorShape]:
    """A loss for each row, and the gradient."""
    rows, classes = with_rank(args.shapes[0], 2)
    rows = merge_dim(rows, with_rank(args.shapes[1], 1)[0])
    return [(rows,), (rows, classes)]


@shape_fn("FakeQuantWithMinMaxVars")
def fake_quant(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


@shape_fn("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_per_channel(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its last size merged with the length of the ranges."""
    shape = at_least_rank(args.shapes[0], 1)
    if shape is None:
        return [None]
    last = reduce(merge_dim, (with_rank(s, 1)[0] for s in args.shapes[1:3]), shape[-1])
    return [(*shape[:-1], last)]


@shape_fn("LSTMBlockCell")
def lstm_block_cell(args: ShapeArgs) -> Sequence[TensorShape]:
    """The state's shape for each of the seven outputs."""
    batch = with_rank(args.shapes[0], 2)[0]
    cells = with_rank(args.shapes[1], 2)[1]
    return [(batch, cells)] * 7


@shape_fn("BlockLSTM", "BlockLSTMV2")
def block_lstm(args: ShapeArgs) -> Sequence[TensorShape]:
    """Time by batch by cells for each of the seven outputs; four gates share the bias."""
    time, batch = with_rank(args.shapes[1], 3)[:2]
    gates = dim(args.shapes[-1], 0)
    return [(time, batch, UNKNOWN if gates < 0 else gates // 4)] * 7


@shape_fn("GRUBlockCell")
def gru_block_cell(args: ShapeArgs) -> Sequence[TensorShape]:
    """The state's shape for each of the four outputs."""
    batch = with_rank(args.shapes[0], 2)[0]
    cells = with_rank(args.shapes[1], 2)[1]
    return [(batch, cells)] * 4


@shape_fn("CTCGreedyDecoder")
def ctc_greedy_decoder(args: ShapeArgs) -> Sequence[TensorShape]:
    """A sparse tensor of labels, and a score for each of the batch."""
    batch = merge_dim(with_rank(args.shapes[0], 3)[1], with_rank(args.shapes[1], 1)[0])
    return [(UNKNOWN, 2), (UNKNOWN,), (2,), (batch, 1)]
