"""``python -m tests.fuzz --cases 100000 --seed 1 --format graph``: run long, go on where it was.

Cases that failed before are run again first.
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
from tests.fuzz.runs import BATCH, Finding, Progress, keep, run_many

_ABOUT = __doc__.splitlines()[0] if __doc__ else ""
_CORRUPT = Path(__file__).parents[1] / "corrupt"


def import_formats() -> None:
    """Import the module of every format."""
    for module in pkgutil.iter_modules(tests.fuzz.formats.__path__, "tests.fuzz.formats."):
        importlib.import_module(module.name)


def main() -> int:
    """Run; 1 where something failed."""
    import_formats()
    args = parser().parse_args()
    failed = 0
    for name in args.format or list(formats):
        failed += _run(name, args)
    return int(failed > 0)


def parser() -> argparse.ArgumentParser:
    """The flags; the formats' modules have been imported."""
    found = argparse.ArgumentParser(prog="python -m tests.fuzz", description=_ABOUT)
    found.add_argument("--cases", type=int, default=1000, help="of each format")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--format", action="append", choices=list(formats))
    found.add_argument("--workers", type=int, default=0, help="processes; without it one a core")
    found.add_argument("--keep", action="store_true", help="shrink what failed to tests/corrupt")
    progress = Path(tempfile.gettempdir()) / "mobileprep-fuzz"
    found.add_argument("--progress", type=Path, default=progress, help="folder of what is done")
    return found


def _run(name: str, args: argparse.Namespace) -> int:
    progress = Progress(args.progress / f"{name}-{args.seed}.json")
    new: list[Finding] = []
    start, before = time.monotonic(), progress.done

    def tell(finding: Finding) -> None:
        new.append(finding)
        print(f"\n{name} {finding.number}: {finding.faults}\n  $ {finding.command}")
        print("  " + "\n  ".join(finding.error.splitlines()[-12:])[:1500], flush=True)

    again = progress.failed_numbers()
    still = [f for found in run_many(name, args.seed, again, args.workers) for f in found]
    progress.note_again(still, tell)
    numbers = range(progress.done, max(args.cases, progress.done))
    for batch, found in enumerate(run_many(name, args.seed, numbers, args.workers)):
        progress.note(min(BATCH, len(numbers) - BATCH * batch), found, tell)
    seconds = time.monotonic() - start
    print(
        f"== {name}: {progress.done - before} cases, {len(again)} failed ones again, "
        f"{seconds:.0f} s, {len(new)} causes of failure",
        flush=True,
    )
    if args.keep:
        for finding in new:
            print(f"kept {keep(finding, args.seed, _CORRUPT)}", flush=True)
    return len(new)


if __name__ == "__main__":
    raise SystemExit(main())
