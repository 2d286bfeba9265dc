"""``python -m tests.fuzz --cases 100000 --seed 1 --format graph``: a long run that can be resumed.

Cases that failed before run first.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import tempfile
import time
from pathlib import Path

import tests.fuzz.formats
from tests.fuzz.case import formats
from tests.fuzz.runs import BATCH, Finding, Progress, run_many, save_case

_ABOUT = __doc__.splitlines()[0] if __doc__ else ""
_CORRUPT = Path(__file__).parents[1] / "corrupt"


def import_formats() -> None:
    """Import the module of every format."""
    for module in pkgutil.iter_modules(tests.fuzz.formats.__path__, "tests.fuzz.formats."):
        importlib.import_module(module.name)


def main() -> int:
    """Return 1 if a case failed."""
    import_formats()
    args = parser().parse_args()
    failed = 0
    for name in args.format or list(formats):
        failed += _run(name, args)
    return int(failed > 0)


def parser() -> argparse.ArgumentParser:
    """The flags; import the formats first."""
    flags = argparse.ArgumentParser(prog="python -m tests.fuzz", description=_ABOUT)
    flags.add_argument("--cases", type=int, default=1000, help="cases of each format")
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--format", action="append", choices=list(formats))
    flags.add_argument("--workers", type=int, default=0, help="processes [default: CPU count]")
    flags.add_argument("--keep", action="store_true", help="shrink failed cases to tests/corrupt")
    progress = Path(tempfile.gettempdir()) / "mobileprep-fuzz"
    flags.add_argument("--progress", type=Path, default=progress, help="directory for progress")
    return flags


def _run(name: str, args: argparse.Namespace) -> int:
    progress = Progress(args.progress / f"{name}-{args.seed}.json")
    new: list[Finding] = []
    start, before = time.monotonic(), progress.done

    def report(finding: Finding) -> None:
        new.append(finding)
        print(f"\n{name} {finding.number}: {finding.problems}\n  $ {finding.command}")
        print("  " + "\n  ".join(finding.error.splitlines()[-12:])[:1500], flush=True)

    again = progress.failed_numbers()
    reruns = run_many(name, args.seed, again, args.workers)
    progress.record_rerun([f for findings in reruns for f in findings], report)
    numbers = range(progress.done, max(args.cases, progress.done))
    for batch, findings in enumerate(run_many(name, args.seed, numbers, args.workers)):
        progress.record(min(BATCH, len(numbers) - BATCH * batch), findings, report)
    seconds = time.monotonic() - start
    print(
        f"== {name}: {progress.done - before} cases, {len(again)} failed ones rerun, "
        f"{seconds:.0f} s, {len(new)} causes of failure",
        flush=True,
    )
    if args.keep:
        for finding in new:
            print(f"wrote {save_case(finding, args.seed, _CORRUPT)}", flush=True)
    return len(new)


if __name__ == "__main__":
    raise SystemExit(main())
