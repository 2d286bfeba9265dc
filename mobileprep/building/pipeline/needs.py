"""What a build will run, told beforehand: what is stale, and what is needed and lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.state import Fresh, Stale, State, lost_reason
from mobileprep.building.plan.fingerprints import fingerprint
from mobileprep.building.plan.spec import Upstream
from mobileprep.core.frozen import dataclass

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Forecast:
    """Which stages of a plan run, by task, and why; the others do not.

    Args:
        certain: those that run whatever the others leave. Of stages with equal fingerprints one
            runs for all, here the first.
        perhaps: those that run only if a stage before them leaves something else than it did, or
            if one that may run needs what they left, and that is lost.
    """

    certain: Mapping[str, tuple[str, ...]]
    perhaps: Mapping[str, tuple[str, ...]]

    def runs(self, task: str) -> bool:
        """Whether a stage may run."""
        return task in self.certain or task in self.perhaps


def foretell(state: State, wanted: Iterable[Upstream] = ()) -> Forecast:
    """Tell what a build would run. Nothing is run, and the state stays as it is."""
    return _Foresight(state).forecast(set(wanted))


def at_their_turn(state: State, tasks: Iterable[str]) -> Forecast:
    """Which of some stages run, where all that they need has had its turn.

    No other stage is judged: the files that one reads may be there only when its turn has come.
    """
    found = state.verdicts(tasks).items()
    stale = [(task, verdict) for task, verdict in found if isinstance(verdict, Stale)]
    return Forecast(
        {task: verdict.reasons for task, verdict in stale if verdict.parts is not None},
        {task: verdict.reasons for task, verdict in stale if verdict.parts is None},
    )


class _Foresight:
    def __init__(self, state: State) -> None:
        self._state = state
        # Nothing runs meanwhile: what is stale now need not be judged again.
        self._verdicts = state.verdicts(spec.task for spec in state.plan.stages)
        self._certain: dict[str, tuple[str, ...]] = {}
        self._perhaps: dict[str, tuple[str, ...]] = {}
        self._missing: dict[Output, frozenset[str]] = {}

    def forecast(self, wanted: set[Upstream]) -> Forecast:
        self._judge_stale()
        for task in self._certain:
            wanted |= self._inputs(task)
        sure = self._surely_lost(wanted)
        for task in sure:
            self._certain[task] = self._lost_reasons(task)
        # What may be healed by others before it is looked at.
        for task in self._closure(wanted) - sure:
            self._perhaps[task] = self._lost_reasons(task)
        self._spread()
        return Forecast(self._certain, self._perhaps)

    def _judge_stale(self) -> None:
        first: dict[str, str] = {}
        for spec in self._state.plan.stages:
            found = self._verdicts[spec.task]
            if isinstance(found, Fresh):
                continue
            if found.parts is None:
                self._perhaps[spec.task] = found.reasons
                continue
            other = first.setdefault(fingerprint(found.parts), spec.task)
            if other == spec.task:
                self._certain[spec.task] = found.reasons
            else:
                self._perhaps[spec.task] = (f"{other} is the same and has yet to run",)

    def _spread(self) -> None:
        """Add what comes after stages that may run, and what those need that is lost."""
        size = -1
        while size != len(self._perhaps):
            size = len(self._perhaps)
            for spec in self._state.plan.stages:
                before = [task for task in spec.needs if self._runs(task)]
                if before and not self._runs(spec.task):
                    self._perhaps[spec.task] = (f"{before[0]} runs first",)
            read = {up for task in self._perhaps for up in self._inputs(task)}
            for task in self._closure(read):
                if not self._runs(task):
                    self._perhaps[task] = self._lost_reasons(task)

    def _runs(self, task: str) -> bool:
        return task in self._certain or task in self._perhaps

    def _inputs(self, task: str) -> set[Upstream]:
        return set(self._state.spec(task).stage.upstream.values())

    def _closure(self, wanted: Iterable[Upstream]) -> set[str]:
        """The fresh stages that run again for some outputs if nothing else heals what is lost."""
        found: set[str] = set()
        todo = [*wanted]
        while todo:
            up = todo.pop()
            if up.task not in found and self._lost(up):
                found.add(up.task)
                todo += self._inputs(up.task)
        return found

    def _lost(self, up: Upstream) -> frozenset[str]:
        """The digests that an output of a fresh stage lacks."""
        found = self._verdicts[up.task]
        return self._lacks(found.record.outputs[up.output]) if isinstance(found, Fresh) else _NONE

    def _lacks(self, output: Output) -> frozenset[str]:
        if output not in self._missing:
            self._missing[output] = self._state.store.missing(output)
        return self._missing[output]

    def _lost_reasons(self, task: str) -> tuple[str, ...]:
        outputs = self._outputs(task)
        return tuple(lost_reason(n, o) for n, o in sorted(outputs.items()) if self._lacks(o))

    def _outputs(self, task: str) -> Mapping[str, Output]:
        found = self._verdicts[task]
        return found.record.outputs if isinstance(found, Fresh) else {}

    def _surely_lost(self, wanted: Iterable[Upstream]) -> set[str]:
        """The fresh stages that run again whatever the order in which a build comes to them.

        What is lost may be left by several stages: whichever runs first heals it for all. And a
        stage that has yet to run may leave anything, unless it runs after those.
        """
        digests = {digest for up in wanted for digest in self._lost(up)}
        if not digests:
            return set()
        heal = self._healers(self._closure(wanted))
        sure = {task for digest in digests for task in heal.surely(digest)}
        stale = [*self._certain, *self._perhaps]
        return {task for task in sure if all(task in self._above(other) for other in stale)}

    def _healers(self, likely: set[str]) -> _Healers:
        """Which stages can heal what."""
        plan = self._state.plan
        order = sorted((spec.task for spec in plan.stages), key=lambda task: task not in likely)
        first: dict[str, str] = {}
        by_digest: defaultdict[str, set[str]] = defaultdict(set)
        # What an index that is lost names is not known: it may be any tensor.
        tensors: set[str] = set()
        may_leave_any: set[str] = set()
        needs: dict[str, frozenset[str]] = {}
        for task in order:
            found = self._verdicts[task]
            if isinstance(found, Stale):
                continue
            if first.setdefault(fingerprint(dict(found.record.components)), task) != task:
                continue
            needs[task] = _NONE.union(*map(self._lost, self._inputs(task)))
            for output in found.record.outputs.values():
                lacks = self._lacks(output)
                for digest in lacks:
                    by_digest[digest].add(task)
                if output.index is not None:
                    tensors |= lacks - {output.index.sha256}
                    may_leave_any |= {task} if output.index.sha256 in lacks else set()
        for digest in tensors:
            by_digest[digest] |= may_leave_any
        return _Healers(by_digest, needs)

    def _above(self, task: str) -> set[str]:
        """The stages that a stage depends on."""
        found: set[str] = set()
        todo = [task]
        while todo:
            for before in self._state.spec(todo.pop()).needs:
                if before not in found:
                    found.add(before)
                    todo.append(before)
        return found


class _Healers:
    """Which stages run to get back what is lost.

    Args:
        by_digest: the stages that leave an object, by its digest.
        needs: what each stage needs of what is lost.
    """

    def __init__(
        self, by_digest: Mapping[str, set[str]], needs: Mapping[str, frozenset[str]]
    ) -> None:
        self._needs = needs
        self._ways = {
            digest: [task for task in tasks if digest not in needs[task]]
            for digest, tasks in by_digest.items()
        }
        # A stage, and those that surely run before it; None while no way to run it is found.
        self._with: dict[str, set[str] | None] = dict.fromkeys(needs)
        while self._learn():
            pass

    def surely(self, digest: str) -> set[str]:
        """The stages that run in every way to get an object back."""
        return self._in_every_way(digest) or set()

    def _learn(self) -> bool:
        """Go over all stages once more; whether that found anything new."""
        before = dict(self._with)
        for task, digests in self._needs.items():
            earlier = [self._in_every_way(digest) for digest in digests]
            known = [tasks for tasks in earlier if tasks is not None]
            if len(known) == len(earlier):
                self._with[task] = {task}.union(*known)
        return before != self._with

    def _in_every_way(self, digest: str) -> set[str] | None:
        ways = self._ways.get(digest, [])
        known = [tasks for task in ways if (tasks := self._with[task]) is not None]
        if ways and not known:
            return None
        return set.intersection(*known) if known else set()
