"""``python -m tests.fuzz.differential --cases 1000``: find graphs that LiteRT runs wrongly.

A seed and a number always give the same case; ``--case SEED:NUMBER`` runs one again.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import threadpoolctl

from mobileprep.litert.convert import Mode
from tests.fuzz.differential.check import Checker, Finding
from tests.fuzz.differential.engines import SILENT
from tests.fuzz.differential.generate import Case, case_of
from tests.fuzz.differential.known import known_bug
from tests.fuzz.differential.shrink import shrunk
from tests.fuzz.differential.text import shown

_MODES: tuple[Mode, ...] = ("float", "int8", "int16x8")
_MAX_SHRUNK = 3
"""Number of findings of one kind to shrink and print; the others are only counted."""
_TRIES, _TRIES_OF_HANGS = 400, 10


def main() -> int:
    """Return 1 if there is a finding that is not a known bug."""
    args = parser().parse_args()
    threadpoolctl.threadpool_limits(1)
    checker = Checker(args.tensorflow)
    try:
        return _one(checker, args) if args.case else _many(checker, args)
    finally:
        checker.stop()


def parser() -> argparse.ArgumentParser:
    """The flags."""
    about = __doc__.splitlines()[0] if __doc__ else ""
    flags = argparse.ArgumentParser(prog="python -m tests.fuzz.differential", description=about)
    flags.add_argument("--cases", type=int, default=1000, metavar="N", help="[default: 1000]")
    flags.add_argument("--seconds", type=float, help="stop after this time instead")
    flags.add_argument("--seed", type=int, default=1, metavar="S", help="[default: 1]")
    flags.add_argument("--start", type=int, default=0, metavar="K", help="first case [default: 0]")
    modes = "conversion mode; repeat for several [default: all of them in turn]"
    flags.add_argument("--mode", action="append", choices=_MODES, help=modes)
    flags.add_argument("--case", metavar="SEED:NUMBER", help="run one case of a mode")
    compare = "compare our interpreter with TensorFlow, too"
    flags.add_argument("--tensorflow", action="store_true", help=compare)
    return flags


def _one(checker: Checker, args: argparse.Namespace) -> int:
    seed, number = map(int, args.case.split(":"))
    failed = 0
    for mode in args.mode or _MODES:
        case = case_of(mode, seed, number)
        print(f"== {mode} {seed}:{number}\n{shown(case)}")
        for finding in checker.findings(case):
            failed += known_bug(case, finding) is None
            report(checker, case, finding, seed, number)
    return int(failed > 0)


def _many(checker: Checker, args: argparse.Namespace) -> int:
    modes = args.mode or _MODES
    start = time.monotonic()
    kinds: Counter[str] = Counter()
    bugs: Counter[str] = Counter()
    done = 0

    def is_over() -> bool:
        if args.seconds is not None:
            return time.monotonic() - start >= args.seconds
        return done >= args.cases

    while not is_over():
        mode = modes[done % len(modes)]
        number = args.start + done // len(modes)
        done += 1
        case = case_of(mode, args.seed, number)
        for finding in checker.findings(case):
            bug = known_bug(case, finding)
            if bug is not None:
                bugs[bug] += 1
                continue
            kind = f"{mode}: {finding.kind}"
            kinds[kind] += 1
            if kinds[kind] <= _MAX_SHRUNK:
                report(checker, case, finding, args.seed, number)
    seconds = time.monotonic() - start
    print(f"== {done} cases in {seconds:.0f} s ({60 * done / seconds:.0f} per minute)")
    print(f"   {checker.compared} compared, {sum(checker.refusals.values())} refused")
    for title, counts in (
        ("refused", checker.refusals),
        ("known bugs of the runtime", bugs),
        ("FINDINGS", kinds),
    ):
        for kind, count in counts.most_common(30):
            print(f"   {title}: {count} x {kind}")
    return int(bool(kinds))


def report(checker: Checker, case: Case, finding: Finding, seed: int, number: int) -> None:
    """Print a finding and the smallest case with it."""
    last = finding

    def fails(tried: Case) -> bool:
        nonlocal last
        for result in checker.findings(tried):
            if result.kind == finding.kind and known_bug(tried, result) is None:
                last = result
                return True
        return False

    small = case
    if known_bug(case, finding) is None:
        tries = _TRIES_OF_HANGS if SILENT in finding.kind else _TRIES
        small = shrunk(case, fails, tries)
    print(f"\n{finding.kind}\n  again: --mode {case.mode} --case {seed}:{number}")
    print("  " + shown(small).replace("\n", "\n  "))
    print("  " + last.detail.replace("\n", "\n  ")[:1000])
    print(f"  operators: {' '.join(last.codes)}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
