"""The packages import in the order of the table in ``docs/architecture.md``."""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mobileprep

ROOT = Path(mobileprep.__file__).parent
PAGE = ROOT.parent / "docs" / "architecture.md"
FREE = {"errors", "error_codes", "plugin", "__version__"}


def packages() -> list[str]:
    """The packages of the page's table, in its order."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Layers\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


PACKAGES = packages()


@lru_cache(maxsize=1)
def modules() -> dict[str, Path]:
    """Every module of the package by its name below the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(path: Path) -> frozenset[str]:
    """What a file imports of this package anywhere, dotted below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [f"{node.module}.{a.name}" for a in node.names]
        found |= {n.removeprefix("mobileprep.") for n in names if n.startswith("mobileprep.")}
    return frozenset(found)


def needed_to_import(path: Path) -> set[str]:
    """The modules of this package that importing a file imports: not those for types alone."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{a.name}".removeprefix("mobileprep.") for a in node.names}
            names |= {node.module.removeprefix("mobileprep.")}
            found |= names & modules().keys()
    return found


def files() -> list[Path]:
    return [p for p in modules().values() if p.parent != ROOT]


def test_the_table_has_every_package() -> None:
    assert set(PACKAGES) == {p.name for p in ROOT.iterdir() if (p / "__init__.py").is_file()}


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_its_package_and_those_above(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    allowed = {*PACKAGES[: PACKAGES.index(package) + 1], *FREE}
    assert not {name for name in imported(path) if name.split(".")[0] not in allowed}


def test_no_module_needs_itself() -> None:
    needs = {name: needed_to_import(path) - {name} for name, path in modules().items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def test_packages_that_import_their_modules_are_entered_by_their_own_name() -> None:
    """Stages import what they need in threads of their own.

    Whoever imports a package's module locks that module, and then waits for the package; whoever
    imports the package locks it, and then waits for the module. Python ends that by giving one of
    them a module that is half there.
    """
    inside = {
        f"{name}."
        for name, path in modules().items()
        if name and path.name == "__init__.py"
        if any(needed.startswith(f"{name}.") for needed in needed_to_import(path))
    }
    assert "transforms.quantize_nodes." in inside
    wrong = {
        f"{name} imports {whole}"
        for name, path in modules().items()
        for package in inside
        if not f"{name}.".startswith(package)
        for whole in imported(path)
        if whole.startswith(package)
        if package + whole.removeprefix(package).split(".")[0] in modules()
    }
    assert not wrong


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_private_modules_are_imported_in_their_own_package_only(path: Path) -> None:
    package = path.relative_to(ROOT).parent.parts
    for name in imported(path):
        parts = name.split(".")
        private = next((i for i, part in enumerate(parts) if part.startswith("_")), None)
        if private is not None and not parts[private].startswith("__"):
            assert package[:private] == tuple(parts[:private]), name


@pytest.mark.parametrize("package", ["recipe", "building/plan", "building/report"])
def test_packages_that_start_fast_do_not_import_numpy(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        source = path.read_text()
        assert "import numpy" not in source
        assert "from numpy" not in source


def test_only_one_module_knows_doit() -> None:
    users = [p.name for p in files() if "doit" in {n.split(".")[0] for n in _foreign(p)}]
    assert users == ["doit_tasks.py"]


def _foreign(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
