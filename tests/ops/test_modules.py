"""Index of kernel modules."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from mobileprep.ops.registry import INDEX

ROOT = Path(__file__).resolve().parents[2]


def test_index_is_up_to_date() -> None:
    path = ROOT / "tools" / "make_op_index.py"
    spec = importlib.util.spec_from_file_location("make_op_index", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command = "python tools/make_op_index.py"
    assert INDEX.read_text(encoding="utf-8") == module.render(), command


def test_kernels_missing_from_the_index_are_loaded(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"math.arithmetic": ["Add"]}))
    code = (
        "import sys, pathlib, mobileprep.ops.registry as m;"
        "from mobileprep.ops.kernel import find_kernel;"
        "from mobileprep.ops.kernel import find_context_kernel;"
        "m.INDEX = pathlib.Path(sys.argv[1]);"
        "assert find_kernel('Add'); assert find_kernel('Relu6');"
        "assert find_kernel('Nope') is None;"
        "assert find_context_kernel('RandomUniform')"
    )
    subprocess.run([sys.executable, "-c", code, str(index)], check=True)
