"""Combining a convolution with what follows it: scale, bias, a sum with a branch, activation.

The scale goes into the filters, the rest is done tile by tile while the tile is in the cache. Zeros
that were put around the input by a node of their own are put around each tile's part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS
from mobileprep.ir.refs import Edge
from mobileprep.ir.tensor import Array
from mobileprep.numerics.windows import NHWC, layout_of
from mobileprep.runtime.actions import Action, Constants, Uses
from mobileprep.runtime.convolution_epilogue import FusedConvolution
from mobileprep.runtime.separable import pair_separable

_CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative"})
_ACTIVATIONS = frozenset({"Relu", "Relu6"})


@dataclass(frozen=True, slots=True)
class _Chain:
    """A convolution and the actions after it, as far as they were understood.

    Args:
        members: the actions, the convolution first.
        channels: of its output.
        scale, shift: what each output channel is multiplied with, and then raised by.
        residual: a tensor that is added after that.
        activation: "Relu", "Relu6" or nothing, applied last.
    """

    members: tuple[Action, ...]
    channels: int
    scale: Array
    shift: Array
    residual: Edge | None = None
    activation: str = ""

    @property
    def end(self) -> Edge:
        return self.members[-1].outputs[0][1]


def fuse(actions: Sequence[Action], constants: Constants, wanted: Collection[Edge]) -> list[Action]:
    """The actions, with chains that begin at a convolution made one action each.

    A depthwise convolution and one of single elements that reads it are one action too.
    A combined action stands where the last of its members stood, when all its inputs are there.
    """
    uses = Uses(actions, wanted)
    makers = {made: action for action in actions for _, made in action.outputs}
    replaced: dict[str, Action | None] = {}
    for action in actions:
        chain = _chain(action, constants, uses, replaced)
        if chain is None:
            continue
        pad = _padding(makers.get(action.inputs[0]), action, constants, uses)
        around = () if pad is None else (pad,)
        replaced.update((member.node.name, None) for member in (*around, *chain.members))
        replaced[chain.members[-1].node.name] = _combined(chain, constants, around)
    left = (replaced.get(a.node.name, a) for a in actions)
    return pair_separable([a for a in left if a is not None], wanted)


def _chain(
    action: Action, constants: Constants, uses: Uses, taken: Collection[str]
) -> _Chain | None:
    """The longest chain that begins at an action, or None where it cannot be one.

    Args:
        action: the action.
        constants: the constants.
        uses: who reads what.
        taken: nodes of other chains: a sum of two convolutions ends one of them only.
    """
    node = action.node
    if (
        node.op not in _CONVOLUTIONS
        or not action.pure
        or len(action.inputs) != 2
        or len(action.outputs) != 1
    ):
        return None
    filters = constants.get(action.inputs[1])
    if filters is None or filters.dtype != np.float32 or filters.ndim != 4:
        return None
    if node.attr_str("data_format", NHWC) != NHWC or layout_of(node) != NHWC:
        return None
    depthwise = node.op == "DepthwiseConv2dNative"
    channels = filters.shape[2] * filters.shape[3] if depthwise else filters.shape[3]
    chain = _Chain((action,), channels, np.ones(channels), np.zeros(channels))
    while not chain.activation:
        reader = uses.only_reader(chain.end)
        if reader is None or reader.node.name in taken:
            break
        longer = _extended(chain, reader, constants)
        if longer is None:
            break
        chain = longer
    return chain


def _extended(chain: _Chain, reader: Action, constants: Constants) -> _Chain | None:
    """The chain with its reader, or None where the reader is something else."""
    others = [e for e in reader.inputs if e != chain.end]
    if not reader.pure or len(others) != len(reader.inputs) - 1 or len(reader.outputs) != 1:
        return None
    grown = replace(chain, members=(*chain.members, reader))
    op = reader.node.op
    if op in _ACTIVATIONS:
        return replace(grown, activation=op)
    if chain.residual is not None:
        return None
    if op in FUSED_BATCH_NORMS:
        return _with_batch_norm(grown, reader, constants)
    if len(others) != 1:
        return None
    value = _per_channel(constants.get(others[0]), chain.channels)
    if value is None:
        free = op in ("Add", "AddV2") and others[0] not in constants
        return replace(grown, residual=others[0]) if free else None
    return _with_constant(grown, reader, value)


def _with_constant(chain: _Chain, reader: Action, value: Array) -> _Chain | None:
    op = reader.node.op
    if op in ("Add", "AddV2", "BiasAdd"):
        channels_last = op != "BiasAdd" or reader.node.attr_str("data_format", NHWC) == NHWC
        return replace(chain, shift=chain.shift + value) if channels_last else None
    if op == "Sub" and reader.inputs[0] == chain.members[-2].outputs[0][1]:
        return replace(chain, shift=chain.shift - value)
    if op == "Mul":
        return replace(chain, scale=chain.scale * value, shift=chain.shift * value)
    return None


def _with_batch_norm(chain: _Chain, reader: Action, constants: Constants) -> _Chain | None:
    node = reader.node
    if (
        node.attr_bool("is_training", True)
        or node.attr_str("data_format", NHWC) != NHWC
        or reader.outputs[0][0] != 0
        or reader.inputs[0] != chain.members[-2].outputs[0][1]
    ):
        return None
    found = [_per_channel(constants.get(e), chain.channels) for e in reader.inputs[1:]]
    if len(found) != 4 or any(x is None or x.size != chain.channels for x in found):
        return None
    gamma, beta, mean, variance = (x for x in found if x is not None)
    scale = gamma / np.sqrt(variance + np.float64(np.float32(node.attr_float("epsilon", 1e-4))))
    if not np.isfinite(scale).all():
        return None
    return replace(chain, scale=chain.scale * scale, shift=(chain.shift - mean) * scale + beta)


def _per_channel(value: Array | None, channels: int) -> Array | None:
    """A constant as one number for each channel in double precision, or None where it is not."""
    if value is None or value.dtype != np.float32 or value.ndim > 4:
        return None
    if value.size not in (1, channels) or (value.size > 1 and value.shape[-1] != channels):
        return None
    if not np.isfinite(value).all():
        return None
    return np.broadcast_to(value.reshape(-1), (channels,)).astype(np.float64)


def _padding(maker: Action | None, conv: Action, constants: Constants, uses: Uses) -> Action | None:
    """What made a convolution's input, where it is a Pad of height and width for it alone."""
    if maker is None or maker.node.op != "Pad" or not maker.pure:
        return None
    if uses.only_reader(conv.inputs[0]) is not conv:
        return None
    widths = constants.get(maker.inputs[1])
    if widths is None or widths.shape != (4, 2) or widths.min() < 0 or widths[[0, 3]].any():
        return None
    return maker


def _combined(chain: _Chain, constants: Constants, around: tuple[Action, ...]) -> Action:
    """One action for a chain, and for the padding before it."""
    conv = chain.members[0]
    covers: tuple[Node, ...] = tuple(n for m in (*around, *chain.members) for n in m.covers)
    widths = [constants[pad.inputs[1]].tolist() for pad in around]
    run = FusedConvolution.prepared(
        conv.node,
        constants[conv.inputs[1]],
        chain.scale,
        chain.shift,
        chain.activation,
        tuple((before, after) for found in widths for before, after in found[1:3]),
    )
    source = around[0].inputs[0] if around else conv.inputs[0]
    inputs = (source,) if chain.residual is None else (source, chain.residual)
    return Action(conv.node, run, inputs, ((0, chain.end),), covers)
