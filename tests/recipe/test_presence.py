"""Tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.presence import check_files

HEAD = "version: 1\nname: x\ntargets: {p: {}, q: {}}\n"


@pytest.fixture
def missing(load):
    """Return an error line for each missing file of a recipe."""

    def missing(text: str) -> list[str]:
        recipe = load(HEAD + text)
        with pytest.raises(CorruptFileError) as caught:
            check_files(recipe)
        assert caught.value.exit_code == 4
        return str(caught.value).splitlines()

    return missing


def test_existing_files_are_accepted(load, write):
    for name in ("g", "c.index", "t.npz"):
        write("", name)
    text = f"source: {{graph: g, checkpoint: c, sha256: {{c.index: {'a' * 64}}}}}\n"
    check_files(load(HEAD + text + "validation: {data: t.npz}\n"))


@pytest.mark.parametrize("name", ["c", "c-?????-of-00002", "c-00001-of-00002", "c-00000-of-00002"])
def test_v1_checkpoint_is_found(load, write, name):
    for file in ("g", "c-00000-of-00002", "c-00001-of-00002"):
        write("", file)
    check_files(load(f"{HEAD}source: {{graph: g, checkpoint: '{name}'}}\n"))


def test_missing_v1_checkpoint_and_saver_are_reported(missing, write):
    for file in ("g", "c-00000-of-00002", "c-00001-of-00002"):
        write("", file)
    errors = missing("source: {graph: g, checkpoint: 'c-?????-of-00003', saver: s}\n")
    assert [line.split(": ", 1)[1].split(";")[0] for line in errors] == [
        "no such checkpoint: 'c-?????-of-00003'",
        "no such file: 's'",
    ]


def test_missing_assets_are_reported(missing, write):
    write("", "g")
    (line,) = missing("source: {frozen: g, assets: words}\n")
    assert line.endswith("no such file or directory: 'words'")


def test_missing_files_are_reported_once_with_their_locations(missing):
    errors = missing(
        f"validation: {{data: d/t.npz}}\n"
        f"source: {{graph: g, checkpoint: m/c, sha256: {{m/c.index: {'a' * 64}}}}}\n"
    )
    assert errors == [
        "recipe.yaml:4:20: no such file: 'd/t.npz': its folder does not exist",
        "recipe.yaml:5:17: no such file: 'g'",
        "recipe.yaml:5:32: no such checkpoint: 'm/c': its folder does not exist",
        "recipe.yaml:5:46: no such file: 'm/c.index': its folder does not exist",
    ]


def test_closest_name_is_suggested(missing, write):
    write("", "model/graph.pb")
    assert missing("source: {frozen: model/grahp.pb}\n") == [
        "recipe.yaml:4:18: no such file: 'model/grahp.pb'; did you mean 'graph.pb'?"
    ]


def test_files_of_the_wrong_kind_are_reported(missing, write, tmp_path):
    write("", "folder/x")
    (tmp_path / "link").symlink_to("gone")
    link = "recipe.yaml:5:20: no such file: 'link': it is a link that leads nowhere"
    directory = "folder is a directory, not a file; name the file in it"
    for source, message in (
        ("frozen: folder", directory),
        ("saved_model: folder/x", "folder/x is a file, not the directory of a SavedModel"),
        ("frozen: link", "no such file: 'link': it is a link that leads nowhere"),
        ("frozen: /dev/null", "no such file: '/dev/null': it is a device or a pipe"),
    ):
        first, second = missing(f"source: {{{source}}}\nvalidation: {{data: link}}\n")
        assert first.partition(": ")[2].startswith(message)
        assert second == link


def test_errors_are_sorted_by_line_number(missing):
    errors = missing("source: {frozen: f}\n" + "\n" * 5 + "validation: {data: d}\n")
    assert [line.split(":")[1] for line in errors] == ["4", "10"]


@pytest.mark.parametrize("checkpoint", ["c", "c.index", "folder", "old"])
def test_checkpoint_as_prefix_member_directory_or_file(load, write, checkpoint):
    for name in ("g", "c.index", "c.data-00000-of-00001", "folder/checkpoint", "old"):
        write("", name)
    check_files(load(HEAD + f"source: {{graph: g, checkpoint: {checkpoint}}}\n"))


def errors_of(path: Path) -> list[str]:
    """Return the error lines of a recipe with transforms of the package."""
    with pytest.raises(CorruptFileError) as caught:
        check_files(load_recipe(path))
    return str(caught.value).splitlines()


def test_missing_files_of_transforms_are_reported(write):
    write("", "run.log")
    chain = (
        "freeze_requantization_ranges(min_max_log_file=run.lg) sparsify_gather(input_checkpoint=c)"
    )
    path = write(HEAD + f"source: {{frozen: run.log}}\ntransforms: '{chain}'\n")
    assert errors_of(path) == [
        "recipe.yaml:5:60: no such file: 'run.lg'; did you mean 'run.log'?",
        "recipe.yaml:5:101: no such checkpoint: 'c'",
    ]


def test_missing_plugin_is_reported(write):
    write("", "model.pb")
    write('{"properties": {}}', "tools/mine.json")
    text = "plugins: [tools/mine.py]\nsource: {frozen: model.pb}\ntransforms: [mine]\n"
    assert errors_of(write(HEAD + text)) == [
        "recipe.yaml:4:11: no such file: 'tools/mine.py'; did you mean 'mine.json'?"
    ]


def test_range_file_replaces_the_calibration_data(load, write, missing):
    for name in ("g", "there.npz", "there.yaml"):
        write("", name)
    source = "source: {frozen: g}\n"
    for keys in ("data: there.npz", "data: gone.npz, range_file: there.yaml"):
        check_files(load(f"{HEAD}{source}calibration: {{{keys}}}\n"))
    check_files(load(f"{HEAD}{source}calibration: {{data: there.npz, range_file: gone.yaml}}\n"))
    (error,) = missing(f"{source}calibration: {{data: gone.npz, range_file: other.yaml}}\n")
    assert "no such file: 'gone.npz'" in error
    (error,) = missing(f"{source}calibration: {{range_file: other.yaml}}\n")
    assert "no such file: 'other.yaml'" in error


@pytest.mark.parametrize(
    "text",
    [
        "source: {frozen: LONG}\n",
        "source: {frozen: LONG/g}\n",
        "source: {saved_model: LONG}\n",
        "source: {graph: g, checkpoint: LONG}\n",
        "source: {graph: g, checkpoint: c, saver: LONG}\n",
        "source: {frozen: g}\nvalidation: {data: LONG.npz}\n",
        "source: {frozen: g}\ncheck: {data: LONG.npz}\n",
        "source: {frozen: g}\ncalibration: {data: LONG.npz, range_file: LONG.json}\n",
    ],
)
def test_too_long_file_name_is_reported_with_its_location(missing, write, text):
    for name in ("g", "c.index"):
        write("", name)
    assert all(
        line.startswith(("recipe.yaml:4:", "recipe.yaml:5:"))
        for line in missing(text.replace("LONG", "x" * 300))
    )


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ("[tools/mine.py]", "recipe.yaml:4:11: no such file: 'tools/mine.py': its folder does"),
        ("[mime.py]", "recipe.yaml:4:11: no such file: 'mime.py'; did you mean 'mine.py'?"),
        ("[mine.py, .]", "recipe.yaml:4:20: no such file: '.': it is a folder"),
    ],
)
def test_missing_unused_plugin_is_reported(missing, write, plugins, message):
    write("", "model.pb")
    write("", "mine.py")
    (line,) = missing(f"plugins: {plugins}\nsource: {{frozen: model.pb}}\n")
    assert line.startswith(message)


ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*/recipe.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_recipe_is_valid_and_its_files_exist(path):
    recipe = load_recipe(path, environ={})
    check_files(recipe)
    assert recipe.name == path.parent.name


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_schema_in_the_first_line_exists(path):
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).is_file()


def test_targets_of_digits_share_their_first_transforms():
    phone, download = load_recipe(ROOT / "recipes/digits/recipe.yaml", environ={}).targets
    assert phone.quantize.mode == "weights"
    assert download.quantize.mode == "round"
    # The shared transforms come first and run once.
    shared = len(phone.transforms) - 2
    assert phone.transforms[:shared] == download.transforms[:shared]
    assert [step.name for step in phone.transforms[shared:]] == [
        "quantize_weights",
        "sort_by_execution_order",
    ]
    assert [step.name for step in download.transforms[shared:]] == [
        "round_weights",
        "obfuscate_names",
        "sort_by_execution_order",
    ]
