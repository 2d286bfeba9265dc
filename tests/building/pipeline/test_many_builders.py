"""Many processes that build into one store while others clear, check and empty it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import random, shutil, sys
from pathlib import Path
from mobileprep.building.builder import run_build
from mobileprep.errors import MobileprepError
from mobileprep.building.pipeline import eviction, execute
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.store import Store
from mobileprep.building.pipeline.store import FORMAT
from tests.building.pipeline.small_plans import Wish, mix, small_plan

top, seed = Path(sys.argv[1]), int(sys.argv[2])
execute.stage_function = lambda name: mix
eviction.GRACE_SECONDS = -1
eviction._PAUSE_SECONDS = 0
generator = random.Random(seed)
out = top / f"out{seed}"
source = top / f"in{seed}"
for _ in range(25):
    source.write_text(generator.choice("abc"))
    says = [generator.choice("xy") for _ in range(3)]
    chain = [Wish((1,) if at else (), says[at] * 400, 5000, at == 2) for at in range(3)]
    plan = small_plan([source], [chain])
    index = top / "store" / FORMAT / "seen" / f"{out.name}.json"
    state = State(plan, Store(top / "store", FileIndex(index)))
    run_build(state, out, jobs=2)
    wanted = source.read_text() + "".join(say * 400 for say in says)
    assert (out / "r0" / "t" / "s2").read_text() == wanted
    if generator.random() < 0.3:
        shutil.rmtree(out)
"""

CLEARING = """
import sys
from mobileprep.cli.main import main
from mobileprep.building.pipeline import eviction

eviction.GRACE_SECONDS = -1
for number in range(30):
    for arguments in (["gc", "--max-size", "3KB"], ["verify"], ["info"]):
        code = main(["cache", *arguments])
        assert code == 0, (arguments, code)
"""


@pytest.mark.slow
def test_six_builders_and_two_that_clear(tmp_path: Path) -> None:
    environment = {"MOBILEPREP_CACHE": str(tmp_path / "store"), "MOBILEPREP_CACHE_MAX": "8KB"}
    root = Path(__file__).resolve().parents[3]
    commands = [[sys.executable, "-c", PROGRAM, str(tmp_path), str(seed)] for seed in range(6)]
    commands += [[sys.executable, "-c", CLEARING]] * 2
    running = [
        subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for command in commands
    ]
    told = [process.communicate(timeout=300)[0] for process in running]
    for process, text in zip(running, told, strict=True):
        assert process.returncode == 0, text
