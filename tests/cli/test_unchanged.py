"""Builds with nothing to do are told without reading recipes, and never when there is something."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building import lock
from mobileprep.building.pipeline import file_index
from mobileprep.cli._shared import folders
from tests.building.pipeline.small_plans import SPOILS, spoil_one
from tests.cli.conftest import Run, Told

PHONE = Path("out/digits/phone")
RECIPE = Path("digits/recipe.yaml")
MODEL = Path("digits/model")
PROFILE = "title: our gate\ngflops: 2\nsource: measured by us\nbasis: MobileNet V1 on it\n"
BUILD = ("build", "digits", "--out", "out")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Gets an entry each time that recipes are read."""
    found: list[object] = []
    whole = folders.load_recipes

    def counted(args: object) -> object:
        found.append(args)
        return whole(args)  # type: ignore[arg-type]

    monkeypatch.setattr(folders, "load_recipes", counted)
    return found


@pytest.fixture
def noted(built: Path, run: Run, read: list[object]) -> Path:
    """A folder in which a build has had nothing to do."""
    assert run(*BUILD).code == 0
    assert read
    read.clear()
    return built


def stages_told(told: Told) -> list[str]:
    """What a build has told, but its time."""
    return [line.partition(" ran, ")[0] for line in told.err.splitlines()]


