"""Rules for names in the code, and paths on the architecture pages."""

from __future__ import annotations

import ast
import re

from mobileprep.graph import op_sets
from tests.sources import PACKAGE, sources


def test_code_uses_named_op_sets_and_relocates_errors() -> None:
    op_names = {frozenset(v) for name, v in vars(op_sets).items() if name.isupper()}
    problems = []
    for path, _, tree in sources():
        may_spell_sets = path == "graph/op_sets.py" or path.startswith("transforms/")
        for node in ast.walk(tree):
            if isinstance(node, ast.Set) and not may_spell_sets:
                names = frozenset(e.value for e in node.elts if isinstance(e, ast.Constant))
                if names in op_names:
                    problems.append(f"{path}:{node.lineno}: use the set in graph/op_sets.py")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
                copies = ast.unparse(node.func) == "type(error)"
                if copies:
                    problems.append(f"{path}:{node.lineno}: use error.at(where)")
    assert not problems


def test_paths_on_the_architecture_pages_exist() -> None:
    docs = PACKAGE.parent / "docs"
    page = (docs / "architecture.md").read_text(encoding="utf-8")
    dependencies = (docs / "explanation" / "dependencies.md").read_text(encoding="utf-8")
    section = page.split("## Where things are")[1].split("\n## ")[0]
    paths = [PACKAGE.parent / p for p in re.findall(r"`([\w/.]+/[\w/.]*)`", section)]
    paths += [
        PACKAGE / p for p in re.findall(r"`([a-z]+/[\w/]+\.py)`", dependencies) if "tools/" not in p
    ]
    assert len(paths) > 20
    assert [p for p in paths if not p.exists()] == []
