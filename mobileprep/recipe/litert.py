"""Checks of what a recipe says of models for LiteRT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.recipe.problems import Problem
from mobileprep.recipe.quantize_settings import INTEGER_MODES, LITERT_MODES
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.tree import MappingNode, Node, place_of, plain

# Modes of either runtime; what the others leave, one of the two cannot run.
_COMMON: Final = frozenset({"none", "round", "float16", "weights"})
_ENDS: Final = {"int8": ("float", "int8", "uint8"), "int16x8": ("float", "int16")}
# What goes with these modes for TensorFlow alone.
_WEIGHTS: Final = ("bits", "granularity", "minimum_size")


def litert_problems(target: TargetSections) -> Iterator[Problem]:
    """Settings of LiteRT for a target of another artifact, and the reverse."""
    given, artifact = target.get("quantize"), target.get("artifact")
    is_lite = artifact is not None and plain(artifact) == "tflite"
    if not is_lite:
        yield from _engines(target)
        if target.mapping("litert") is not None:
            message = "'litert' requires 'artifact: tflite'"
            hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove 'litert'"
            yield Problem(place_of(target.tree, ("litert",)), message, hint)
    mode = given.get("mode") if isinstance(given, MappingNode) else given
    if mode is None:
        return
    name = plain(mode)
    if not is_lite and name in LITERT_MODES and name not in _COMMON:
        message = f"'{name}' is a mode for LiteRT"
        yield Problem(mode.place, message, "add 'artifact: tflite' to the target")
    if is_lite and name not in _COMMON and name not in LITERT_MODES:
        message = f"LiteRT cannot run what '{name}' makes"
        yield Problem(mode.place, message, f"choose of {', '.join(LITERT_MODES)}")
    if isinstance(given, MappingNode) and is_lite:
        yield from _keys(given, str(name))
    if is_lite and name in INTEGER_MODES and not _is_trained(given):
        yield from _calibration(target, mode)


def _engines(target: TargetSections) -> Iterator[Problem]:
    """The choice between a .tflite file and its graph, for a target without such a file."""
    for name in ("check", "validation"):
        section = target.mapping(name)
        if section is not None and section.get("engine") is not None:
            message = f"'engine' of '{name}' requires 'artifact: tflite'"
            hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove 'engine'"
            yield Problem(place_of(section, ("engine",)), message, hint)


def _keys(quantize: MappingNode, mode: str) -> Iterator[Problem]:
    for key in _WEIGHTS:
        if key in quantize.entries:
            message = f"{key!r} does not go with 'artifact: tflite'"
            yield Problem(quantize.entries[key].key_place, message, "remove it, or choose 'int4'")
    for end in ("input", "output"):
        given = quantize.get(f"inference_{end}_type")
        if given is not None and mode in _ENDS and plain(given) not in _ENDS[mode]:
            message = f"with '{mode}' an {end} is no {plain(given)}"
            yield Problem(given.place, message, f"choose of {', '.join(_ENDS[mode])}")
    ranges = quantize.get("ranges")
    if ranges is not None and mode in INTEGER_MODES and plain(ranges) == "dynamic":
        message = f"'{mode}' needs ranges that are known before the model runs"
        yield Problem(ranges.place, message, "write 'observed' or 'trained'")


def _is_trained(quantize: Node | None) -> bool:
    ranges = quantize.get("ranges") if isinstance(quantize, MappingNode) else None
    return ranges is not None and plain(ranges) == "trained"


def _calibration(target: TargetSections, mode: Node) -> Iterator[Problem]:
    if target.mapping("calibration") is None:
        message = f"'{plain(mode)}' needs a calibration, for the ranges"
        yield Problem(mode.place, message, "add 'calibration: {data: samples.npz}' to the recipe")
