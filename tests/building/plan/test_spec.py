"""Parameters and inputs of stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import field, structs

from mobileprep.building.plan.fingerprints import components
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.portable import distinct_sources, portable_recipe
from mobileprep.building.plan.spec import (
    Files,
    Plan,
    Stage,
    StageFile,
    StageSpec,
    Upstream,
    file_slot,
)
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.core.files import canonical
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe


class AllStage(Stage, frozen=True, kw_only=True):
    """A stage with each kind of field."""

    stage_name: ClassVar[str] = "all"
    stage_version: ClassVar[int] = 3

    model: Files
    named: Mapping[str, Files]
    options: Mapping[str, Any]
    graph: Upstream
    also: Upstream | None = None
    count: int = 2
    names: tuple[str, ...] = field(default=("a",))


def files(name: str, *members: str) -> Files:
    return Files(name, Path("/x") / name, tuple(StageFile(m, Path("/x") / m) for m in members))


STAGE = AllStage(
    model=files("ckpt", "ckpt.index", "ckpt.data"),
    named={"parameter file": files("f.txt", "f.txt")},
    options={"deep": {"a": (1, 2)}},
    graph=Upstream("r/freeze", "graph.pb"),
)


def test_parameters_exclude_upstreams_and_name_files() -> None:
    assert STAGE.parameters == {
        "model": "ckpt",
        "named": {"parameter file": "f.txt"},
        "options": {"deep": {"a": [1, 2]}},
        "also": None,
        "count": 2,
        "names": ["a"],
    }


def test_inputs_are_keyed_by_slot() -> None:
    assert list(STAGE.files) == ["model", "parameter file"]
    assert STAGE.upstream == {"graph": Upstream("r/freeze", "graph.pb")}
    spec = StageSpec("r/all", STAGE)
    assert spec.kind == "all"
    assert spec.needs == ["r/freeze"]
    assert [file.name for file in spec.input_files] == ["ckpt.index", "ckpt.data", "f.txt"]
    assert STAGE.output_files == ()


def test_files_of_a_list_are_numbered_from_one() -> None:
    assert file_slot("path", None) == "parameter path"
    assert file_slot("paths", 0) == "parameter paths 1"


def test_stage_is_found_by_its_task() -> None:
    specs = tuple(StageSpec(f"r/{name}", STAGE) for name in "ab")
    assert Plan(specs, ()).stage("r/b") is specs[1]


class SeveralStage(Stage, frozen=True, kw_only=True):
    """A stage with several upstreams."""

    stage_name: ClassVar[str] = "several"
    stage_version: ClassVar[int] = 1

    graphs: tuple[Upstream, ...]


def test_upstreams_of_a_list_are_numbered_from_one() -> None:
    first, second = Upstream("r/a", "graph.pb"), Upstream("r/b", "graph.pb")
    stage = SeveralStage(graphs=(first, second))
    assert stage.upstream == {"graphs 1": first, "graphs 2": second}
    assert stage.parameters == {}
    assert StageSpec("r/several", stage).needs == ["r/a", "r/b"]


TEXT = """
version: 1
name: r
source: {graph: '${A}graph.pbtxt', checkpoint: '${A}model.ckpt'}
outputs: [y]
transforms:
  - sparsify_gather: {input_checkpoint: '${B}model.ckpt'}
  - freeze_requantization_ranges: {min_max_log_file: '${B}log.txt'}
  - own: {tables: ['${B}a.txt', 'here/b.txt', '${A}a.txt']}
plugins: ['${A}own.py']
validation:
  data: {npy: '${B}table.npy', labels: '${B}labels.npy'}
  metrics: [{metric: {python: '${B}own.py', function: score}, at_least: 0}]
check: {data: '${B}pictures'}
targets: {phone: {}, slow: {device: '${A}slow.yaml', registration: {tensorflow: ['2.21']}}}
"""
OWN = """
from dataclasses import dataclass
from mobileprep.transforms.base import Transform, transform
@transform("own")
class Own(Transform, frozen=True):
    tables: tuple[str, ...] = ()
