"""Facts about metrics that checking a recipe needs, without the arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import Budget, OpLimits
from mobileprep.recipe.tree import MappingNode, Node, Problem, Scalar, place_of, plain, show
from mobileprep.recipe.units import parse_bytes, parse_flops
from mobileprep.recipe.validation_settings import INTEGER_MODES, LITERT_MODES

_TOP_K: Final = re.compile(r"top[1-9][0-9]{0,4}")


class MetricFacts(Struct, frozen=True):
    """Properties of a metric that checking a recipe needs.

    Args:
        higher_is_better: whether larger values are better.
        is_share: whether values range from about 0 to 1, independent of the model's unit.
        of_labels: whether it compares outputs with labels, not with the outputs of the source.
        outputs: permitted numbers of outputs.
        keys: keys of the metric besides its limits.
    """

    higher_is_better: bool = True
    is_share: bool = True
    of_labels: bool = True
    outputs: tuple[int, ...] = (1,)
    keys: frozenset[str] = frozenset()


_TEXTS: Final = MetricFacts(higher_is_better=False, outputs=(1, 3), keys=frozenset({"characters"}))
_FACTS: Final[Mapping[str, MetricFacts]] = {
    "mean_absolute_error": MetricFacts(higher_is_better=False, is_share=False),
    "mean_squared_error": MetricFacts(higher_is_better=False, is_share=False),
    "r2": MetricFacts(),
    "psnr": MetricFacts(is_share=False, keys=frozenset({"peak"})),
    "cosine": MetricFacts(),
    "mean_iou": MetricFacts(keys=frozenset({"threshold", "ignore"})),
    "auc": MetricFacts(),
    "word_error_rate": _TEXTS,
    "character_error_rate": _TEXTS,
    "mean_average_precision": MetricFacts(outputs=(3, 4)),
    "agreement": MetricFacts(of_labels=False),
    "top1_agreement": MetricFacts(of_labels=False),
    "peak_agreement": MetricFacts(of_labels=False),
}
METRIC_NAMES: Final = ("auto", "top1", "top5", *_FACTS)
"""The metric names, with ``top1`` and ``top5`` for the ``topK`` metrics."""
AUTO: Final = "auto"
"""The default: ``top1`` if the data has labels, otherwise ``agreement``."""


def metric_facts(name: str) -> MetricFacts | None:
    """Return the properties of a metric; None if there is no such metric."""
    if name == AUTO or _TOP_K.fullmatch(name):
        return MetricFacts()
    return _FACTS.get(name)


# Modes of both runtimes; each other mode works in only one of them.
_COMMON: Final = frozenset({"none", "round", "float16", "weights"})
_ENDS: Final = {"int8": ("float", "int8", "uint8"), "int16x8": ("float", "int16")}
# Keys that apply to these modes only in TensorFlow.
_WEIGHTS: Final = ("bits", "granularity", "minimum_size")


def litert_problems(target: TargetSections) -> Iterator[Problem]:
    """Report LiteRT settings of targets without ``artifact: tflite``, and the reverse."""
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
    """Report an ``engine`` of a target that is not a .tflite file."""
    for name in ("check", "validation"):
        section = target.mapping(name)
        if section is not None and section.get("engine") is not None:
            message = f"'engine' of '{name}' requires 'artifact: tflite'"
            hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove 'engine'"
            yield Problem(place_of(section, ("engine",)), message, hint)


def _keys(quantize: MappingNode, mode: str) -> Iterator[Problem]:
    for key in _WEIGHTS:
        if key in quantize.entries:
            message = f"{key!r} does not apply to 'artifact: tflite'"
            yield Problem(quantize.entries[key].key_place, message, "remove it, or choose 'int4'")
    for end in ("input", "output"):
        given = quantize.get(f"inference_{end}_type")
        if given is not None and mode in _ENDS and plain(given) not in _ENDS[mode]:
            message = f"{plain(given)!r} is not an {end} type for '{mode}'"
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


_UNITS: Final[dict[str, tuple[Callable[[str], int | None], str, str]]] = {
    "flops": (parse_flops, "a number of operations", "with KFLOP, MFLOP or GFLOP: '20 MFLOP'"),
    **dict.fromkeys(
        ("model_bytes", "compressed_bytes", "activation_bytes", "kernel_bytes", "memory"),
        (parse_bytes, "a size", "with B, KB, MB, KiB or MiB: '60 KB'"),
    ),
}
"""For each key: the parser, the name of the unit, and a hint for the format."""


def resolve_budget(target: TargetSections) -> Budget:
    """Return the limits of a valid target."""
    given: dict[str, Any] = plain(target.section("budget"))
    for key, (parse, _, _) in _UNITS.items():
        if key in given:
            value = given[key]
            given[key] = parse(value) if isinstance(value, str) else int(value)
    for key in given.keys() & {"parameters", "kernels"}:
        given[key] = int(given[key])
    if "ops" in given:
        given["ops"] = OpLimits(**{key: tuple(ops) for key, ops in given["ops"].items()})
    if "latency_ms" in given:
        given["latency_ms"] = float(given["latency_ms"])
    return Budget(**given)


def budget_problems(target: TargetSections) -> Iterator[Problem]:
    """Report invalid sizes and counts, and a latency without a device."""
    budget = target.mapping("budget")
    for key, entry in budget.items() if budget is not None else ():
        if key in _UNITS and isinstance(entry.value, Scalar):
            yield from _amount(key, entry.value)
    if budget is not None and budget.get("latency_ms") is not None and not target.get("device"):
        place = budget.entries["latency_ms"].key_place
        hint = "add 'device: smartphone', or another of 'mobileprep benchmark --device'"
        yield Problem(place, "a latency needs the device whose it is", hint)


def memory_of(root: MappingNode) -> int | None:
    """Return the memory limit of runs in bytes, from a valid recipe."""
    said = root.get("memory")
    value = None if said is None else plain(said)
    return parse_bytes(value) if isinstance(value, str) else value


def memory_problems(root: MappingNode) -> Iterator[Problem]:
    """Report an invalid size."""
    said = root.get("memory")
    if isinstance(said, Scalar):
        yield from _amount("memory", said)


def _amount(key: str, node: Scalar) -> Iterator[Problem]:
    if not isinstance(node.value, str):
        return
    parse, what, how = _UNITS[key]
    amount = parse(node.value)
    if amount is None:
        yield Problem(node.place, f"{show(node.value)} is not {what}", f"write a number {how}")
    elif amount < 1:
        least = "operation" if key == "flops" else "byte"
        yield Problem(node.place, f"must be at least one {least}")
