"""A store that takes what it lacks from a remote one, and gives what stages leave."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import BuildRun, prepared, run_build
from mobileprep.building.pipeline.execute import Warn
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.remote.base import Kind
from mobileprep.building.pipeline.remote.guarded import Sharing
from mobileprep.building.pipeline.store import Store
from mobileprep.building.report.page.render import PAGE
from mobileprep.building.verdicts import verdicts
from mobileprep.errors import AccuracyError
from mobileprep.formats.parts import FILE, GRAPH
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.pipeline.remote.faulty_server import Server, serving
from tests.building.stages.jobs import op, placeholder

RECIPE = """\
version: 1
name: m
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 80]}}
outputs: [y]
transforms: [strip_unused_nodes]
targets:
  a: {platform: linux}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that builds the recipe on a machine of that name, all of which share a store."""
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", f"file://{tmp_path}/shared")
    (tmp_path / "shared").mkdir()
    weights = np.random.default_rng(1).standard_normal((80, 80)).astype(np.float32)
    nodes = [placeholder((-1, 80)), constant("w", Tensor.of(weights)), op("y", "MatMul", "x", "w")]
    write_graph(tmp_path / "model.pb", Graph(nodes))
    (tmp_path / "recipe.yaml").write_text(RECIPE)

    def build(name: str, warn: Warn = lambda *_: None) -> BuildRun:
        monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / name / "store"))
        out = tmp_path / name / "out"
        state = prepared([load_recipe(tmp_path / "recipe.yaml", environ={})], out)
        build.told = verdicts(state, out)  # type: ignore[attr-defined]
        return run_build(state, out, jobs=2, listen=lambda *_: None, warn=warn)

    return build


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def outputs(folder: Path) -> dict[str, bytes]:
    """All files but hidden ones and the page, which tells how long stages took."""
    out = folder / "out"
    found = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    return {
        name: data
        for name, data in found.items()
        if not Path(name).name.startswith(".") and Path(name).name != PAGE
    }


def test_a_second_machine_runs_nothing(machine, tmp_path: Path) -> None:
    assert len(machine("first").ran) == 5
    done = machine("second")
    assert (done.ran, done.warnings) == ((), ())
    assert outputs(tmp_path / "second") == outputs(tmp_path / "first")
    stages = [verdict for verdict in machine.told if verdict.stage != "publish"]
    assert all(verdict.fresh for verdict in stages)


def test_only_needed_objects_are_downloaded(machine, tmp_path: Path) -> None:
    machine("first")
    machine("second")
    shared = {p.name for p in (tmp_path / "shared/cas").rglob("*") if p.is_file()}
    mine = {p.name for p in (tmp_path / "second/store/v2/cas").rglob("*") if p.is_file()}
    # Not the graphs of the stages between, which nothing reads.
    assert mine < shared


@pytest.mark.parametrize("spoil", [Path.unlink, lambda p: p.write_bytes(b"x" * 9)])
def test_objects_lost_remotely_are_rebuilt(machine, tmp_path: Path, spoil) -> None:
    machine("first")
    for path in (tmp_path / "shared/cas").rglob("*"):
        if path.is_file():
            spoil(path)
    done = machine("second")
    assert {r.task for r in done.ran} <= {"m/freeze", "m/01-strip_unused_nodes", "m/a/package"}
    assert done.ran
    assert outputs(tmp_path / "second") == outputs(tmp_path / "first")


def lost_tensors(shared: Path) -> list[Path]:
    """What indexes alone name."""
    return [p for p in (shared / "cas").iterdir() if p.stat().st_size == 80 * 80 * 4]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda p: p.write_bytes(p.read_bytes()[:-1])])
@pytest.mark.parametrize("pick", [lost_tensors, lambda shared: (shared / "cas").iterdir()])
def test_objects_lost_remotely_are_predicted(machine, tmp_path: Path, spoil, pick) -> None:
    machine("first")
    for path in pick(tmp_path / "shared"):
        spoil(path)
    done = machine("second")
    assert done.ran
    assert {run.task for run in done.ran} <= {v.task for v in machine.told if v.reasons}


def test_an_index_of_wrong_bytes_is_foretold(machine, tmp_path: Path) -> None:
    machine("first")
    for path in (tmp_path / "shared/cas").iterdir():
        if path.read_bytes().startswith((GRAPH, FILE)):
            path.write_bytes(path.read_bytes()[:-1] + b"x")
    done = machine("second")
    assert done.ran
    assert {run.task for run in done.ran} <= {v.task for v in machine.told if v.reasons}


def test_only_a_missing_index_is_counted(machine, tmp_path: Path) -> None:
    machine("first")
    shutil.rmtree(tmp_path / "first/out")
    lost = 0
    for path in (tmp_path / "first/store/v2/cas").glob("*/*"):
        if path.read_bytes().startswith((GRAPH, FILE)):
            lost += path.stat().st_size
            path.unlink()
    done = machine("first")
    told = sum(verdict.remote_bytes for verdict in machine.told)
    assert (done.ran, 0 < told <= lost) == ((), True)


def test_remote_file_counts_once_with_its_tensors(machine, tmp_path: Path) -> None:
    machine("first")
    machine("second")
    fetched = (tmp_path / "second/store/v2/cas").glob("*/*")
    told = sum(verdict.remote_bytes for verdict in machine.told)
    assert told == sum(path.stat().st_size for path in fetched)


def test_tensor_of_a_lost_index_is_rebuilt(
    machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE_MODE", "off")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("[strip_unused_nodes]", "[obfuscate_names]"))
    machine("first")
    for path in (tmp_path / "first/store/v2/cas").glob("*/*"):
        data = path.read_bytes()
        is_source = data.startswith(GRAPH) and b"\x01w" in data
        if is_source or len(data) == 80 * 80 * 4:
            path.unlink()
    shutil.rmtree(tmp_path / "first/out")
    ran = {run.task for run in machine("first").ran}
    assert ran == {"m/freeze", "m/01-obfuscate_names", "m/a/package"}
    stages = [told for told in machine.told if told.reasons and told.stage != "publish"]
    assert {told.task for told in stages if told.certain} <= ran
    assert ran <= {told.task for told in stages}


def test_a_shared_store_that_rotted_is_whole_after_a_build(machine, tmp_path: Path) -> None:
    machine("first")
    objects = [p for p in (tmp_path / "shared/cas").rglob("*") if p.is_file()]
    good = {path: path.read_bytes() for path in objects}
    for path, data in good.items():
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    machine("second")
    assert outputs(tmp_path / "second") == outputs(tmp_path / "first")
    machine("third")
    assert outputs(tmp_path / "third") == outputs(tmp_path / "first")
    assert machine("fourth").ran == ()


def test_a_damaged_record_counts_as_none(machine, tmp_path: Path) -> None:
    machine("first")
    for path in (tmp_path / "shared/ac").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b'"size":', b'"size":1'))
    assert len(machine("second").ran) == 5
    assert outputs(tmp_path / "second") == outputs(tmp_path / "first")


def test_missing_remote_cache_is_reported_and_ignored(
    machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "http://127.0.0.1:1/nobody")
    done = machine("first")
    assert len(done.ran) == 5
    assert len(done.warnings) == 1
    assert "http://127.0.0.1:1/nobody" in done.warnings[0]


def test_a_record_that_is_nowhere_is_asked_for_once(
    machine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", server.url)
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE_MODE", "read-only")
    assert len(machine("first").ran) == 5
    asked = [path for _, path, _ in server.requests]
    assert len(asked) == len(set(asked)) == 5


def test_local_record_of_another_process_is_used(
    tmp_path: Path,
) -> None:
    remote = Counting()
    store, other = Store(tmp_path, remote=remote), Store(tmp_path)
    record = Record({"kind": "x"}, {}, 1.0)
    key = "ab" * 32
    assert [store.load(key) for _ in range(3)] == [None] * 3
    other.save(key, record)
    assert store.load(key) == record
    assert remote.asked == [key]


class Counting:
    """An empty remote store."""

    warnings = ()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fetch(self, _kind: Kind, key: str, _target: Path, *, limit: int) -> bool:
        self.asked.append(key)
        return limit < 0

    def has(self, _kind: Kind, _key: str, _size: int | None = None) -> bool:
        return False

    def send(self, _kind: Kind, _key: str, _source: Path) -> bool:
        return False

    def stop(self) -> None:
        """Nothing is on its way."""


class Waiting(Counting):
    """A remote store that takes what is sent to it when it is stopped, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stopped = threading.Event(), threading.Event()

    def send(self, _kind: Kind, _key: str, _source: Path) -> bool:
        self.begun.set()
        return self.stopped.wait(30)

    def stop(self) -> None:
        self.stopped.set()


