"""Commands with closed streams, unusual file names, and endless files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.fuzz.seeds import small_graph
from tests.ops.graphs import c, n

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 4, 4, 3]}}
outputs: [y]
targets: {a: {}}
"""
ERROR_CODES = (2, 3, 4, 9)


@pytest.fixture(autouse=True)
def _here(workdir: Path) -> None:
    write_graph(Path("model.pb"), small_graph())
    Path("recipe.yaml").write_text(RECIPE)


def in_shell(arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    command = f"'{sys.executable}' -m mobileprep {arguments} {redirected}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


WRITES = "freeze --input_graph=model.pb --output_graph=o.pb --output_node_names=y"
PRINTS = (
    "summarize --in_graph=model.pb",
    "header --graphs=model.pb",
    "completion bash",
    "plan recipe.yaml --json",
    "dot --graph=model.pb --dot_output=-",
)
NAMING = (
    ("build", "NAME"),
    ("plan", "NAME"),
    ("validate", "NAME"),
    ("validate", "-r", "NAME"),
    ("lock", "NAME"),
    ("report", "NAME"),
    ("init", "NAME", "--recipe=i.yaml"),
    ("migrate", "NAME"),
    ("diff", "NAME", "model.pb"),
    ("summarize", "--in_graph=NAME"),
    ("benchmark", "--graph=NAME"),
    ("benchmark", "--graph=model.pb", "--checkpoint=NAME"),
    ("dot", "--graph=NAME", "--dot_output=-"),
    ("run", "--graph=model.pb", "--feed=x=random", "--fetch=y", "--labels=NAME"),
)


@pytest.mark.skipif(os.name != "posix", reason="the shell is another")
@pytest.mark.parametrize("arguments", PRINTS)
def test_closed_stdout_is_reported(arguments: str) -> None:
    done = in_shell(arguments, ">&-")
    assert done.returncode == 9, done.stderr
    assert "cannot be written: Bad file descriptor" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="the shell is another")
def test_output_file_does_not_reuse_a_closed_stream() -> None:
    assert in_shell(WRITES, "").returncode == 0
    expected = Path("o.pb").read_bytes()
    for redirected in (">&- 2>&-", "<&- >&- 2>&-", "2>&-"):
        Path("o.pb").unlink(missing_ok=True)
        done = in_shell(WRITES, redirected)
        assert done.returncode in (0, 9), done.stderr
        assert Path("o.pb").read_bytes() == expected


def test_invalid_file_names_are_reported(run: Run) -> None:
    Path("one").symlink_to("two")
    Path("two").symlink_to("one")
    for name in ("n" * 300, "n" * 300 + "/x", "one", "one/x", "model.pb/x"):
        for arguments in NAMING:
            result = run(*(a.replace("NAME", name) for a in arguments))
            assert result.code in ERROR_CODES, (arguments, result.err)
            assert name.split("/")[0][:40] in result.err
        result = run("schema", "--modeline", name)
        assert result.code in (0, *ERROR_CODES), result.err


@pytest.mark.parametrize("name", [".", "..", "/", "tools", "x.json", "~"])
def test_invalid_plugin_names_are_reported(name: str, run: Run) -> None:
    Path("recipe.yaml").write_text(f"{RECIPE}plugins: ['{name}']\n")
    for verb in ("validate", "plan", "build"):
        assert run(verb, "recipe.yaml").code in (0, *ERROR_CODES)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no such device")
def test_endless_devices_are_refused_as_data(run: Run) -> None:
    quantized = ("tflite", "--in_graph=model.pb", "--out_file=o.tflite", "--mode=int8")
    for device in ("/dev/zero", "/dev/full"):
        result = run(*quantized, f"--calibration={device}")
        assert result.code in ERROR_CODES, result.err
        assert f"{device}: cannot be read: it is a device" in result.err
        for data in (
            device,
            *(f"{{{kind}: {device}}}" for kind in ("npz", "npy", "csv", "tfrecord")),
        ):
            named = f"validation: {{data: {data}, labels: l, metric: top1, max_drop: 1.0}}\n"
            Path("recipe.yaml").write_text(RECIPE + named)
            for verb in ("validate", "build", "lock"):
                result = run(verb, "recipe.yaml")
                assert result.code in ERROR_CODES, (verb, data, result.err)
                assert device in result.err


def test_missing_vocabulary_is_reported_with_the_graph(run: Run) -> None:
    table = {"key_dtype": DType.STRING, "value_dtype": DType.INT64, "shared_name": b"t"}
    columns = {"key_index": -2, "value_index": -1, "vocab_size": -1, "delimiter": b"\t"}
    Path("folder").mkdir()
    for name in (b"folder", b"gone", b"", b"n" * 300, b"a\0b", b"/dev/zero/x"):
        nodes = [
            c("f", np.array(name, object)),
            n("t", "HashTableV2", container=b"", use_node_name_sharing=False, **table),
            n("fill", "InitializeTableFromTextFileV2", "t", "f", **columns),
            c("keys", np.array([b"a"], object)),
            c("default", np.array(-1, np.int64)),
            n("y", "LookupTableFindV2", "t", "keys", "default", Tin=DType.STRING, Tout=DType.INT64),
        ]
        write_graph(Path("g.pb"), Graph(nodes))
        result = run("run", "--graph=g.pb", "--fetch=y")
        assert result.code in (*ERROR_CODES, 5), result.err
        assert "g.pb" in result.err, result.err


@pytest.mark.skipif(os.name != "posix", reason="the shell is another")
@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("build recipe.yaml --out=out", "out/r/a/r.pb"),
        ("init model.pb --recipe=i.yaml", "i.yaml"),
        (f"--version; {sys.executable} -m mobileprep lock recipe.yaml", "mobileprep.lock"),
    ],
)
def test_closed_stderr_pipe_does_not_stop_a_command(arguments: str, written: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = f"'{sys.executable}' -m mobileprep {arguments}"
    done = subprocess.run(
        ["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=writing, check=False
    )
    os.close(writing)
    assert done.returncode == 0
    assert Path(written).is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
def test_full_stderr_does_not_stop_a_command() -> None:
    assert in_shell("build recipe.yaml --out=out", "2>/dev/full").returncode == 0
    assert Path("out/r/a/r.pb").is_file()
    assert in_shell("build gone.yaml", "2>/dev/full").returncode == 4
