"""A build killed at any moment leaves nothing half-written, and the next one mends all."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from mobileprep.pipeline.checked import unseal

COMMAND = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_a_killed_build_leaves_whole_files_and_the_next_gives_the_same_bytes(
    built_once: Path, tmp_path: Path
) -> None:
    expected = outputs(built_once / "out")
    recipe = tmp_path / "digits" / "recipe.yaml"
    shutil.copytree(built_once / "digits", recipe.parent)
    environment = {**os.environ, "MOBILEPREP_CACHE": str(tmp_path / "store")}
    command = [sys.executable, "-c", COMMAND, "build", str(recipe), "--out", str(tmp_path / "out")]
    generator = random.Random(5)
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    whole = time.perf_counter() - started
    for _ in range(6):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if generator.random() < 0.5:
            shutil.rmtree(tmp_path / "store", ignore_errors=True)
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(generator.uniform(0.2, 1) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_whole(tmp_path / "store", tmp_path / "out", expected)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert outputs(tmp_path / "out") == expected


def outputs(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_whole(store: Path, out: Path, expected: dict[str, bytes]) -> None:
    """Every file under a final name has the bytes that belong to that name."""
    for path in store.glob("*/cas/*/*"):
        if not path.name.startswith("."):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    for path in store.glob("*/ac/*/*.json"):
        if not path.name.startswith("."):
            assert unseal(path.stem, path.read_bytes()) is not None
    for name, data in outputs(out).items():
        if not Path(name).name.startswith("."):
            assert data == expected[name]
