"""Masks before a softmax, whose numbers leave no steps for those that they do not hide.

A mask sets what is not to count to a number such as -1e9. Integers that reach so far have steps of
millions, and all that the softmax is to tell apart falls into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.litert.program import Op, Readers, Value
from mobileprep.litert.quantizing.kernels import KERNELS
from mobileprep.litert.quantizing.scales import Scales, activations
from mobileprep.litert.quantizing.steps import Range, steps_of

_SOFTMAXES: Final = frozenset({"SOFTMAX", "LOG_SOFTMAX"})
# exp(-8) is less than half a step of a softmax in int8: of two numbers one step apart one is gone.
_MOST_STEP: Final = 8.0


def hidden_by_masks(
    ops: Sequence[Op], readers: Readers, scales: Scales, kind: DType, ranges: Mapping[str, Range]
) -> dict[Op, str]:
    """The softmaxes that would see nothing but their masks in integers, and why.

    With them go the operators that put the mask in.

    Args:
        ops: the operators that are to compute in integers.
        readers: of the program.
        scales: the steps of what the operators take and give.
        kind: int8 or int16.
        ranges: of tensors, by name.
    """
    found: dict[Op, str] = {}
    kept = frozenset(ops)
    for op in ops:
        if op.code not in _SOFTMAXES:
            continue
        masked, steps = op.inputs[0], scales.steps(scales.slot(op, 0))
        if masked is None or steps is None or steps.scale <= _MOST_STEP:
            continue
        step = f"one step of {masked.name!r} would be {steps.scale:.3g}"
        reason = f"{step}, more than a softmax tells apart"
        found[op] = reason
        for maker in _masking(masked, readers, kind, ranges):
            if maker in kept:
                found[maker] = reason
    return found


def _masking(
    masked: Value, readers: Readers, kind: DType, ranges: Mapping[str, Range]
) -> Iterator[Op]:
    """The operators that a mask's numbers come from, and those that hand them on."""
    waiting, seen = [masked], {masked}
    while waiting:
        value = waiting.pop()
        maker = readers.maker(value)
        span = ranges.get(value.name, ranges.get(value.alike))
        if maker is None or span is None or steps_of(span, kind).scale <= _MOST_STEP:
            continue
        yield maker
        if maker.code not in KERNELS or KERNELS[maker.code].rule != "same":
            continue
        taken = {v for v in (maker.inputs[i] for i in activations(maker)) if v is not None} - seen
        seen |= taken
        waiting += taken
