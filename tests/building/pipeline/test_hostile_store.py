"""A store that others spoil: the next build has the right bytes, or ends with one clear error."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.builder import build
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.cache_files import seal, unseal
from mobileprep.building.pipeline.locks import remove_folder
from mobileprep.building.plan.spec import Stage
from mobileprep.building.report.page.render import PAGE
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.package.spec import CompressStage
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import ArtifactError, CorruptFileError, MobileprepError
from tests.building.pipeline.small_plans import SPOILS, remove_all

DIGITS = Path(__file__).resolve().parents[3] / "recipes" / "digits"


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(DIGITS, folder / "digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        build(folder / "digits" / "recipe.yaml", folder / "out")
    return folder


class Bench:
    """A recipe that is built, with its store and outputs."""

    def __init__(self, top: Path, expected: dict[str, bytes]) -> None:
        self.top = top
        self.store = top / "store"
        self.out = top / "out"
        self.expected = expected

    def build(self, *, force: bool = False) -> None:
        build(self.top / "digits" / "recipe.yaml", self.out, force=force)

    def build_or_clear(self, *, force: bool = False) -> None:
        """Build; if that fails, the error says to clear the cache, and clearing helps."""
        try:
            self.build(force=force)
        except ArtifactError as error:
            assert "mobileprep cache clear" in error.hint and error.where
            remove_folder(self.store / "v2")
            self.build(force=force)

    def check(self) -> None:
        assert outputs(self.out) == self.expected

    def edit(self) -> None:
        """Make the last transforms stale, so that what is before them is read."""
        recipe = self.top / "digits" / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("num_steps: 256", "num_steps: 64"))


@pytest.fixture
def bench(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    shutil.copytree(built_once, tmp_path, dirs_exist_ok=True)
    return Bench(tmp_path, outputs(built_once / "out"))


def outputs(folder: Path) -> dict[str, bytes]:
    """All files but the page, which tells how long stages took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != PAGE]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link_to_another(path: Path) -> None:
    others = (p for p in path.parent.parent.glob("*/*") if p != path and p.is_file())
    other = next(others, path.with_name("nothing"))
    path.unlink()
    path.symlink_to(other)


ALL_SPOILS = {**SPOILS, "a pipe": put_pipe, "a link to another": put_link_to_another}
KINDS = ("cas", "ac", "latest", "seen")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ALL_SPOILS)
def test_outputs_are_right_after_damage_to_the_cache(bench: Bench, kind: str, how: str) -> None:
    bench.build()  # for an index of this output folder
    for path in sorted((bench.store / "v2" / kind).rglob("*")):
        if path.is_file() and not path.is_symlink():
            ALL_SPOILS[how](path)
    if kind == "cas":
        remove_all(bench.out)
    bench.build_or_clear()
    bench.check()
    bench.edit()
    bench.build_or_clear()


@pytest.mark.parametrize("kind", [*KINDS, "tmp"])
@pytest.mark.parametrize("level", [0, 1])
def test_folders_of_a_store_replaced_by_files_are_named(
    bench: Bench, kind: str, level: int
) -> None:
    top = bench.store / "v2" / kind
    top.mkdir(exist_ok=True)
    for path in [top] if level == 0 else [p for p in top.iterdir() if p.is_dir()]:
        shutil.rmtree(path)
        path.write_text("no folder")
    remove_all(bench.out)
    bench.build_or_clear(force=True)
    bench.check()


def spoil_root(bench: Bench) -> None:
    shutil.rmtree(bench.store)
    bench.store.write_text("mine")


def spoil_format(bench: Bench) -> None:
    shutil.rmtree(bench.store / "v2")
    (bench.store / "v2").write_text("mine")


