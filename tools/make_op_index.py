"""Generate ``mobileprep/ops/data/op_modules.json``, the ops that each module registers.

python tools/make_op_index.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mobileprep.ops.registry import INDEX, family_modules  # noqa: E402

# Runs in a separate process, because a process registers each module only once.
_REGISTERED = """
import importlib, json, sys
from mobileprep.ops import kernel, shape_function
registries = kernel.registry, kernel.context_kernels, kernel.flop_rules, shape_function.registry
found = {}
for module in sys.argv[1:]:
    before = {op for registry in registries for op in registry}
    importlib.import_module(module)
    found[module] = sorted({op for registry in registries for op in registry} - before)
print(json.dumps(found))
"""


def _dependencies_first() -> list[str]:
    """Return the modules of all families, each after the modules that it imports."""
    modules = list(family_modules())
    ordered: list[str] = []

    def visit(module: str) -> None:
        if module in ordered:
            return
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        imported = re.findall(r"^from (mobileprep\.ops\.\S+) import", path.read_text(), re.M)
        for other in imported:
            if other in modules:
                visit(other)
        ordered.append(module)

    for module in modules:
        visit(module)
    return ordered


def render() -> str:
    """Return the index as JSON with one line per op."""
    command = [sys.executable, "-c", _REGISTERED, *_dependencies_first()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    prefix = "mobileprep.ops."
    found = {m.removeprefix(prefix): ops for m, ops in json.loads(printed).items() if ops}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    INDEX.write_text(render(), encoding="utf-8")
