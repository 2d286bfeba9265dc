"""Report the engines that ran the graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from mobileprep.building.plan.engines import EngineRecord


class EngineLine(EngineRecord, frozen=True, kw_only=True):
    """The engine that ran a graph, and its agreement with the interpreter.

    Args:
        graph: ``source``, ``model``, or ``after`` a transform.
    """

    graph: str


def engine_line(graph: str, record: EngineRecord) -> EngineLine:
    return EngineLine(graph=graph, **structs.asdict(record))


def engine_lines(engines: Sequence[EngineLine]) -> Iterator[str]:
    """Yield a line for each engine: the graphs that it ran, and its agreement."""
    groups: dict[tuple[str, str, bool], list[EngineLine]] = {}
    for line in engines:
        # LiteRT may run graphs that agree and a file that does not.
        is_apart = line.within is not None and line.within > line.tolerance
        key = f"{line.name} {line.version}".rstrip(), line.unlike, is_apart
        groups.setdefault(key, []).append(line)
    for (engine, unlike, _), lines in groups.items():
        # For several checked transforms, show only the number.
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
