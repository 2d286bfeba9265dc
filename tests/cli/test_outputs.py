"""Verbs write to stdout, devices, symlinks, and their own input file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph.files import read_graph, write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run

WRITERS = {
    "transform": [
        "--in_graph=in.pb", "--inputs=x", "--outputs=y", "--transforms=remove_device",
        "--out_graph={}",
    ],
    "freeze": ["--input_graph=in.pb", "--output_node_names=y", "--output_graph={}"],
    "run": ["--graph=in.pb", "--feed=x=random:2,3", "--fetch=y", "--out={}"],
    "init": ["in.pb", "--recipe={}"],
}  # fmt: skip
VERBS = sorted(WRITERS)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("in.pb"), classifier())


def arguments(verb: str, out: str) -> list[str]:
    return [verb, *(part.format(out) for part in WRITERS[verb])]


def run_process(verb: str, out: str) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments(verb, out)]
    return subprocess.run(command, capture_output=True, check=False)


def check(verb: str, data: bytes) -> None:
    """Check that bytes are the complete output of a verb."""
    if verb == "run":
        assert list(np.load(io.BytesIO(data))) == ["y"]
    elif verb == "init":
        assert b"version: 1" in data
        assert data.endswith(b"\n")
    else:
        Path("got.pb").write_bytes(data)
        assert "y" in read_graph(Path("got.pb"))


@pytest.mark.slow
@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
@pytest.mark.parametrize("verb", VERBS)
def test_stdout_contains_only_the_output(verb: str, out: str) -> None:
    before = sorted(p.name for p in Path().iterdir())
    done = run_process(verb, out)
    assert done.returncode == 0, done.stderr
    check(verb, done.stdout)
    Path("got.pb").unlink(missing_ok=True)
    assert sorted(p.name for p in Path().iterdir()) == before


@pytest.mark.parametrize("verb", ["transform", "freeze", "run"])
def test_symlinks_are_followed_and_devices_stay(run: Run, verb: str) -> None:
    Path("real").write_bytes(b"")
    Path("link").symlink_to("real")
    assert run(*arguments(verb, "link")).code == 0
    assert Path("link").is_symlink()
    check(verb, Path("real").read_bytes())
    Path("null").symlink_to(os.devnull)
    assert run(*arguments(verb, "null")).code == 0
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("out", [".", "..", "/", "new/", "folder", "dangling", "in.pb/x"])
def test_unwritable_output_is_reported(run: Run, verb: str, out: str) -> None:
    Path("folder").mkdir()
    Path("dangling").symlink_to("none")
    result = run(*arguments(verb, out))
    assert result.code in (2, 9), result.err
    assert "help:" in result.err
    assert run(*arguments(verb, "x" * 300)).code in (2, 9)
    assert sorted(p.name for p in Path().iterdir()) == ["dangling", "folder", "in.pb"]


@pytest.mark.parametrize("flags", [[], ["--output_as_text"]])
def test_graph_is_transformed_in_place(run: Run, flags: list[str]) -> None:
    result = run(*arguments("transform", "in.pb"), *flags)
    assert result.code == 0, result.err
    assert read_graph(Path("in.pb")).by_name.keys() == classifier().by_name.keys()
    Path("link.pb").symlink_to("in.pb")
    assert run(*arguments("transform", "link.pb")).code == 0
    assert read_graph(Path("in.pb")).by_name.keys() == classifier().by_name.keys()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
@pytest.mark.parametrize("redirect", ["> /dev/full", ">&-"])
@pytest.mark.parametrize("command", ["header --graphs in.pb", "transform {}"])
def test_full_stdout_is_reported_for_binary_output(command: str, redirect: str) -> None:
    flags = " ".join(f"'{a}'" for a in arguments("transform", "-")[1:])
    code = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
    line = f"'{sys.executable}' -c '{code}' {command.format(flags)} {redirect}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
@pytest.mark.parametrize("command", ["help", "doctor", "help build", "schema"])
def test_full_stdout_is_reported_for_text_output(command: str) -> None:
    line = f"'{sys.executable}' -m mobileprep {command} > /dev/full"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert done.stderr.startswith("error: the standard output: cannot be written: No ")
    assert "Traceback" not in done.stderr
