"""Which stages run again only because what they left is needed now and lost."""

from __future__ import annotations

from collections.abc import Iterable

from mobileprep.pipeline.state import Fresh, State
from mobileprep.plan.spec import Upstream


def lose_what_is_gone(state: State, wanted: Iterable[Upstream] = ()) -> None:
    """Judge stages stale whose outputs are needed, and neither in the store nor to be had.

    A build finds that out by itself, stage by stage; this tells it beforehand.

    Args:
        state: a plan against a store.
        wanted: outputs that are needed beside those that stale stages read.
    """
    todo = [*wanted, *_read_by_stale(state)]
    seen: set[Upstream] = set()
    while todo:
        upstream = todo.pop()
        if upstream in seen:
            continue
        seen.add(upstream)
        verdict = state.verdict(upstream.task)
        if not isinstance(verdict, Fresh):
            continue
        if not state.store.has(verdict.record.outputs[upstream.output]):
            state.lose(upstream.task, upstream.output)
            todo += state.spec(upstream.task).stage.upstream.values()


def _read_by_stale(state: State) -> list[Upstream]:
    stale = [s for s in state.plan.stages if not isinstance(state.verdict(s.task), Fresh)]
    return [up for spec in stale for up in spec.stage.upstream.values()]
