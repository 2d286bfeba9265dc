"""Sizes and counts that a recipe allows: the ``budget`` of a target, the ``memory`` of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from mobileprep.recipe.problems import Problem
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import Budget, OpLimits
from mobileprep.recipe.tree import MappingNode, Scalar, plain, show
from mobileprep.recipe.units import parse_bytes, parse_flops

_UNITS: Final[dict[str, tuple[Callable[[str], int | None], str, str]]] = {
    "flops": (parse_flops, "a number of operations", "with KFLOP, MFLOP or GFLOP: '20 MFLOP'"),
    **dict.fromkeys(
        ("model_bytes", "compressed_bytes", "activation_bytes", "kernel_bytes", "memory"),
        (parse_bytes, "a size", "with B, KB, MB, KiB or MiB: '60 KB'"),
    ),
}
"""By limit: what reads a text, what it is, and how it is written."""


def resolve_budget(target: TargetSections) -> Budget:
    """The limits of a target without problems."""
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
    """Texts that are no sizes or counts, and a latency without a device."""
    budget = target.mapping("budget")
    for key, entry in budget.items() if budget is not None else ():
        if key in _UNITS and isinstance(entry.value, Scalar):
            yield from _amount(key, entry.value)
    if budget is not None and budget.get("latency_ms") is not None and not target.get("device"):
        place = budget.entries["latency_ms"].key_place
        hint = "add 'device: smartphone', or another of 'mobileprep benchmark --device'"
        yield Problem(place, "a latency needs the device whose it is", hint)


def memory_of(root: MappingNode) -> int | None:
    """What runs may take, in bytes, as a recipe without problems says."""
    said = root.get("memory")
    value = None if said is None else plain(said)
    return parse_bytes(value) if isinstance(value, str) else value


def memory_problems(root: MappingNode) -> Iterator[Problem]:
    """A text that is no size."""
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
