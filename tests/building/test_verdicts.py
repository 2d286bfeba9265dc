"""What is foretold of a build, compared with the build that follows."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from mobileprep.building.builder import BuildRun, run_build
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline import store as stores
from mobileprep.building.pipeline.cache_files import FORMAT
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import fingerprint
from mobileprep.building.plan.spec import Plan
from mobileprep.building.targets import wanted_outputs
from mobileprep.building.verdicts import PUBLISH, Verdict, verdicts
from tests.building.pipeline.small_plans import (
    SPOILS,
    Wish,
    files_below,
    mix,
    small_plan,
    spoil_one,
)

# Shrinking takes longer than all else; what fails is small as it is.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
KEEPS = (0, 1, 3, 1000)

wishes = st.builds(
    Wish,
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(KEEPS),
    st.booleans(),
)
chains = st.lists(wishes, min_size=1, max_size=4)


@dataclass(frozen=True)
class Edit:
    """Something that happens between two builds: what, to which of several, and how."""

    what: str
    number: int
    how: str


edits = st.builds(
    Edit,
    st.sampled_from(["source", "say", "keep", "out", "cas", "ac", "latest", "seen", "force"]),
    st.integers(0, 40),
    st.sampled_from(sorted(SPOILS)),
)
rounds = st.lists(st.lists(edits, max_size=4), min_size=1, max_size=4)


@dataclass
class Bench:
    """A plan with its files, store and output folder."""

    top: Path
    chains: list[list[Wish]]
    jobs: int

    def __post_init__(self) -> None:
        for path in self.sources:
            path.write_text("abc")

    @property
    def sources(self) -> list[Path]:
        return [self.top / f"in{number}" for number in range(len(self.chains))]

    @property
    def out(self) -> Path:
        return self.top / "out"

    def plan(self) -> Plan:
        return small_plan(self.sources, self.chains)

    def state(self, *, force: bool) -> State:
        index = self.top / "store" / FORMAT / "seen" / "index.json"
        store = Store(self.top / "store", FileIndex(index))
        return State(self.plan(), store, force=force)

    def apply(self, edit: Edit) -> None:
        """Let something happen."""
        if edit.what == "source":
            self.sources[edit.number % len(self.sources)].write_text(edit.how[:4])
        elif edit.what in ("say", "keep"):
            chain = self.chains[edit.number % len(self.chains)]
            at = edit.number % len(chain)
            chain[at] = (
                replace(chain[at], say=edit.how[0])
                if edit.what == "say"
                else replace(chain[at], keep=KEEPS[edit.number % len(KEEPS)])
            )
        elif edit.how == "a folder":
            return  # which no build removes
        elif edit.what == "out":
            spoil_one(self.out, edit.number, edit.how)
        elif edit.what != "force":
            spoil_one(self.top / "store" / "v2" / edit.what, edit.number, edit.how)

    def build(self, state: State) -> BuildRun:
        return run_build(state, self.out, jobs=self.jobs)

    def check(self, told: list[Verdict], run: BuildRun, keys: dict[str, str]) -> None:
        """Compare what was foretold with what happened.

        Args:
            told: the verdicts.
            run: the build.
            keys: the fingerprint of each task; of equal ones any may run for all.
        """
        ran = {one.task for one in run.ran}
        assert len(ran) == len(run.ran)
        ran_keys = {keys[task] for task in ran}
        assert len(ran_keys) == len(ran)
        for one in told:
            if one.stage == PUBLISH:
                continue
            if one.fresh:
                assert one.task not in ran, one
            elif one.certain:
                assert keys[one.task] in ran_keys, one
        certain = sum(v.certain and not v.fresh and v.stage != PUBLISH for v in told)
        perhaps = sum(not v.certain and v.stage != PUBLISH for v in told)
        assert certain <= len(ran) <= certain + perhaps
        changed = {b.folder.relative_to(self.out).as_posix() for b in run.targets if b.is_changed}
        folders = [v for v in told if v.stage == PUBLISH]
        assert len(folders) == len(run.targets)
        for one in folders:
            is_changed = one.task.removesuffix(f"/{PUBLISH}") in changed
            if one.fresh:
                assert not is_changed, one
            elif one.certain:
                assert is_changed, one


def fingerprints(state: State) -> dict[str, str]:
    found = {}
    for spec in state.plan.stages:
        verdict = state.verdict(spec.task)
        found[spec.task] = fingerprint(dict(verdict.record.components))  # type: ignore[union-attr]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("inline", [stores.INLINE, 0])
@pytest.mark.parametrize("explained", [False, True])
@settings(
    max_examples=60,
    deadline=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(  # a manifest tells another digest of a file, whose object is lost
    first=[
        Wish((), "b", 1, ships=False),
        Wish((1, 1), "a", 1, ships=False),
        Wish((), "", 3, ships=True),
        Wish((), "a", 1, ships=True),
    ],
    second=None,
    jobs=1,
    happens=[
        [Edit("force", 17, "garbled"), Edit("say", 22, "garbled")],
        [Edit("seen", 7, "garbled"), Edit("cas", 38, "removed"), Edit("out", 4, "flipped")],
    ],
)
@given(first=chains, second=st.none() | chains, jobs=st.integers(1, 2), happens=rounds)
def test_prediction_matches_the_build(
    monkeypatch: pytest.MonkeyPatch,
    inline: int,
    explained: bool,
    first: list[Wish],
    second: list[Wish] | None,
    jobs: int,
    happens: list[list[Edit]],
) -> None:
    monkeypatch.setattr(execution, "stage_function", lambda _name: mix)
    monkeypatch.setattr(stores, "INLINE", inline)
    with tempfile.TemporaryDirectory() as top:
        bench = Bench(Path(top), [list(first), list(second or first)], jobs)
        for edits_made in [[], *happens]:
            for edit in edits_made:
                bench.apply(edit)
            force = any(edit.what == "force" for edit in edits_made)
            before = {p: p.stat().st_mtime_ns for p in files_below(bench.top)}
            state = bench.state(force=force)
            told = verdicts(state, bench.out)
            assert {p: p.stat().st_mtime_ns for p in files_below(bench.top)} == before
            if not explained:  # a build that explains itself goes on with the state that was judged
                state = bench.state(force=force)
                state.check_outputs(wanted_outputs(state, bench.out))
            run = bench.build(state)
            bench.check(told, run, fingerprints(state))
            again = bench.state(force=False)
            assert all(v.fresh for v in verdicts(again, bench.out))
