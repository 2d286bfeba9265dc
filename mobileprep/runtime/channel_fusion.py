"""Combining arithmetic by channel that follows no convolution, and the activation after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS
from mobileprep.ir.refs import Edge
from mobileprep.ir.tensor import Array
from mobileprep.numerics.channel_lines import channel_line
from mobileprep.numerics.windows import NHWC
from mobileprep.ops.nn.normalization import batch_norm_factor
from mobileprep.runtime.actions import Action, Constants, Uses
from mobileprep.runtime.channel_chain import BOUNDS, ChannelChain, Operation

_FUNCTIONS = {
    "Add": np.add,
    "AddV2": np.add,
    "BiasAdd": np.add,
    "Mul": np.multiply,
    "Sub": np.subtract,
}
_COMMUTATIVE = frozenset({"Add", "AddV2", "Mul"})


@dataclass(slots=True)
class _Chain:
    """Actions one after another, as far as they were understood.

    Args:
        start: the tensor that goes through them.
        members: the actions.
        operations: what they come to.
        sizes: how many numbers the operands have that are not one for all channels.
        activation: "Relu", "Relu6" or nothing, applied last.
    """

    start: Edge
    members: list[Action] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)
    activation: str = ""

    @property
    def end(self) -> Edge:
        return self.members[-1].outputs[0][1] if self.members else self.start


def combine_by_channel(
    actions: Sequence[Action], constants: Constants, wanted: Collection[Edge]
) -> list[Action]:
    """The actions, with chains of arithmetic by channel made one action each."""
    uses = Uses(actions, wanted)
    replaced: dict[str, Action | None] = {}
    passed: set[str] = set()
    for action in actions:
        if action.node.name in replaced or action.node.name in passed:
            continue
        chain = _chain(action, constants, uses)
        if not chain.sizes:
            # Nothing by channel in all of it: nor is there in what is left from a later member on.
            passed.update(member.node.name for member in chain.members)
        elif len(chain.operations) + bool(chain.activation) > 1:
            replaced.update((member.node.name, None) for member in chain.members)
            replaced[chain.members[-1].node.name] = _combined(chain, constants)
    left = (replaced.get(a.node.name, a) for a in actions)
    return [a for a in left if a is not None]


def _chain(action: Action, constants: Constants, uses: Uses) -> _Chain:
    """The longest chain that begins at an action; without members where none does."""
    start = next((e for e in action.inputs if e not in constants), None)
    if start is None:
        return _Chain(("", 0))
    chain = _Chain(start)
    reader: Action | None = action
    while reader is not None and not chain.activation and _extend(chain, reader, constants):
        reader = uses.only_reader(chain.end)
    return chain


def _extend(chain: _Chain, reader: Action, constants: Constants) -> bool:
    """Put a chain's reader at its end; whether that can be."""
    if not reader.pure or len(reader.outputs) != 1:
        return False
    if BOUNDS.get(reader.node.op) is not None:
        if not chain.members:
            return False
        chain.activation = reader.node.op
        chain.members.append(reader)
        return True
    norm = reader.node.op in FUSED_BATCH_NORMS
    found = _batch_norm(reader, constants) if norm else _arithmetic(reader, chain.end, constants)
    if not found or (norm and reader.inputs[0] != chain.end):
        return False
    sizes = chain.sizes | ({operand.size for _, operand in found} - {1})
    if len(sizes) > 1:
        return False
    chain.members.append(reader)
    chain.operations += found
    chain.sizes = sizes
    return True


def _arithmetic(action: Action, x: Edge, constants: Constants) -> tuple[Operation, ...]:
    """The operation of an action on x, or nothing where it is none."""
    node = action.node
    if node.op not in _FUNCTIONS or len(action.inputs) != 2:
        return ()
    if node.op == "BiasAdd" and node.attr_str("data_format", NHWC) != NHWC:
        return ()
    first, second = action.inputs
    if first != x and node.op not in _COMMUTATIVE:
        return ()
    operand = _by_channel(constants.get(second if first == x else first))
    return () if operand is None else ((_FUNCTIONS[node.op], operand),)


def _batch_norm(action: Action, constants: Constants) -> tuple[Operation, ...]:
    """The operations of a batch norm, or nothing where its statistics are no constants."""
    node = action.node
    if node.attr_bool("is_training", True) or node.attr_str("data_format", NHWC) != NHWC:
        return ()
    found = [_by_channel(constants.get(e)) for e in action.inputs[1:]]
    known = [x for x in found if x is not None and x.ndim == 1]
    if len(known) != 4 or len({x.size for x in known}) > 1 or action.outputs[0][0] != 0:
        return ()
    scale, offset, mean, variance = known
    factor = batch_norm_factor(node, scale, variance)
    return (np.subtract, mean), (np.multiply, factor), (np.add, offset)


def _by_channel(operand: Array | None) -> Array | None:
    """A constant that has one float32 number for all channels or for each, or None."""
    if operand is None or operand.dtype != np.float32 or operand.size == 0:
        return None
    return operand if operand.size == 1 or operand.shape[-1:] == (operand.size,) else None


def _combined(chain: _Chain, constants: Constants) -> Action:
    (channels,) = chain.sizes
    operations = tuple(
        (function, channel_line(np.broadcast_to(operand.reshape(-1), (channels,))))
        for function, operand in chain.operations
    )
    ends = [chain.start, *(m.outputs[0][1] for m in chain.members)]
    apart = tuple(
        (m.run, tuple(None if e == end else constants[e] for e in m.inputs))
        for m, end in zip(chain.members, ends, strict=False)
    )
    # A bias needs a second axis, and no tensor that has one gets another from a vector.
    rank = max(2, *(operand.ndim for _, operand in chain.operations))
    run = ChannelChain(operations, channels, rank, chain.activation, apart)
    covers = tuple(n for m in chain.members for n in m.covers)
    return Action(chain.members[0].node, run, (chain.start,), ((0, chain.end),), covers)