def test_failed_build_reports_remote_cache_warnings(
    machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", "http://127.0.0.1:1/nobody")
    small = RECIPE.replace("linux", "linux, budget: {model_bytes: 1 KB}")
    (tmp_path / "recipe.yaml").write_text(small)
    told: list[tuple[str, str]] = []
    with pytest.raises(AccuracyError):
        machine("first", lambda task, text: told.append((task, text)))
    [(task, text)] = [one for one in told if "nobody" in one[1]]
    assert task == ""
    assert text.endswith("cannot be reached; building without it")


def test_after_an_interrupt_nothing_is_waited_for(tmp_path: Path) -> None:
    remote = Waiting()
    sharing = Sharing(remote, tmp_path)
    for _ in range(3):
        sharing.send("ab" * 32, tmp_path / "record", [])
    assert remote.begun.wait(30)
    assert not remote.stopped.is_set()
    sharing.stop()
    assert remote.stopped.is_set()


def test_an_interrupted_build_stops_its_sharing(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Sharing) -> None:
        raise KeyboardInterrupt

    stopped: list[Sharing] = []
    monkeypatch.setattr(Sharing, "finish", interrupted)
    monkeypatch.setattr(Sharing, "stop", lambda sharing: stopped.append(sharing))
    with pytest.raises(KeyboardInterrupt):
        machine("first")
    assert len(stopped) == 1


def test_shared_entries_contain_no_absolute_paths(machine, tmp_path: Path) -> None:
    machine("first")
    for path in (tmp_path / "shared").rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes()


def test_error_while_storing_downloads_is_raised(tmp_path: Path) -> None:
    class Full:
        warnings = ()

        def fetch(self, _kind: str, _key: str, target: Path, *, limit: int) -> bool:
            target.write_bytes(b"x"[:limit])
            return True

    sharing = Sharing(Full(), tmp_path)  # type: ignore[arg-type]
    with (
        pytest.raises(OSError, match="full") as caught,
        sharing.fetched("cas", [("ab" * 32, 1)]) as files,
    ):
        assert files[0] is not None
        assert files[0].read_bytes() == b"x"
        raise OSError(28, "full")
    assert caught.value.errno == 28
    assert list((tmp_path / "tmp").iterdir()) == []
