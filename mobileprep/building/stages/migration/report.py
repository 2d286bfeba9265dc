"""Report the runtimes that can run a target's graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.building.report.layout import plain, table
from mobileprep.building.stages.migration.spec import MigrationRecord
from mobileprep.targets.migration.records import Advice, Lack, Migration, Route

_EXAMPLES: Final = 3


_FORMS: Final = ("float", "float16", "weights")


_HEADINGS: Final = ("runtime", "runs it", *_FORMS)


def migration_lines(record: MigrationRecord) -> Iterator[str]:
    """Yield the runtimes that can run a target's graph, for the text report."""
    if record.found is None:
        yield f"runtimes not tried: {record.untried}"
        return
    yield f"runtimes {_attempt_text(record.found, record.before)}"
    yield from (f"  {line}" for line in way_lines(record.found))


def migration_markdown(record: MigrationRecord) -> Iterator[str]:
    """Yield a Markdown table of the runtimes, and a list of the required changes."""
    yield ""
    if record.found is None:
        yield f"Runtimes are not tried: {plain(record.untried)}."
        return
    routes = record.found.routes
    yield f"Runtimes for {plain(_attempt_text(record.found, record.before))}:"
    yield ""
    yield from table(_HEADINGS, map(_cells, routes))
    changes = [
        f"{route.runtime} {change.strip()}" for route in routes for change in _changes(route, None)
    ]
    changes += map(_advice, record.found.advice)
    if changes:
        yield ""
    yield from (f"- {plain(change)}" for change in changes)


def ends_text(migration: Migration) -> str:
    """Format the size, inputs, and outputs of a graph."""
    ends = f"{', '.join(migration.inputs) or 'nothing'} to {', '.join(migration.outputs)}"
    return f"{migration.nodes:,} nodes, {migration.bytes:,} bytes; {ends}"


def way_lines(migration: Migration, *, verbose: bool = False) -> Iterator[str]:
    """Yield the verdict of each runtime, and the nodes to replace with inputs."""
    answers = {"as it is": "runs it as it is", "after changes": "runs it after changes"}
    for route in migration.routes:
        yield f"{route.runtime}: {answers.get(route.verdict, 'does not run it')}"
        changes = _changes(route, None if verbose else _EXAMPLES)
        yield from (f"  {line}" for line in (*changes, *_gains(route)))
    if migration.advice:
        yield "Cut off, or feed instead:"
    yield from (f"  {_advice(advice)}" for advice in migration.advice)


def _attempt_text(migration: Migration, before: str) -> str:
    return f"{ends_text(migration)}{f', before {before}' if before else ''}"


def _changes(route: Route, examples: int | None) -> Iterator[str]:
    """Yield the unsupported ops of a runtime, and the changes after which it runs the graph."""
    yield from _lacks("lacks", route.lacks, examples)
    if route.verdict == "after changes":
        inputs = f"--inputs={','.join(route.inputs)}"
        yield f"after: {', '.join((inputs, *route.transforms))}"
    if route.left != route.lacks:
        yield from _lacks("lacks after changes", route.left, examples)


def _lacks(what: str, lacks: Sequence[Lack], examples: int | None) -> Iterator[str]:
    """Yield unsupported ops grouped by fix, with some examples per group, or all if None."""
    groups: dict[str, list[Lack]] = {}
    for lack in lacks:
        groups.setdefault(lack.mend, []).append(lack)
    for hint, group in groups.items():
        if len(group) == 1:
            (lack,) = group
            yield f"{what} {_named(lack.op, lack.node, lack.count)}: {lack.reason}; {hint}"
            continue
        ops = len({lack.op for lack in group})
        count = f"{sum(lack.count for lack in group):,} nodes of {ops} op{'s' * (ops != 1)}"
        yield f"{what} {count}; {hint}:"
        for lack in group[:examples]:
            yield f"  {_named(lack.op, lack.node, lack.count)}: {lack.reason}"
        rest = len(group) - len(group[:examples])
        if rest:
            yield f"  ... and {rest} more (-v shows all)"


def _advice(advice: Advice) -> str:
    fed = f" ({', '.join(advice.inputs)})" if advice.inputs else ""
    return f"{_named(advice.op, advice.node, advice.count)}: {advice.text}{fed}"


def _named(op: str, node: str, count: int) -> str:
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{op or 'the graph'} ({node!r}{more})" if node else op or "the graph"


def _gains(route: Route) -> Iterator[str]:
    if not route.sizes:
        return
    kind = "operators" if route.runtime == "LiteRT" else "nodes"
    code = f", about {route.code_bytes:,} bytes of code" if route.code_bytes else ""
    kinds = "kinds" if route.runtime == "LiteRT" else "kernels"
    yield f"{route.operators:,} {kind} of {route.kinds} {kinds}{code}"
    sizes = (f"{s.form} {s.bytes:,} ({s.share:.0%})" for s in route.sizes)
    yield f"bytes: {', '.join(sizes)}"


def _cells(route: Route) -> list[str]:
    """Format a runtime as a row below ``_HEADINGS``."""
    sizes = {size.form: f"{size.bytes:,}" for size in route.sizes}
    return [route.runtime, route.verdict, *(sizes.get(form, "-") for form in _FORMS)]
