"""Which folders a build may not write to, because it reads there or keeps its store there."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.pipeline.overlaps import check_overlaps
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import (
    Files,
    Plan,
    Stage,
    StageFile,
    StageSpec,
    TargetPlan,
)
from mobileprep.errors import ArtifactError
from mobileprep.recipe.model import Recipe


class ReadStage(Stage, frozen=True, kw_only=True):
    """Reads a file from outside."""

    stage_name: ClassVar[str] = "read"

    source: Files


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def plan(*reads: Path, targets: tuple[str, ...] = ("t",)) -> Plan:
    """Stages that read these files, for targets of the recipe ``r``."""
    stages = tuple(
        StageSpec(f"r/{i}", ReadStage(source=Files("f", path, (StageFile("f", path),))))
        for i, path in enumerate(reads)
    )
    return Plan(stages, tuple(TargetPlan("r", name, (), (), (), {}) for name in targets))


def recipe(path: Path) -> Recipe:
    """A recipe without targets that was read from a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\n")
    return Recipe(1, "r", str(path), (), files=(path,))


def test_separate_directories_do_not_overlap(out: Path, store: Store, tmp_path: Path) -> None:
    beside = out / "r" / "other" / "model.pb"
    recipes = [recipe(tmp_path / "recipe.yaml"), Recipe(1, "r", "made", ())]
    check_overlaps(recipes, plan(beside, targets=("t", "u")), store, out)


@pytest.mark.parametrize("name", ["model.pb", "deeper/model.pb", "../t/model.pb"])
def test_a_file_that_is_read_may_not_lie_in_a_target_s_folder(
    out: Path, store: Store, name: str
) -> None:
    path = out / "r" / "t" / name
    with pytest.raises(ArtifactError, match=r"where the build reads .*model\.pb") as caught:
        check_overlaps([], plan(path, targets=("u", "t")), store, out)
    assert caught.value.where == str(out / "r" / "t")


def test_a_recipe_may_not_lie_in_a_target_s_folder(out: Path, store: Store) -> None:
    path = out / "r" / "t" / "recipe.yaml"
    with pytest.raises(ArtifactError, match=f"where the build reads {path}"):
        check_overlaps([recipe(path)], plan(), store, out)


def test_symlink_and_its_target_are_both_checked(out: Path, store: Store, tmp_path: Path) -> None:
    folder = out / "r" / "t"
    folder.mkdir(parents=True)
    (folder / "model.pb").write_text("m")
    (tmp_path / "link.pb").symlink_to(folder / "model.pb")
    with pytest.raises(ArtifactError, match="where the build reads"):
        check_overlaps([], plan(tmp_path / "link.pb"), store, out)


@pytest.mark.parametrize("place", ["out/r/t", "out/r/t/store"])
def test_the_store_may_not_lie_in_a_target_s_folder(out: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(ArtifactError, match="would lie one inside the other"):
        check_overlaps([], plan(), Store(tmp_path / place), out)


def test_a_target_s_folder_may_not_lie_in_the_store(store: Store) -> None:
    with pytest.raises(ArtifactError, match="would lie one inside the other"):
        check_overlaps([], plan(), store, store.folder)


def test_targets_may_not_share_a_folder_by_a_link(out: Path, store: Store) -> None:
    (out / "r" / "t").mkdir(parents=True)
    (out / "r" / "u").symlink_to("t")
    with pytest.raises(ArtifactError, match="the outputs of r/t and r/u would go to the same"):
        check_overlaps([], plan(targets=("t", "u")), store, out)
