"""Report which engines ran the graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from mobileprep.building.plan.engines import EngineRecord


class EngineLine(Struct, frozen=True):
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


def engine_line(graph: str, record: EngineRecord) -> EngineLine:
    return EngineLine(graph, **structs.asdict(record))


def engine_lines(engines: Sequence[EngineLine]) -> Iterator[str]:
    """A line for each engine that ran something: what, and how it compares."""
    alike: dict[tuple[str, str, bool], list[EngineLine]] = {}
    for line in engines:
        # LiteRT may run both graphs and a file that is apart from its graph.
        is_apart = line.within is not None and line.within > line.tolerance
        key = f"{line.name} {line.version}".rstrip(), line.unlike, is_apart
        alike.setdefault(key, []).append(line)
    for (engine, unlike, _), lines in alike.items():
        # Of many checked transforms the count says enough.
        after = [line for line in lines if line.graph not in ("source", "model")]
        ran = [line.graph for line in lines if line not in after]
        if after:
            ran.append(f"{len(after)} transforms' graphs" if len(after) > 1 else after[0].graph)
        yield f"engine   {engine} ran {', '.join(ran)}: {_agreement(lines, unlike)}"


def _agreement(lines: Sequence[EngineLine], unlike: str) -> str:
    if unlike:
        return f"not compared with numpy: {unlike}"
    apart = [line.within for line in lines if line.within is not None]
    if not apart:
        return "it is the reference, so nothing is compared"
    count = max(line.samples for line in lines)
    samples = f"{count} sample{'s' * (count > 1)}"
    within, allowed = max(apart), lines[0].tolerance
    if within > allowed:
        return (
            "differs from the graph before conversion, run with numpy, by at most "
            f"{within:.0e} of the largest value ({samples})"
        )
    return (
        f"agrees with numpy within {within:.0e} of the largest value "
        f"({samples}; at most {allowed:.0e} is allowed)"
    )
