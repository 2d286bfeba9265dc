"""The files that a recipe's names stand for."""

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
    """A folder with checkpoints of several steps and other files."""
    folder = tmp_path / "model"
    (folder / "assets").mkdir(parents=True)
    for name in (
        "checkpoint",
        "m.ckpt-1.index",
        "m.ckpt-1.meta",
        "m.ckpt-1.data-00000-of-00002",
        "m.ckpt-1.data-00001-of-00002",
        "m.ckpt-10.index",
        "m.ckpt-10.data-00000-of-00001",
        "m.ckpt-1.index.bak",
        "old.ckpt",
        "sharded-00000-of-00002",
        "sharded-00001-of-00002",
        "graph.pb",
        "assets/words.txt",
    ):
        (folder / name).write_text(name)
    return folder


def named(model: Path, name: str) -> InputFile:
    return InputFile(f"model/{name}" if name else "model", model / name if name else model, PLACE)


V2 = [
    "m.ckpt-1.data-00000-of-00002",
    "m.ckpt-1.data-00001-of-00002",
    "m.ckpt-1.index",
    "m.ckpt-1.meta",
]
ALL = [
    "checkpoint",
    "graph.pb",
    "m.ckpt-1.data-00000-of-00002",
    "m.ckpt-1.data-00001-of-00002",
    "m.ckpt-1.index",
    "m.ckpt-1.index.bak",
    "m.ckpt-1.meta",
    "m.ckpt-10.data-00000-of-00001",
    "m.ckpt-10.index",
    "old.ckpt",
    "sharded-00000-of-00002",
    "sharded-00001-of-00002",
]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("m.ckpt-1", V2),
        ("m.ckpt-1.index", V2),
        ("m.ckpt-1.meta", V2),
        ("m.ckpt-1.data-00001-of-00002", V2),
        ("m.ckpt-10", ["m.ckpt-10.data-00000-of-00001", "m.ckpt-10.index"]),
        ("old.ckpt", ["old.ckpt"]),
        ("sharded", ["sharded-00000-of-00002", "sharded-00001-of-00002"]),
        ("sharded-?????-of-00002", ["sharded-00000-of-00002", "sharded-00001-of-00002"]),
        # Which checkpoint is newest is written in the state file.
        ("checkpoint", ALL),
        ("", sorted([*ALL, "assets/words.txt"])),
    ],
)
def test_a_checkpoint_is_found_by_any_name_of_its(
    model: Path, name: str, members: list[str]
) -> None:
    found = checkpoint_files(named(model, name)).members
    assert [f.name for f in found] == [f"model/{m}" for m in members]
    assert [f.path for f in found] == [model / m for m in members]


def test_names_are_those_of_the_recipe_not_of_the_machine(model: Path) -> None:
    here = checkpoint_files(InputFile("m.ckpt-1", model / "m.ckpt-1")).members
    assert [f.name for f in here] == V2
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
def test_a_missing_checkpoint_gets_the_nearest_name(model: Path, name: str, hint: str) -> None:
    with pytest.raises(CorruptFileError, match=f"model/{name} does not exist") as caught:
        checkpoint_files(named(model, name))
    assert caught.value.hint.startswith(hint)
    assert caught.value.where == PLACE


def test_a_single_file_is_itself(model: Path) -> None:
    (found,) = single_file(named(model, "graph.pb")).members
    assert (found.name, found.path) == ("model/graph.pb", model / "graph.pb")


def test_a_missing_file_gets_the_nearest_name(model: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"model/grahp.pb does not exist") as caught:
        single_file(named(model, "grahp.pb"))
    assert (caught.value.hint, caught.value.where) == ("did you mean 'graph.pb'?", PLACE)


@pytest.mark.parametrize("name", ["x" * 300, "no/such/folder/x", "graph.pb/below", "\x00"])
def test_impossible_names_are_missing_too(model: Path, name: str) -> None:
    for find in (single_file, checkpoint_files, folder_files, meta_graph_files):
        with pytest.raises(CorruptFileError, match="does not exist"):
            find(named(model, name))


def test_a_folder_is_no_file(model: Path) -> None:
    with pytest.raises(CorruptFileError, match="model/assets is a directory, not a file") as caught:
        single_file(named(model, "assets"))
    assert caught.value.hint == "name the file in it"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the device does not exist")
def test_a_device_is_no_file() -> None:
    with pytest.raises(CorruptFileError, match="is not a regular file"):
        single_file(InputFile("/dev/zero", Path("/dev/zero"), PLACE))


def test_a_folder_without_files_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with pytest.raises(CorruptFileError, match="empty is a folder without files"):
        folder_files(InputFile("empty", tmp_path / "empty", PLACE))


def test_a_file_is_no_folder(model: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"model/graph.pb is a file") as caught:
        folder_files(named(model, "graph.pb"))
    assert "did you mean" not in caught.value.hint


def test_a_link_that_leads_nowhere_is_told_as_one(model: Path) -> None:
    (model / "link").symlink_to("gone")
    for find in (single_file, checkpoint_files, folder_files, meta_graph_files):
        with pytest.raises(CorruptFileError, match="model/link is a link that leads nowhere") as e:
            find(named(model, "link"))
        assert "did you mean" not in e.value.hint


def test_a_meta_graph_comes_with_the_assets_beside_it(model: Path) -> None:
    found = meta_graph_files(named(model, "m.ckpt-1.meta")).members
    assert [f.name for f in found] == ["model/m.ckpt-1.meta", "model/assets/words.txt"]


def test_variables_and_assets_of_a_saved_model_may_be_links(tmp_path: Path) -> None:
    for name in ("m/saved_model.pb", "m/assets/a", "weights/variables.index", "more/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "m" / "variables").symlink_to(tmp_path / "weights")
    (tmp_path / "m" / "more").symlink_to(tmp_path / "more")
    found = graph_files(Source("saved_model", InputFile("m", tmp_path / "m"))).members
    assert [f.name for f in found] == [
        "m/assets/a",
        "m/saved_model.pb",
        "m/variables/variables.index",
    ]


def test_data_is_all_files_of_its_folder_and_those_beside_it(tmp_path: Path) -> None:
    for name in ("p/b/1.png", "p/a.png", "labels.csv", "more/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    names = ("p", "labels.csv", "more")
    folder, labels, more = (InputFile(name, tmp_path / name) for name in names)
    found = data_files(Data(folder, "pictures", labels=labels, files=(more,)))
    assert (found.name, found.root) == ("p", tmp_path / "p")
    assert [f.name for f in found.members] == ["p/a.png", "p/b/1.png", "labels.csv", "more/x"]
    gone = InputFile("gone.csv", tmp_path / "gone.csv", "recipe.yaml:3:4")
    with pytest.raises(CorruptFileError, match=r"gone\.csv does not exist") as caught:
        data_files(Data(folder, labels=gone))
    assert caught.value.where == "recipe.yaml:3:4"


def test_a_meta_graph_may_lie_alone_unless_its_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.meta").touch()
    file = InputFile("m.meta", tmp_path / "m.meta", "r.yaml:3:22")
    beside = InputFile("m", tmp_path / "m", file.place)
    assert source_checkpoint(Source("meta_graph", file)) is None
    assert source_checkpoint(Source("meta_graph", file, beside)) is None
    told = InputFile("m", tmp_path / "m", "r.yaml:3:42")
    assert source_checkpoint(Source("meta_graph", file, told)) is not None
    (tmp_path / "m.index").touch()
    found = source_checkpoint(Source("meta_graph", file, beside))
    assert found is not None
    assert [member.name for member in found.members] == ["m.index", "m.meta"]