@pytest.mark.parametrize("spoil", [spoil_root, spoil_format])
def test_file_in_place_of_the_cache_is_reported(
    bench: Bench, spoil: Callable[[Bench], None]
) -> None:
    spoil(bench)
    with pytest.raises(ArtifactError, match="the store cannot be written") as caught:
        bench.build()
    assert "MOBILEPREP_CACHE" in caught.value.hint
    bench.check()
    remove_all(bench.store) if bench.store.is_dir() else bench.store.unlink()
    bench.build()
    bench.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["store", "store/v2", "store/v2/cas", "store/v2/tmp", "store/v2/ac"]
)
@pytest.mark.parametrize("moment", ["03-fold_constants", "package", "freeze"])
def test_a_store_removed_while_a_build_runs(
    bench: Bench, what: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build has what it needs in memory, makes it again, or says what is gone."""
    real = execution.stage_function

    def removing(kind: type[Stage]) -> Callable[[Job], None]:
        def run(job: Job) -> None:
            if job.task.endswith(moment):
                remove_all(bench.top / what)
            real(kind)(job)

        return run

    remove_all(bench.store)
    remove_all(bench.out)
    monkeypatch.setattr(execution, "stage_function", removing)
    try:
        bench.build()
        bench.check()
    except (ArtifactError, CorruptFileError) as error:
        assert error.hint and error.where
    for name, data in outputs(bench.out).items():
        assert data == bench.expected[name]
    monkeypatch.undo()
    monkeypatch.setenv("MOBILEPREP_CACHE", str(bench.store))
    bench.build()
    bench.check()


def rewritten(bench: Bench, alter: Callable[[dict[str, Any]], object]) -> None:
    """Alter what each record has of outputs, and seal it again."""
    for path in sorted((bench.store / "v2" / "ac").rglob("*.json")):
        data: Any = unseal(path.stem, path.read_bytes())
        alter(data["outputs"])
        path.write_bytes(seal(path.stem, data))


def texts_become(text: str, name: str = "") -> Callable[[dict[str, Any]], object]:
    def alter(outputs: dict[str, Any]) -> None:
        for known, output in outputs.items():
            if "text" in output and known.startswith(name):
                found = {"text": text, "sha256": sha256_bytes(text.encode()), "size": len(text)}
                output.update(found)

    return alter


def sizes_become(size: Callable[[int], int], name: str = "") -> Callable[[dict[str, Any]], object]:
    def alter(outputs: dict[str, Any]) -> None:
        for known, output in outputs.items():
            if known.startswith(name):
                output["size"] = size(output["size"])

    return alter


def is_left(name: str) -> Callable[[dict[str, Any]], object]:
    left = {"sha256": sha256_bytes(b"x"), "size": 1, "text": "x"}
    return lambda outputs: outputs.update({name: left})


NONSENSE = {
    "other records": texts_become("{}"),
    "lists": texts_become("[]"),
    "deep lists": texts_become("[" * 50_000),
    "no JSON": texts_become("\x1b[31m"),
    "no records of steps": texts_become('{"graph": [], "nodes": 5}', "step"),
    "other sizes of compressed files": texts_become('{"bytes": "x", "compressor": 1}', "compress"),
    "numbers that are none": texts_become('{"bytes": NaN, "compressor": ""}', "compress"),
    "no interface": texts_become("{}", "interface"),
    "no page of nodes": texts_become("{}", "nodes"),
    "no page of a graph": texts_become('{"summary": 7}', "page"),
    "longer": sizes_become(lambda size: size + 1),
    "shorter": sizes_become(lambda size: size - 1),
    "much longer": sizes_become(lambda _: 10**18),
    "empty": sizes_become(lambda _: 0),
    "longer models": sizes_become(lambda size: size + 1, "files/digits.pb"),
    "longer files": sizes_become(lambda size: size + 1, "files/app.mk"),
    "a name with a NUL": is_left("files/a\0b"),
    "a name above": is_left("files/../../../evil.txt"),
    "an absolute name": is_left("files//tmp/evil.txt"),
    "a long name": is_left(f"files/{'x' * 300}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.parametrize("edited", [False, True], ids=["as it was", "edited"])
def test_invalid_records_with_valid_digests_are_rebuilt(
    bench: Bench, what: str, edited: bool
) -> None:
    if edited:
        bench.edit()
    rewritten(bench, NONSENSE[what])
    bench.build()
    if not edited:
        bench.check()
    left = outputs(bench.out)
    remove_all(bench.out)
    bench.build()
    assert outputs(bench.out) == left


def test_invalid_remote_records_are_rebuilt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = bench.top / "shared"
    shutil.copytree(bench.store / "v2", shared)
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", shared.as_uri())
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE_MODE", "read-only")
    for what in ("other records", "longer"):
        remove_all(bench.store)
        remove_all(bench.out)
        for path in sorted(p for p in (shared / "ac").rglob("*") if p.is_file()):
            data: Any = unseal(path.stem, path.read_bytes())
            NONSENSE[what](data["outputs"])
            path.write_bytes(seal(path.stem, data))
        bench.build()
        bench.check()


def test_invalid_output_of_a_stage_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running it again would not help."""
    real = execution.stage_function

    def leaving_nonsense(kind: type[Stage]) -> Callable[[Job], None]:
        def run(job: Job) -> None:
            real(kind)(job)
            if kind is CompressStage:
                job.output("compress.json").write_text("{}")

        return run

    monkeypatch.setattr(execution, "stage_function", leaving_nonsense)
    with pytest.raises(CorruptFileError, match=r"the stored compress\.json makes no sense"):
        bench.build(force=True)


FAILING = {
    "replace": (Path, "replace", errno.ENOSPC),
    "mkdir": (Path, "mkdir", errno.EROFS),
    "quota": (Path, "replace", errno.EDQUOT),
}


@pytest.mark.parametrize("call", FAILING)
@pytest.mark.parametrize("after", [0, 3, 30])
def test_a_system_that_fails_after_some_calls_ends_with_one_error(
    bench: Bench, call: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, code = FAILING[call]
    real = getattr(owner, name)
    left = [after]

    def failing(self: Path, *args: object, **options: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        return real(self, *args, **options)

    remove_all(bench.store)
    remove_all(bench.out)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises(MobileprepError) as caught:
            bench.build()
    assert caught.value.exit_code == 9, caught.value
    for name, data in outputs(bench.out).items():
        assert data == bench.expected[name]
    bench.build()
    bench.check()


COMMAND = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"


def run_build(bench: Bench, out: Path, store: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, "build", str(bench.top / "digits" / "recipe.yaml")]
    environment = {**os.environ, "MOBILEPREP_CACHE": str(store)}
    return subprocess.run(
        [*command, "--out", str(out)], env=environment, capture_output=True, text=True, check=False
    )


def check_told(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 9, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") <= 1


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts; skipped where that is not permitted."""
    points: list[Path] = []

    def mount(name: str, *arguments: str) -> Path:
        point = tmp_path / name
        point.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", *arguments, str(point)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this process may not mount: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in reversed(points):
        subprocess.run(["umount", str(point)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [16, 128, 256])
@pytest.mark.parametrize("place", ["store", "out"])
def test_a_full_disk_ends_with_one_error(
    bench: Bench, mounted: Callable[..., Path], kilobytes: int, place: str
) -> None:
    small = mounted("small", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs")
    store = small if place == "store" else bench.top / "fresh"
    out = small if place == "out" else bench.top / "again"
    done = run_build(bench, out, store)
    if done.returncode:
        check_told(done)
    for name, data in outputs(out).items():
        assert data == bench.expected[name]
    assert run_build(bench, bench.top / "third", bench.top / "other").returncode == 0
    assert outputs(bench.top / "third") == bench.expected


def test_read_only_cache_is_used(bench: Bench, mounted: Callable[..., Path]) -> None:
    point = mounted("store", "--bind", str(bench.store))
    if subprocess.run(["mount", "-o", "remount,ro,bind", str(point)], check=False).returncode:
        pytest.skip("this process may not make a mount read-only")
    remove_all(bench.out)
    assert run_build(bench, bench.out, point).returncode == 0
    bench.check()
    bench.edit()
    done = run_build(bench, bench.out, point)
    check_told(done)
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("data", [{"b": [1, 2.5, None], "a": "\udcff é"}, [], "", 0, True])
def test_data_comes_back_under_its_key(data: object) -> None:
    assert unseal("key", seal("key", data)) == data
    assert unseal("another key", seal("key", data)) is None


def test_equal_data_has_equal_text() -> None:
    assert seal("key", {"a": 1, "b": 2}) == seal("key", {"b": 2, "a": 1})


def test_any_changed_byte_is_noticed() -> None:
    text = seal("key", {"size": 17, "name": "model"})
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        assert unseal("key", changed) is None, changed
        assert unseal("key", text[:at]) is None, changed


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"null", b'{"data": 1}', b'{"key": "key"}', b"[" * 100_000]
)
def test_other_text_with_its_digest_is_nothing(body: bytes) -> None:
    assert unseal("key", sha256_bytes(body).encode() + b"\n" + body) is None
    assert unseal("key", body) is None
