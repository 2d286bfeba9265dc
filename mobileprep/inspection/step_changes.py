"""What a step did to each node of a graph, for the report page."""

from __future__ import annotations

from typing import Final

from mobileprep.frozen import dataclass
from mobileprep.inspection.matching import renamed
from mobileprep.ir.compare import compare_graphs
from mobileprep.ir.graph import Graph

_MOST: Final = 20_000
_LONGEST_CHANGE: Final = 300


@dataclass(frozen=True)
class StepChanges:
    """What became of the nodes of a graph.

    Args:
        renamed: pairs of an old and a new name, where a step gave nodes other names.
        changes: of each what ``GraphDifference`` tells: kind, name after the step, detail, before
            and after in words, and of constants the largest difference or None.
        left_out: how many more there are.
    """

    renamed: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, str, str, str, str, float | None], ...]
    left_out: int


def step_changes(before: Graph, after: Graph) -> StepChanges:
    """What a step did: which nodes are new, gone, or differ, and in what.

    Nodes that stand where others of the same ops stood, all of them, have been renamed.
    """
    if before is after:
        return StepChanges((), (), 0)
    names = _new_names(before, after)
    found = compare_graphs(renamed(before, names) if names else before, after)
    told = []
    for one in found[:_MOST]:
        data = one.as_data()
        texts = (_short(data["before"]), _short(data["after"]))
        told.append((one.kind, one.name, one.detail, *texts, data["largest"]))
    return StepChanges(tuple(names.items()), tuple(told), max(len(found) - _MOST, 0))


def _new_names(before: Graph, after: Graph) -> dict[str, str]:
    pairs = list(zip(before, after, strict=False))
    if len(before) != len(after) or any(a.op != b.op for a, b in pairs):
        return {}
    names = {a.name: b.name for a, b in pairs if a.name != b.name}
    # Nodes in another order have names that were there before.
    return {} if names.keys() & set(names.values()) else names


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CHANGE else f"{text[: _LONGEST_CHANGE - 3]}..."
