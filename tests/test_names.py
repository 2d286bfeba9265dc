"""Each set of ops has one home, errors are moved by their own method, and named paths exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import mobileprep
from mobileprep.graph import op_sets

ROOT = Path(mobileprep.__file__).parent


@cache
def sources() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_generated"))
    }


def test_a_set_of_ops_is_spelt_once_outside_of_transforms() -> None:
    known = {frozenset(v) for name, v in vars(op_sets).items() if name.isupper()}
    repeated = []
    for module, tree in sources().items():
        if module == "graph/op_sets.py" or module.startswith("transforms/"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Set):
                continue
            if frozenset(e.value for e in node.elts if isinstance(e, ast.Constant)) in known:
                repeated.append(f"{module}:{node.lineno}")
    assert not repeated, "take the set from graph/op_sets.py"


def test_errors_move_to_another_place_by_their_own_method() -> None:
    for module, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                copies = ast.unparse(node.func) == "type(error)"
                assert not copies, f"{module}:{node.lineno} makes a copy: use error.at(where)"


def test_paths_on_the_architecture_pages_exist() -> None:
    docs = ROOT.parent / "docs"
    page = (docs / "architecture.md").read_text(encoding="utf-8")
    own = (docs / "explanation" / "dependencies.md").read_text(encoding="utf-8")
    where = page.split("## Where things are")[1].split("\n## ")[0]
    paths = [ROOT.parent / p for p in re.findall(r"`([\w/.]+/[\w/.]*)`", where)]
    paths += [ROOT / p for p in re.findall(r"`([a-z]+/[\w/]+\.py)`", own) if "tools/" not in p]
    assert len(paths) > 20
    assert [p for p in paths if not p.exists()] == []
