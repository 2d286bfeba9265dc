"""Input files of a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.sources import (
    checkpoint_files,
    data_files,
    folder_files,
    graph_files,
    meta_graph_files,
    single_file,
    source_checkpoint,
)
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.settings import Data, InputFile, Source

PLACE = "recipe.yaml:3:1"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with checkpoints of several steps and other files."""
    folder = tmp_path / "model"
    (folder / "assets").mkdir(parents=True)
    for name in (*ALL, "assets/words.txt"):
        (folder / name).write_text(name)
    return folder


def input_file(model: Path, name: str) -> InputFile:
    return InputFile(f"model/{name}" if name else "model", model / name if name else model, PLACE)


FIRST = [
    *("m.ckpt-1.data-00000-of-00002", "m.ckpt-1.data-00001-of-00002"),
    *("m.ckpt-1.index", "m.ckpt-1.meta"),
]
TENTH = ["m.ckpt-10.data-00000-of-00001", "m.ckpt-10.index"]
SHARDED = ["sharded-00000-of-00002", "sharded-00001-of-00002"]
ALL = sorted([*FIRST, *TENTH, *SHARDED, "checkpoint", "graph.pb", "m.ckpt-1.index.bak", "old.ckpt"])


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("m.ckpt-1", FIRST),
        ("m.ckpt-1.index", FIRST),
        ("m.ckpt-1.meta", FIRST),
        ("m.ckpt-1.data-00001-of-00002", FIRST),
        ("m.ckpt-10", TENTH),
        ("old.ckpt", ["old.ckpt"]),
        ("sharded", SHARDED),
        ("sharded-?????-of-00002", SHARDED),
        # The state file names the newest checkpoint.
        ("checkpoint", ALL),
        ("", sorted([*ALL, "assets/words.txt"])),
    ],
)
def test_checkpoint_is_found_by_any_of_its_names(
    model: Path, name: str, members: list[str]
) -> None:
    paths = checkpoint_files(input_file(model, name)).members
    assert [f.name for f in paths] == [f"model/{m}" for m in members]
    assert [f.path for f in paths] == [model / m for m in members]


def test_names_are_relative_as_in_the_recipe(model: Path) -> None:
    here = checkpoint_files(InputFile("m.ckpt-1", model / "m.ckpt-1")).members
    assert [f.name for f in here] == FIRST
    folder = folder_files(InputFile("../model/", model)).members
    assert folder[0].name == "../model/assets/words.txt"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("m.ckpt-12", "did you mean 'm.ckpt-1'?"),
        ("n.ckpt-10.index", "did you mean 'm.ckpt-10'?"),
        ("zzz", "no such file: "),
    ],
)
def test_missing_checkpoint_suggests_the_nearest_name(model: Path, name: str, hint: str) -> None:
    with pytest.raises(CorruptFileError, match=f"model/{name} does not exist") as caught:
        checkpoint_files(input_file(model, name))
    assert caught.value.hint.startswith(hint)
    assert caught.value.where == PLACE


def test_single_file(model: Path) -> None:
    (path,) = single_file(input_file(model, "graph.pb")).members
    assert (path.name, path.path) == ("model/graph.pb", model / "graph.pb")


def test_missing_file_suggests_the_nearest_name(model: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"model/grahp.pb does not exist") as caught:
        single_file(input_file(model, "grahp.pb"))
    assert (caught.value.hint, caught.value.where) == ("did you mean 'graph.pb'?", PLACE)


@pytest.mark.parametrize("name", ["x" * 300, "no/such/folder/x", "graph.pb/below", "\x00"])
def test_impossible_names_do_not_exist(model: Path, name: str) -> None:
    for find in (single_file, checkpoint_files, folder_files, meta_graph_files):
        with pytest.raises(CorruptFileError, match="does not exist"):
            find(input_file(model, name))


def test_directory_is_not_a_file(model: Path) -> None:
    with pytest.raises(CorruptFileError, match="model/assets is a directory, not a file") as caught:
        single_file(input_file(model, "assets"))
    assert caught.value.hint == "name the file in it"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the device does not exist")
def test_device_is_not_a_file() -> None:
    with pytest.raises(CorruptFileError, match="is not a regular file"):
        single_file(InputFile("/dev/zero", Path("/dev/zero"), PLACE))


def test_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with pytest.raises(CorruptFileError, match="empty is a folder without files"):
        folder_files(InputFile("empty", tmp_path / "empty", PLACE))


def test_file_is_not_a_directory(model: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"model/graph.pb is a file") as caught:
        folder_files(input_file(model, "graph.pb"))
    assert "did you mean" not in caught.value.hint


def test_broken_symlink_is_reported(model: Path) -> None:
    (model / "link").symlink_to("gone")
    for find in (single_file, checkpoint_files, folder_files, meta_graph_files):
        with pytest.raises(CorruptFileError, match="model/link is a link that leads nowhere") as e:
            find(input_file(model, "link"))
        assert "did you mean" not in e.value.hint


def test_meta_graph_includes_the_assets_next_to_it(model: Path) -> None:
    files = meta_graph_files(input_file(model, "m.ckpt-1.meta")).members
    assert [f.name for f in files] == ["model/m.ckpt-1.meta", "model/assets/words.txt"]


def write_empty(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_directories_of_a_saved_model_may_be_symlinks(tmp_path: Path) -> None:
    write_empty(tmp_path, "m/saved_model.pb", "m/assets/a", "weights/variables.index", "more/x")
    (tmp_path / "m" / "variables").symlink_to(tmp_path / "weights")
    (tmp_path / "m" / "more").symlink_to(tmp_path / "more")
    files = graph_files(Source("saved_model", InputFile("m", tmp_path / "m"))).members
    assert [f.name for f in files] == [
        "m/assets/a",
        "m/saved_model.pb",
        "m/variables/variables.index",
    ]


def test_data_includes_its_directory_and_other_files(tmp_path: Path) -> None:
    write_empty(tmp_path, "p/b/1.png", "p/a.png", "labels.csv", "more/x")
    names = ("p", "labels.csv", "more")
    folder, labels, more = (InputFile(name, tmp_path / name) for name in names)
    files = data_files(Data(folder, "pictures", labels=labels, files=(more,)))
    assert (files.name, files.root) == ("p", tmp_path / "p")
    assert [f.name for f in files.members] == ["p/a.png", "p/b/1.png", "labels.csv", "more/x"]
    gone = InputFile("gone.csv", tmp_path / "gone.csv", "recipe.yaml:3:4")
    with pytest.raises(CorruptFileError, match=r"gone\.csv does not exist") as caught:
        data_files(Data(folder, labels=gone))
    assert caught.value.where == "recipe.yaml:3:4"


def test_checkpoint_of_a_meta_graph_is_optional_unless_named(tmp_path: Path) -> None:
    (tmp_path / "m.meta").touch()
    file = InputFile("m.meta", tmp_path / "m.meta", "r.yaml:3:22")
    implied = InputFile("m", tmp_path / "m", file.place)
    assert source_checkpoint(Source("meta_graph", file)) is None
    assert source_checkpoint(Source("meta_graph", file, implied)) is None
    explicit = InputFile("m", tmp_path / "m", "r.yaml:3:42")
    assert source_checkpoint(Source("meta_graph", file, explicit)) is not None
    (tmp_path / "m.index").touch()
    checkpoint = source_checkpoint(Source("meta_graph", file, implied))
    assert checkpoint is not None
    assert [member.name for member in checkpoint.members] == ["m.index", "m.meta"]
