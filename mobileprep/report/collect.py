"""Turns the records that stages left into one report for each target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class StepLine:
    """What one transform did, and the graph after it: counts, parameters, bytes."""

    name: str
    nodes: int
    parameters: int
    bytes: int
    matched: int
    added: int
    removed: int
    changed: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    largest_difference: float | None = None
    """Of any output element on the samples, against the source; None where not checked."""
    share_of_peak: float | None = None
    """The difference of the output that is furthest off, as a share of the largest magnitude that
    the source gives for it; None where not checked."""


@dataclass(frozen=True)
class Checked:
    """What each transform's graph was compared with the source on.

    Args:
        origin: ``check`` or ``validation``, the section that names the data, or ``drawn``.
        data: the file, or None for samples that were drawn.
        samples: how many.
        inputs: what was fed, in words, by input.
        step: the transform after which the outputs are furthest from the source's.
        output: the output that is.
        share_of_peak: how far, as a share of the largest magnitude that the source gives for it.
        max_difference: what is allowed, or None.
        warnings: what makes the comparison worth less than it seems.
    """

    origin: str
    data: str | None
    samples: int
    inputs: Mapping[str, str]
    step: str
    output: str
    share_of_peak: float
    max_difference: float | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Accuracy:
    """Shares of the samples whose best score is their label's, and the largest difference of
    any output element, between the source graph and the artifact."""

    samples: int
    top1_before: float
    top1_after: float
    drop: float
    max_drop: float
    largest_difference: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineLine:
    """What ran a graph, and whether it agrees with the interpreter.

    Args:
        graph: ``source``, ``model``, or ``after`` a transform.
        name: the engine's.
        version: its version; empty for the interpreter.
        samples: how many both ran; 0 where they were not compared.
        within: what the difference stays below, as a share of the largest value of its tensor;
            None where they were not compared.
        tolerance: what it may be.
        unlike: why they were not compared, where another engine than the interpreter ran.
    """

    graph: str
    name: str
    version: str
    samples: int
    within: float | None
    tolerance: float
    unlike: str


@dataclass(frozen=True)
class Report:
    """All that is told of one target.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        source: the frozen source: nodes, parameters, bytes, and notes of the freezing.
        steps: the transforms in order.
        model: the model file: name, bytes, compressed bytes, nodes, parameters.
        ops: how many nodes of each op are left.
        files: the bytes of each file of the folder, by name.
        check: how far the transforms' graphs are from the source, where the recipe checks.
        accuracy: before and after, where the recipe validates.
        engines: what ran each graph; nothing where none was run.
        warnings: what the user should know of the model that ships.
    """

    recipe: str
    target: str
    source: Json
    steps: tuple[StepLine, ...]
    model: Json
    ops: Mapping[str, int]
    files: Mapping[str, int]
    check: Checked | None
    accuracy: Accuracy | None
    engines: tuple[EngineLine, ...]
    warnings: tuple[str, ...] = ()


def collect_report(
    recipe: str,
    target: str,
    steps: Sequence[Json],
    checks: Sequence[Json],
    facts: Mapping[str, Json],
    files: Mapping[str, int],
) -> Report:
    """The report of a target.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        steps: the record of each transform.
        checks: what running each transform's graph on sample inputs told, or nothing.
        facts: the records of the stages ``freeze``, ``package``, ``samples`` and ``validation``.
        files: the bytes of each published file, by name.
    """
    package = facts["package"]
    validation = facts.get("validation")
    return Report(
        recipe,
        target,
        facts["freeze"],
        tuple(_step(s, c) for s, c in zip_longest(steps, checks)),
        package["model"],
        package["ops"],
        dict(sorted(files.items())),
        _checked(facts["samples"], checks) if "samples" in facts else None,
        None if validation is None else _accuracy(validation),
        tuple(_engines(checks, validation)),
        tuple(package["warnings"]),
    )


def _checked(samples: Json, checks: Sequence[Json]) -> Checked:
    # Of equal differences the first step's: it is where they come from.
    furthest = max(checks, key=lambda check: check["share_of_peak"])
    return Checked(
        samples["from"],
        samples["data"],
        samples["samples"],
        samples["inputs"],
        furthest["step"],
        furthest["output"],
        furthest["share_of_peak"],
        furthest["max_difference"],
        tuple(samples["warnings"]),
    )


def _accuracy(record: Json) -> Accuracy:
    told = {key: value for key, value in record.items() if key != "engines"}
    return Accuracy(**{**told, "warnings": tuple(record["warnings"])})


def _engines(checks: Sequence[Json], validation: Json | None) -> Iterator[EngineLine]:
    for check in checks:
        yield EngineLine(f"after {check['step']}", **check["engine"])
    if validation is not None:
        for graph in ("source", "model"):
            yield EngineLine(graph, **validation["engines"][graph])


def _step(record: Json, check: Json | None) -> StepLine:
    return StepLine(
        record["name"],
        record["nodes"],
        record["parameters"],
        record["bytes"],
        record["matched"],
        record["added"],
        record["removed"],
        record["changed"],
        record["skipped"],
        tuple(record["warnings"]),
        None if check is None else check["largest_difference"],
        None if check is None else check["share_of_peak"],
    )