def flip_quietly(path: Path) -> None:
    """Change a byte, and leave size and mtime as they were."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_comment(path: Path) -> None:
    path.write_text(path.read_text() + "# another line\n")


def move_and_link() -> None:
    PHONE.rename("elsewhere")
    PHONE.symlink_to(Path("elsewhere").absolute())


def pin_another() -> None:
    Path("digits/mobileprep.lock").write_text(
        'version: 1\nrecipes:\n  recipe.yaml: {mobileprep: "0"}\n'
    )


def first_record() -> Path:
    return min(Path("store/v2/ac").rglob("*.json"))


EDITS: dict[str, Callable[[], object]] = {
    "a comment in the recipe": lambda: add_comment(RECIPE),
    "a word of the recipe, times as before": lambda: flip_quietly(RECIPE),
    "the model, times as before": lambda: flip_quietly(MODEL / "graph.pbtxt"),
    "the data, times as before": lambda: flip_quietly(Path("digits/data/test.npz")),
    "a file of the checkpoint more": lambda: shutil.copy(
        next(MODEL.glob("*.data-*")), MODEL / "model.ckpt-1000.data-00002-of-00003"
    ),
    "a checkpoint gone": lambda: next(MODEL.glob("*.index")).unlink(),
    "an output gone": lambda: (PHONE / "digits.pb").unlink(),
    "an output edited, times as before": lambda: flip_quietly(PHONE / "digits.pb"),
    "an output that is a link": lambda: SPOILS["a link"](PHONE / "digits.pb"),
    "the page gone": lambda: Path("out/digits/report.html").unlink(),
    "the page edited, times as before": lambda: flip_quietly(Path("out/digits/report.html")),
    "a report edited": lambda: add_comment(PHONE / "report.json"),
    "a manifest gone": lambda: (PHONE / "manifest.json").unlink(),
    "what a killed build left": lambda: (PHONE / ".digits.pb.0123456789abcdef").write_text(""),
    "a target's folder gone": lambda: shutil.rmtree(PHONE),
    "a target's folder elsewhere": move_and_link,
    "a record gone": lambda: first_record().unlink(),
    "a record damaged": lambda: flip_quietly(first_record()),
    "no store": lambda: shutil.rmtree("store/v2/ac"),
    "a lock that pins another version": pin_another,
    "the note damaged": lambda: flip_quietly(next(Path("store/v2/unchanged").iterdir())),
}


def test_a_second_build_with_nothing_to_do_reads_no_recipe(
    noted: Path, run: Run, read: list[object]
) -> None:
    whole = run(*BUILD, "--keep-going", "--explain")
    read.clear()
    for flags in ((), ("--checksum",), ("-j", "1"), ("--no-wait",)):
        quick = run(*BUILD, *flags)
        assert (quick.code, quick.out) == (0, "")
        assert stages_told(quick) == stages_told(whole)[1:]
    assert not read


@pytest.mark.parametrize("name", EDITS)
def test_after_an_edit_all_is_looked_at(
    name: str, noted: Path, run: Run, read: list[object]
) -> None:
    EDITS[name]()
    again = run(*BUILD)
    assert read, name
    left = run(*BUILD, "--dry-run", "--exit-code")
    assert (left.code == 0) == (again.code == 0), name


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--checksum",)])
def test_an_edit_at_any_place_is_never_passed_over(
    flags: tuple[str, ...], noted: Path, run: Run, read: list[object]
) -> None:
    draw = random.Random(11)
    kept = Path("kept")
    for name in ("digits", "out", "store"):
        shutil.copytree(name, kept / name, symlinks=True)
    for _ in range(25):
        top = draw.choice(["digits", "out", "store/v2/ac", "store/v2/unchanged"])
        number, how = draw.randrange(100), draw.choice(sorted(SPOILS))
        spoil_one(Path(top), number, how)
        due = run(*BUILD, "--dry-run", "--exit-code", *flags)
        read.clear()
        told = run(*BUILD, *flags)
        assert read or due.code == 0, (top, number, how)
        assert told.code == 0 or due.code, (top, number, how)
        for name in ("digits", "out", "store"):
            shutil.rmtree(name)
            shutil.copytree(kept / name, name, symlinks=True)


def test_the_environment_and_the_flags_count(
    noted: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = RECIPE.read_text().replace("num_steps: 256", "num_steps: ${STEPS:-256}")
    RECIPE.write_text(text)
    for _ in range(2):
        assert "0 of 24 stages ran" in run(*BUILD).err
    read.clear()
    assert "0 of 24 stages ran" in run(*BUILD).err
    assert not read
    monkeypatch.setenv("STEPS", "128")
    assert "8 of 24 stages ran" in run(*BUILD).err
    assert "stages ran" in run(*BUILD, "--set", "STEPS=64").err
    assert "0 of 16 stages ran" in run(*BUILD, "--target", "phone").err


@pytest.mark.parametrize("name", ["data/test.npz", "model/graph.pbtxt", "recipe.yaml"])
def test_what_is_edited_while_a_build_looks_is_not_noted(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, before = built.parent / name, lock.files_read

    def edited(*given: object) -> object:
        """The files that are read, one of them replaced since it was judged."""
        data = path.read_bytes()
        path.with_name("new").write_bytes(data.replace(b"256", b"064") if data[:1] == b"#" else b"")
        path.with_name("new").replace(path)
        return before(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(lock, "files_read", edited)
        run(*BUILD)
    for flags in ((), ("--checksum",)):
        told = run(*BUILD, *flags)
        assert told.code or "0 of " not in told.err


def test_a_failing_recipe_fails_as_before(noted: Path, run: Run) -> None:
    before = RECIPE.read_text()
    RECIPE.write_text(before + "no such key: 1\n")
    assert run(*BUILD).code == 3
    RECIPE.write_text(before)
    assert run(*BUILD).code == 0


def test_another_version_of_the_package_looks_at_all(
    noted: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mobileprep.building.unchanged.__version__", "another")
    run(*BUILD)
    assert read


def test_changed_code_of_the_package_looks_at_all(
    noted: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mobileprep.building.pipeline.unchanged.code_stamp", lambda _path: "another"
    )
    run(*BUILD)
    assert read


def test_an_installation_that_changes_looks_at_all(
    noted: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(packages)
    for _ in range(2):
        read.clear()
        run(*BUILD)
    assert not read
    (packages / "re2-1.0.dist-info").mkdir()
    run(*BUILD)
    assert read


def test_large_files_are_not_hashed_again(
    noted: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    whole = file_index.FileIndex._hash_now

    def counted(index: file_index.FileIndex, path: Path) -> str:
        hashed.append(path)
        return whole(index, path)

    monkeypatch.setattr(file_index.FileIndex, "_hash_now", counted)
    run(*BUILD, "--checksum")
    published = {path.absolute() for path in Path("out").rglob("*") if path.is_file()}
    assert published <= {path.absolute() for path in hashed}
    assert not read


def test_a_large_page_is_known_too(
    built: Path, run: Run, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "MARGIN_NS", 0)
    monkeypatch.setattr(lock, "_LARGE", 1)
    for _ in range(2):
        read.clear()
        run(*BUILD)
    assert not read


def test_records_that_are_used_are_kept(noted: Path, run: Run, read: list[object]) -> None:
    records = list(Path("store/v2/ac").rglob("*.json"))
    for record in records:
        os.utime(record, (1, 1))
    run(*BUILD)
    assert not read
    assert all(record.stat().st_mtime > 1 for record in records)


def test_the_profile_of_a_device_counts(noted: Path, run: Run, read: list[object]) -> None:
    profile = RECIPE.with_name("ours.yaml")
    profile.write_text(PROFILE)
    quantized = "    quantize: weights\n"
    text = RECIPE.read_text()
    RECIPE.write_text(text.replace(quantized, f"    device: ours.yaml\n{quantized}"))
    for _ in range(2):
        assert run(*BUILD).code == 0
    read.clear()
    run(*BUILD)
    assert not read
    profile.write_text(PROFILE.replace("gflops: 2", "gflops: 4"))
    again = run(*BUILD)
    assert read
    assert "out/digits/phone: written" in again.err


def test_a_recipe_counts_of_which_all_is_overridden(
    built: Path, run: Run, read: list[object]
) -> None:
    base = RECIPE.with_name("base.yaml")
    base.write_text("name: base\n")
    RECIPE.write_text(f"extends: base.yaml\n{RECIPE.read_text()}")
    for _ in range(2):
        assert run(*BUILD).code == 0
    read.clear()
    run(*BUILD)
    assert not read
    base.write_text("name: base\nbogus: 1\n")
    assert run(*BUILD).code == 3
    assert read


def test_every_file_that_a_build_opens_is_in_its_note(
    built: Path, run: Run, tmp_path: Path
) -> None:
    """So that what a new key of recipes makes a build read is not forgotten."""
    RECIPE.with_name("ours.yaml").write_text(PROFILE)
    RECIPE.with_name("base.yaml").write_text(RECIPE.read_text())
    RECIPE.write_text("extends: base.yaml\ntargets: {phone: {device: ours.yaml}}\n")
    assert run("lock", "digits").code == 0
    assert run(*BUILD).code == 0
    opened: set[Path] = set()
    listening = [True]

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event == "open" and isinstance(arguments[0], str | bytes):
            opened.add(Path(os.fsdecode(arguments[0])).absolute())

    sys.addaudithook(hear)  # which stays, and hears no more at the end
    shutil.rmtree("store/v2/seen")
    assert "0 of 25 stages ran" in run(*BUILD).err
    listening.clear()
    (note,) = Path("store/v2/unchanged").iterdir()
    noted = json.loads(note.read_bytes().partition(b"\n")[2])["data"]
    known = {Path(p) for p in (*noted["inputs"], *noted["published"], *noted["records"])}
    store = tmp_path / "store"
    own = {path for path in opened if tmp_path in path.parents and path.name[0] != "."}
    pinned = RECIPE.absolute().with_name("mobileprep.lock")
    read = {path for path in own if store not in path.parents or path.parent.parent == store / "ac"}
    assert {RECIPE.absolute(), pinned, RECIPE.absolute().with_name("ours.yaml")} <= read
    assert (read | {pinned}) <= known
