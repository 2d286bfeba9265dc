"""Packages import each other in the order of the table in ``docs/architecture.md``."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import pytest

from tests.sources import PACKAGE, sources

PAGE = PACKAGE.parent / "docs" / "architecture.md"
UNLAYERED = {"errors", "error_codes", "plugin", "__version__"}


class Module(NamedTuple):
    """A module of the package.

    Args:
        path: the path below the package.
        imports: the dotted names of all imports.
        required: the modules that importing this one imports, below the package.
    """

    path: str
    imports: frozenset[str]
    required: frozenset[str]

    @property
    def own_imports(self) -> set[str]:
        """The imports from this package, below the package."""
        prefix = "mobileprep."
        return {name.removeprefix(prefix) for name in self.imports if name.startswith(prefix)}


@cache
def modules() -> dict[str, Module]:
    """Every module by its dotted name below the package."""
    result = {}
    for path, _, tree in sources():
        name = path.removesuffix(".py").replace("/", ".").removesuffix("__init__").rstrip(".")
        nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        imports = frozenset(name for node in nodes for name in imported_names(node))
        # Imports for types and those inside of functions do not run with the module.
        top = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module]
        required = {name for node in top for name in (node.module, *imported_names(node))}
        own = frozenset(n.removeprefix("mobileprep.") for n in required if n)
        result[name] = Module(path, imports, own)
    return {
        name: module._replace(required=(module.required & result.keys()) - {name})
        for name, module in result.items()
    }


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "relative imports hide the layer"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def packages() -> list[str]:
    """The packages in the table of the page, in order."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Layers\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_table_lists_every_package() -> None:
    assert set(packages()) == {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}


def test_modules_import_only_from_their_package_and_earlier_ones() -> None:
    order = packages()
    wrong = []
    for module in modules().values():
        package, _, rest = module.path.partition("/")
        if rest:
            allowed = {*order[: order.index(package) + 1], *UNLAYERED}
            names = {n for n in module.own_imports if n.split(".")[0] not in allowed}
            wrong += [f"{module.path} imports {name}" for name in names]
    assert not wrong


def test_modules_do_not_import_each_other_in_cycles() -> None:
    try:
        TopologicalSorter({n: m.required for n, m in modules().items()}).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def test_modules_of_packages_that_import_them_are_not_imported_directly() -> None:
    """Prevent partially initialized modules when stages import in several threads.

    Importing a module locks it and then its package; importing the package locks it and then the
    module. Python resolves this deadlock by returning a module that is not fully initialized.
    """
    eager = {
        f"{name}."
        for name, module in modules().items()
        if name and module.path.endswith("__init__.py")
        if any(required.startswith(f"{name}.") for required in module.required)
    }
    assert "transforms.quantize_nodes." in eager
    wrong = {
        f"{name} imports {imported}"
        for name, module in modules().items()
        for package in eager
        if not f"{name}.".startswith(package)
        for imported in module.own_imports
        if imported.startswith(package)
        if package + imported.removeprefix(package).split(".")[0] in modules()
    }
    assert not wrong


def test_private_modules_are_imported_in_their_own_package_only() -> None:
    wrong = []
    for module in modules().values():
        package = module.path.split("/")[:-1]
        for name in module.own_imports if package else ():
            parts = name.split(".")
            private = next((i for i, part in enumerate(parts) if part.startswith("_")), None)
            if private is None or parts[private].startswith("__"):
                continue
            if package[:private] != parts[:private]:
                wrong.append(f"{module.path} imports {name}")
    assert not wrong


@pytest.mark.parametrize("package", ["recipe", "building/plan", "building/report"])
def test_packages_that_start_fast_do_not_import_numpy(package: str) -> None:
    paths = [module for module in modules().values() if module.path.startswith(f"{package}/")]
    assert paths
    for module in paths:
        assert "numpy" not in {name.split(".")[0] for name in module.imports}, module.path


def test_only_one_module_imports_doit() -> None:
    users = [
        module.path
        for module in modules().values()
        if "doit" in {name.split(".")[0] for name in module.imports}
    ]
    assert [path.split("/")[-1] for path in users] == ["doit_tasks.py"]


def test_tests_patch_no_private_names_of_other_packages() -> None:
    wrong = []
    for path in (PACKAGE.parent / "tests").rglob("*.py"):
        package = path.relative_to(PACKAGE.parent / "tests").parts[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners = {
            alias.asname or alias.name: f"{node.module}.{alias.name}".split(".")[1]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mobileprep")
            for alias in node.names
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="setattr"),
                    args=[ast.Name(id=owner), ast.Constant(value=str(name)), *_],
                ) if name.startswith("_") and not name.startswith("__"):
                    if owners.get(owner, package) != package:
                        wrong.append(f"{path.name}:{node.lineno}: {owner}.{name}")
    assert wrong == []
