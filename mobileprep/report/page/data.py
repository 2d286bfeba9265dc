"""What a page tells, as JSON-able data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from mobileprep.frozen import dataclass
from mobileprep.report.collect import Report
from mobileprep.report.json import report_data

FORMAT: Final = 1
"""Raised when pages tell something in another way, so that none reads another's data wrongly."""


@dataclass(frozen=True)
class StageTime:
    """A stage of the build that left a page.

    Args:
        task: its name.
        kind: what it does.
        seconds: how long it took: in this build, or where its results come from the store, then.
        ran: whether it ran in this build.
    """

    task: str
    kind: str
    seconds: float
    ran: bool


def nodes_data(
    source: Mapping[str, Any],
    shipped: Mapping[str, Any],
    steps: Sequence[str],
    graphs: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """What a page tells of a target's graphs.

    Args:
        source: what the stage ``nodes`` left of the frozen source.
        shipped: what it left of the graph after all transforms.
        steps: the names of the transforms.
        graphs: what those left that made the source, and the graph after each transform.
    """
    told = [*graphs]
    return {
        "graphs": [source["graph"], shipped["graph"]],
        "steps": [
            {"name": name, **graph["step"]} for name, graph in zip(steps, told[1:], strict=True)
        ],
        "compressed": [graph["compressed"] for graph in told],
        "ranges": shipped["ranges"],
    }


def page_data(
    recipe: str,
    tool: str,
    targets: Sequence[tuple[Report, Mapping[str, Any]]],
    stages: Sequence[StageTime],
) -> dict[str, Any]:
    """What a page tells of a recipe's targets.

    Args:
        recipe: the recipe's name.
        tool: the program and its version.
        targets: of each target its report, and what ``nodes_data`` says of its graphs.
        stages: those of the build.
    """
    return {
        "format": FORMAT,
        "recipe": recipe,
        "tool": tool,
        "targets": [
            {"name": report.target, "report": report_data(report), "nodes": nodes}
            for report, nodes in targets
        ],
        "stages": [asdict(stage) for stage in stages],
    }
