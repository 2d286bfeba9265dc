"""Loading transforms from users' files: which classes a file offers, whatever runs beside it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mobileprep.errors import UsageError
from mobileprep.transforms.base import transform_class
from mobileprep.transforms.chains.chain import load_plugin

HEAD = """
from mobileprep.plugin import Context, Graph, Result, Transform, transform
"""
BODY = """
@transform("{name}")
class {kind}(Transform, frozen=True):
    def apply(self, graph: Graph, context: Context) -> Result:
        return Result(graph, matched={matched})
"""


def _write(path: Path, *kinds: tuple[str, str, int], head: str = "") -> Path:
    bodies = (BODY.format(name=n, kind=k, matched=m) for n, k, m in kinds)
    path.write_text(HEAD + head + "".join(bodies), encoding="utf-8")
    return path


def test_builtin_imported_by_a_plugin_is_not_part_of_it(
    tmp_path: Path,
) -> None:
    # A process of its own: here the built-in transform may have been imported long ago.
    _write(tmp_path / "slow.py", ("slow", "Slow", 0), head="import turns; turns.loading()\n")
    (tmp_path / "turns.py").write_text(
        textwrap.dedent("""
            from threading import Event
            is_loading, may_end = Event(), Event()
            def loading():
                is_loading.set()
                assert may_end.wait(60)
        """),
        encoding="utf-8",
    )
    script = textwrap.dedent("""
        import pathlib, sys, threading
        sys.path.insert(0, sys.argv[1])
        import turns
        from mobileprep.transforms.base import transform_class
        from mobileprep.transforms.chains.chain import load_plugin
        found = []
        load = lambda: found.append(load_plugin("slow", pathlib.Path(sys.argv[1], "slow.py")))
        thread = threading.Thread(target=load)
        thread.start()
        assert turns.is_loading.wait(60)
        assert "mobileprep.transforms.node_edits" not in sys.modules
        try:
            print(transform_class("remove_device").__name__)
        finally:
            turns.may_end.set()
            thread.join()
        print(*(kind.__name__ for kind in found))
    """)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["RemoveDevice", "Slow"], "")


def test_a_plugin_that_imports_a_built_in_transform_does_not_offer_it(tmp_path: Path) -> None:
    head = "from mobileprep.transforms.node_edits import RemoveDevice\n"
    path = _write(tmp_path / "mine.py", ("mine", "Mine", 0), head=head)
    assert load_plugin("mine", path).transform_name == "mine"
    with pytest.raises(UsageError, match=r"no transform 'remove_device'; it holds mine$"):
        load_plugin("remove_device", path)
    assert transform_class("remove_device").transform_name == "remove_device"


def test_a_plugin_may_be_named_as_a_built_in_transform(tmp_path: Path) -> None:
    path = _write(tmp_path / "remove_device.py", ("remove_device", "Mine", 0))
    assert load_plugin("remove_device", path).__name__ == "Mine"
    assert transform_class("remove_device").__name__ == "RemoveDevice"


def test_a_file_may_hold_several_transforms(tmp_path: Path) -> None:
    path = _write(tmp_path / "both.py", ("one", "One", 0), ("two", "Two", 0))
    assert [load_plugin(name, path).__name__ for name in ("one", "two")] == ["One", "Two"]
    with pytest.raises(UsageError, match=r"it holds one, two$"):
        load_plugin("three", path)


def test_undecorated_subclass_is_not_a_transform(
    tmp_path: Path,
) -> None:
    path = _write(tmp_path / "base.py", ("mine", "Mine", 0))
    path.write_text(path.read_text() + "\n\nclass Heir(Mine):\n    pass\n", encoding="utf-8")
    assert load_plugin("mine", path).__name__ == "Mine"


def test_two_plugins_share_a_helper_module_and_offer_its_transform_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    _write(tmp_path / "shared_by_plugins.py", ("shared", "Shared", 0))
    head = "from shared_by_plugins import Shared\n"
    for name in ("first", "second"):
        path = _write(tmp_path / f"{name}.py", (name, name.title(), 0), head=head)
        assert load_plugin("shared", path).__name__ == "Shared"
        assert load_plugin(name, path).__name__ == name.title()
    sys.modules.pop("shared_by_plugins")


def test_edited_file_is_loaded_again(tmp_path: Path) -> None:
    path = _write(tmp_path / "mine.py", ("mine", "Before", 0))
    assert load_plugin("mine", path).__name__ == "Before"
    _write(path, ("mine", "AfterTheEdit", 0))
    assert load_plugin("mine", path).__name__ == "AfterTheEdit"
