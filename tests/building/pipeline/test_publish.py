"""What brings a target's folder up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.publish import Changes, publish, unpublish
from mobileprep.building.pipeline.runner import Built
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import Records, TargetPlan, Upstream
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts, PackageRecord
from mobileprep.core.files import sha256_bytes


@pytest.fixture
def built_text(tmp_path: Path) -> tuple[Path, Callable[[], Changes]]:
    """The folder of a target with one file, and what publishes it again."""
    up = Upstream("r/a", "files/text")
    target = TargetPlan("r", "t", ("r/a",), (), (), {})
    freeze = FreezeRecord(0, 0, 0, 0, {}, 0, (), (), {})
    package = PackageRecord(ModelFacts("text", 0, 0, 0, 0), {}, ())
    records = Records([freeze, package, CompressRecord(0, "none")])
    output = Output(sha256_bytes(b"abc"), 3, text="abc")
    built = Built(target, {"text": output}, {"text": up}, records, {})

    def again() -> Changes:
        return publish(built, {}, Store(tmp_path / "store"), tmp_path / "out")

    again()
    return tmp_path / "out" / "r" / "t", again


def test_changes_are_true_where_there_is_something_to_do() -> None:
    assert not Changes(Path("a"), (), (), b"")
    assert Changes(Path("a"), ("new",), (), b"")
    assert Changes(Path("a"), (), ("old",), b"")


def test_partial_files_of_killed_builds_are_removed(
    built_text: tuple[Path, Callable[[], Changes]],
) -> None:
    folder, publish_again = built_text
    left = folder / ".text.0123456789abcdef"
    for path in (left, folder / ".notes.0123456789abcdef", folder / ".text.swp"):
        path.write_text("half")
    assert publish_again().remove == (left.name,)
    assert sorted(p.name for p in folder.iterdir()) == [
        ".notes.0123456789abcdef",
        ".text.swp",
        "manifest.json",
        "text",
    ]


def test_folders_within_folders_go_with_their_last_file(
    built_text: tuple[Path, Callable[[], Changes]],
) -> None:
    folder, publish_again = built_text
    names = ("java/org/app/A.java", "java/own/B.java", "text")

    def leave() -> None:
        for name in names[:2]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        files = {name: {"sha256": sha256_bytes(b"abc")} for name in names}
        inputs = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**inputs, "files": files}))

    leave()
    (folder / "java/own/mine").write_text("")
    publish_again()
    left = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))
    assert left == ["java", "java/own", "java/own/mine", "manifest.json", "text"]
    (folder / "java/own/mine").unlink()
    leave()
    unpublish(folder)
    assert not folder.exists()
