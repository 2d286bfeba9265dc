"""Parameters and inputs of stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import field

from mobileprep.building.plan.spec import (
    Files,
    Plan,
    Stage,
    StageFile,
    StageSpec,
    Upstream,
    file_slot,
)


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