"""
SCHEMA = """{"type": "object", "properties": {"tables":
{"type": "array", "items": {"type": "string", "format": "path"}}}}"""
DEVICE = "title: slow\ngflops: 1\nsource: a guess\n"


def write_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "pictures").mkdir()
    for name in ("graph.pbtxt", "model.ckpt.index", "model.ckpt.data-00000-of-00001", "log.txt"):
        (folder / name).write_text(name)
    for name in ("table.npy", "labels.npy", "a.txt", "b.txt", "pictures/1.png", "pictures/2.png"):
        (folder / name).write_text(name)
    (folder / "own.py").write_text(OWN)
    (folder / "own.json").write_text(SCHEMA)
    (folder / "slow.yaml").write_text(DEVICE)
    return folder


def recipe_of(top: Path, first: Path | str, second: Path | str) -> Recipe:
    (top / "recipe.yaml").write_text(TEXT)
    settings = {"A": f"{first}/", "B": f"{second}/"}
    return load_recipe(top / "recipe.yaml", settings=settings, environ=os.environ)


def fingerprinted(plan: Plan) -> str:
    """The content of fingerprints and manifests, except for digests."""
    slots = [
        {f"{slot}:{f.name}": "" for slot, files in s.stage.files.items() for f in files.members}
        for s in plan.stages
    ]
    parts = [components(s.stage, names) for s, names in zip(plan.stages, slots, strict=True)]
    sources = [[file.name for file in target.sources] for target in plan.targets]
    return canonical([parts, sources, [target.settings for target in plan.targets]])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_files(tmp_path / "here")
    return tmp_path


def test_absolute_paths_get_names_without_directories(here: Path) -> None:
    first, second = write_files(here / "one" / "a"), write_files(here / "one" / "b")
    plan = plan_recipes([recipe_of(here, first, second)])
    text = fingerprinted(plan)
    assert str(here) not in text, text[max(0, text.index(str(here)) - 300) :][:500]
    moved = write_files(here / "another" / "x"), write_files(here / "place" / "y")
    other = plan_recipes([recipe_of(here, *moved)])
    assert fingerprinted(other) == fingerprinted(plan)
    names = {file.name: file.path for file in plan.targets[1].sources}
    assert names["*/graph.pbtxt"] == first / "graph.pbtxt"
    assert names["*2/model.ckpt.index"] == second / "model.ckpt.index"
    assert names["*/pictures/2.png"] == second / "pictures" / "2.png"
    assert names["here/b.txt"] == here / "here" / "b.txt"
    assert len(set(names.values())) == len(names)
    steps = [s.stage for s in plan.stages if isinstance(s.stage, TransformStage)]
    assert steps[2].options == {"tables": ("*/a.txt", "here/b.txt", "*2/a.txt")}


def test_relative_names_do_not_change(here: Path) -> None:
    write_files(here / "more")
    recipe = recipe_of(here, "here", "more")
    assert portable_recipe(recipe) is recipe
    names = {file.name for file in plan_recipes([recipe]).targets[0].sources}
    assert {"here/graph.pbtxt", "more/table.npy", "more/pictures/1.png"} < names


def test_part_of_a_recipe_keeps_its_names(here: Path) -> None:
    recipe = portable_recipe(recipe_of(here, here / "here", write_files(here / "b")))
    assert portable_recipe(recipe) is recipe
    part = structs.replace(recipe, targets=recipe.targets[1:])
    assert portable_recipe(part).targets == recipe.targets[1:]


def test_messages_have_the_original_path(here: Path) -> None:
    recipe = recipe_of(here, here / "here", write_files(here / "b"))
    (here / "b" / "log.txt").unlink()
    with pytest.raises(CorruptFileError, match=f"{here}/b/log.txt does not exist"):
        plan_recipes([recipe])


def test_files_with_the_same_name_are_distinguished() -> None:
    one, two = Path("a/m.index"), Path("b/m.index")
    files = [StageFile("m.index", path) for path in (one, two, one, two)]
    sources = distinct_sources(files)
    assert [(f.name, f.path) for f in sources] == [("m.index", one), ("m.index #2", two)] * 2
    assert {f.shown for f in sources} == {"m.index"}
