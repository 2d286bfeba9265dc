"""The check that quantized targets get without asking: it warns, and never fails a build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.tree import plain

QUANTIZERS: Final = frozenset(
    {"quantize_weights", "linear_quantize_weights", "round_weights", "cast_weights"}
    | {"quantize_nodes"}
)
"""The transforms that store or compute numbers in fewer bits."""
_CHANNEL: Final = "`quantize: {mode: weights, granularity: channel}`"
_EQUALIZE: Final = "`then: [equalize_ranges]`"
_REPAIR: Final = "`repair: [equalize_ranges]` in `quantize`"
_FLOAT16: Final = "`quantize: float16`"
_EIGHT_BITS: Final = "`bits: 8`"


def needs_default_check(target: Target) -> bool:
    """Whether a target quantizes, and nothing in its recipe compares the result with the source.

    ``check: false`` turns the default check off.
    """
    if target.check is not None or target.validation is not None:
        return False
    said = None if target.tree is None else target.tree.get("check")
    is_off = said is not None and plain(said) is False
    return not is_off and (quantizes_file(target) or bool(quantizing_steps(target)))


def quantizes_file(target: Target) -> bool:
    """Whether the artifact itself is quantized, and not the graph that it is made of."""
    return target.artifact == "tflite" and target.quantize.mode != "none"


def quantizing_steps(target: Target) -> list[int]:
    """The numbers of the steps that quantize, from 1."""
    chain = enumerate(target.transforms, start=1)
    return [number for number, step in chain if step.name in QUANTIZERS]


def alternatives_to_step(target: Target, step: Step) -> Iterator[str]:
    """What changes outputs less than a transform does, in order of cost."""
    has_scales = any(s.name == "equalize_ranges" for s in target.transforms)
    if step.name == "quantize_nodes":
        yield from () if has_scales else (_REPAIR,)
        yield _CHANNEL
    elif step.name == "linear_quantize_weights" and step.options.get("bits", 8) != 8:
        yield _EIGHT_BITS
    if step.name in ("quantize_weights", "linear_quantize_weights"):
        by_channel = step.options.get("granularity", "channel") == "channel"
        if step.name == "quantize_weights" or not by_channel:
            yield _CHANNEL
        yield from () if has_scales else (_EQUALIZE,)
    if step.name != "cast_weights":
        yield _FLOAT16


def alternatives_to_file(target: Target) -> Iterator[str]:
    """What changes outputs less than the mode of a .tflite file does, in order of cost."""
    mode = target.quantize.mode
    if mode in ("int8", "int16x8") and all(s.name != "equalize_ranges" for s in target.transforms):
        yield _REPAIR
    if mode == "int8":
        yield "`quantize: {mode: int16x8}`"
    if mode in ("int4", "int8"):
        yield "`quantize: weights`"
    if mode != "float16":
        yield _FLOAT16
