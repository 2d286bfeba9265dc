"""Loads a transform from a user's own Python file, and answers for the user's mistakes in it."""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path

from mobileprep.errors import MobileprepError, TransformError, UsageError
from mobileprep.ir.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, collected


def load_plugin(name: str, path: Path) -> type[Transform]:
    """The transform of that name in a Python file, which is run anew.

    Raises:
        TransformError: the file cannot be run; the message names its line.
        UsageError: it is not there, or holds no transform of that name.
    """
    spec = importlib.util.spec_from_file_location(f"mobileprep_plugin_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        message = f"the plugin {path} is not there, or is no Python file"
        raise UsageError(message, "name a .py file")
    module = importlib.util.module_from_spec(spec)
    with collected() as found:
        try:
            spec.loader.exec_module(module)
        except MobileprepError:
            raise
        except Exception as error:
            raise _blamed(path, error) from error
    if name not in found:
        there = ", ".join(sorted(found)) or "none"
        message = f"the plugin {path} holds no transform {name!r}; it holds {there}"
        raise UsageError(message, f'decorate a class with @transform("{name}")')
    return found[name]


def apply_plugin(transform: Transform, path: Path, graph: Graph, context: Context) -> Result:
    """Apply a user's transform.

    Raises:
        TransformError: it raised something, or answered something other than a Result.
    """
    try:
        result = transform.apply(graph, context)
    except MobileprepError:
        raise
    except Exception as error:
        raise _blamed(path, error) from error
    if not isinstance(result, Result):
        message = f"{transform.transform_name}: apply answered {type(result).__name__}"
        raise TransformError(message, "let it return a Result", str(path))
    return result


def _blamed(path: Path, error: Exception) -> TransformError:
    """The error at the last line of the user's file that led to it."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"{path}:{lines[-1]}" if lines else str(path)
    return TransformError(f"{type(error).__name__}: {error}", "mend the plugin", where)
