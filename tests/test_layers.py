"""The layers: who may import whom, at module level and inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mobileprep

ROOT = Path(mobileprep.__file__).parent
FREE = {"errors", "registry", "fsio", "destinations", "__init__"}
ALL = {p.name for p in ROOT.iterdir() if p.is_dir()}
ALLOWED: dict[str, set[str]] = {
    "formats": set(),
    "recipe": set(),
    "report": set(),
    "ir": {"formats"},
    "ops": {"ir", "formats"},
    "quant": {"ops", "ir", "formats"},
    "freeze": {"ops", "ir", "formats"},
    "transforms": {"freeze", "quant", "ops", "ir", "formats"},
    "packaging": {"ops", "ir", "formats"},
    "plan": {"recipe"},
    "stages": {"plan.spec", "packaging", "transforms", "freeze", "quant", "ops", "ir", "formats"},
    "pipeline": {"recipe", "plan", "stages"},
    "cli": ALL,
}


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports anywhere, dotted below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [f"{node.module}.{a.name}" for a in node.names]
        found |= {n.removeprefix("mobileprep.") for n in names if n.startswith("mobileprep.")}
    return found


def files() -> list[Path]:
    return [p for p in sorted(ROOT.rglob("*.py")) if p.parent != ROOT]


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    allowed = ALLOWED[layer] | {layer} | FREE | {"__version__"}
    wrong = {
        name
        for name in imported(path)
        if not any(name == a or name.startswith(f"{a}.") for a in allowed)
    }
    assert not wrong


@pytest.mark.parametrize("layer", ["recipe", "plan", "report"])
def test_layers_that_start_fast_do_not_import_numpy(layer: str) -> None:
    for path in (ROOT / layer).rglob("*.py"):
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
