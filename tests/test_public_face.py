"""Public names of ``mobileprep``."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import mobileprep
import mobileprep.plugin

FUNCTIONS = sorted(n for n in mobileprep.__all__ if inspect.isfunction(getattr(mobileprep, n)))


def imported_for_types() -> dict[str, str]:
    """The module of each name in the imports for type checkers."""
    tree = ast.parse(Path(mobileprep.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    froms = [n for n in block.body if isinstance(n, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in froms for alias in node.names}


def test_lazy_imports_match_the_imports_for_type_checkers() -> None:
    homes = imported_for_types()
    assert sorted(homes) == sorted(mobileprep.__all__)
    for name, module in homes.items():
        assert getattr(mobileprep, name) is getattr(importlib.import_module(module), name)


def test_public_names_do_not_clash_with_modules() -> None:
    modules = {m.name for m in pkgutil.iter_modules(mobileprep.__path__)}
    assert not modules & set(mobileprep.__all__)


def test_dir_lists_public_names_and_others_are_refused() -> None:
    assert set(mobileprep.__all__) <= set(dir(mobileprep))
    with pytest.raises(AttributeError, match="has no attribute 'frieze'"):
        mobileprep.frieze  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_document_arguments_and_errors(name: str) -> None:
    function = getattr(mobileprep, name)
    text = inspect.getdoc(function) or ""
    assert "Raises:\n" in text
    _, _, arguments = text.partition("Args:\n")
    for parameter in inspect.signature(function).parameters.values():
        assert f"    {parameter.name}: " in arguments, parameter.name
        assert parameter.annotation is not inspect.Parameter.empty


def test_classes_have_docstrings() -> None:
    for name in set(mobileprep.__all__) - set(FUNCTIONS):
        assert inspect.getdoc(getattr(mobileprep, name)), name


def test_plugin_names_have_docstrings() -> None:
    for name in mobileprep.plugin.__all__:
        assert inspect.getdoc(getattr(mobileprep.plugin, name)), name


def test_calling_code_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "caller.py").write_text(
        "import mobileprep\n"
        "from mobileprep.plugin import Graph\n\n\n"
        "def prepare(graph: Graph) -> Graph:\n"
        '    return mobileprep.transform(graph, "fold_constants", ["x"], ["y"]).graph\n\n\n'
        "wrong: int = mobileprep.load_graph('a.pb')\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--cache-dir", str(tmp_path / "types"), "caller.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (line,) = (line for line in done.stdout.splitlines() if ": error: " in line)
    assert line.startswith("caller.py:9: error: Incompatible types in assignment")
