"""Kill builds at seeded instants: ``python -m tests.building.pipeline.killed --count 200``."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mobileprep.building.pipeline.cache_files import unseal
from mobileprep.building.report.page.render import PAGE

DIGITS = Path(__file__).resolve().parents[3] / "recipes" / "digits"
_COMMAND = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
# Killed as it starts, or as it ends, a build has done nothing or all.
_FIRST, _LAST = 0.15, 1.05


@dataclass
class Killed:
    """What became of builds that were killed.

    Args:
        ended: how many had ended before.
        killed: how many had not.
        unfinished: how many files without their final name were there at most.
    """

    ended: int = 0
    killed: int = 0
    unfinished: int = 0


class Bench:
    """The digits recipe in a folder of its own.

    Args:
        top: the folder.
    """

    def __init__(self, top: Path) -> None:
        self.store = top / "store"
        self.out = top / "out"
        self._recipe = top / "digits" / "recipe.yaml"
        shutil.copytree(DIGITS, self._recipe.parent, dirs_exist_ok=True)

    def start(self) -> subprocess.Popen[str]:
        """Begin a build."""
        command = [sys.executable, "-c", _COMMAND, "build", str(self._recipe)]
        environment = {**os.environ, "MOBILEPREP_CACHE": str(self.store)}
        return subprocess.Popen(
            [*command, "--out", str(self.out)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build(self) -> None:
        """Build to the end."""
        process = self.start()
        _, told = process.communicate()
        assert process.returncode == 0, told

    def check_whole(self, expected: dict[str, bytes]) -> int:
        """Check every file under a final name; how many files have none yet."""
        for path in self.store.glob("v2/cas/*/*"):
            if not path.name.startswith("."):
                assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        for kind in ("ac", "latest"):
            for path in self.store.glob(f"v2/{kind}/*/*.json"):
                if not path.name.startswith("."):
                    assert unseal(path.stem, path.read_bytes()) is not None
        found = outputs(self.out)
        for name, data in found.items():
            if not Path(name).name.startswith("."):
                assert data == expected[name], name
        return sum(Path(name).name.startswith(".") for name in found)


def outputs(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the page, which tells how long stages took, by name."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != PAGE]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def kill_builds(top: Path, count: int, seed: int) -> Killed:
    """Kill builds, and after each check what is there; each is followed by one that ends.

    Args:
        top: an empty folder.
        count: how many to kill.
        seed: of the instants, and of what is there before.
    """
    bench, result, generator = Bench(top), Killed(), random.Random(seed)
    started = time.perf_counter()
    bench.build()
    whole = time.perf_counter() - started
    expected = outputs(bench.out)
    for number in range(count):
        if generator.random() < 0.7:
            shutil.rmtree(bench.out, ignore_errors=True)
        if generator.random() < 0.7:
            shutil.rmtree(bench.store, ignore_errors=True)
        process = bench.start()
        try:
            process.wait(generator.uniform(_FIRST, _LAST) * whole)
            result.ended += 1
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            result.killed += 1
        process.communicate()
        result.unfinished = max(result.unfinished, bench.check_whole(expected))
        if number % 2 or number == count - 1:  # else the next comes upon what this one left
            bench.build()
            assert outputs(bench.out) == expected
    return result


def main() -> None:
    """Kill builds as the command line says, and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        sys.stdout.write(f"{kill_builds(Path(top), args.count, args.seed)}\n")


if __name__ == "__main__":
    main()
