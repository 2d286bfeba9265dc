"""Makes ``docs/ops.md``: the ops that can be run, and how each is compared with TensorFlow.

    python tools/make_ops_page.py docs/ops.md

Run from the checkout: the cases that are compared are in ``tests/reference/cases``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mobileprep.formats.dtypes import dtype_from_numpy  # noqa: E402 - the checkout comes first
from mobileprep.ops.context import context_kernel_names, find_context_kernel  # noqa: E402
from mobileprep.ops.kernel import find_kernel, kernel_names  # noqa: E402

_INTRODUCTION = """\
# Ops

<!-- Made by `python tools/make_ops_page.py docs/ops.md`. -->

The interpreter runs these ops. Constants, placeholders, control flow of both kinds and calls of
functions it runs itself. `mobileprep run --engine=tensorflow` and `--engine=openvino` run others.

Reference tests compare each kernel with TensorFlow's own on seeded cases: exactly for integers,
truth values, quantized numbers and text, and to a relative 1e-5 for `float32`. The table tells in
which module of `mobileprep/ops/` an op is, the types that the cases feed it, and
how many there are. Ops without cases of their own are compared within whole networks, or in tests
that need more than one op.

"""


def render() -> str:
    """The whole page, in Markdown."""
    kernels = {op: find_kernel(op) for op in kernel_names()}
    kernels |= {op: find_context_kernel(op) for op in context_kernel_names()}
    compared: dict[str, list[set[str]]] = {}
    for case in _cases():
        compared.setdefault(case.op, []).append(set(_types(case.inputs)))
    tried = sum(op in compared for op in kernels)
    lines = [
        f"{_INTRODUCTION}{len(kernels)} ops, {tried} of them with cases of their own.",
        "",
        "| op | module | types | cases |",
        "|---|---|---|---|",
    ]
    for op in sorted(kernels, key=str.lower):
        module = kernels[op].__module__.removeprefix("mobileprep.ops.").replace(".", "/")
        cases = compared.get(op, [])
        types = ", ".join(sorted(set().union(*cases)))
        lines.append(f"| `{op}` | {module} | {types} | {len(cases) or ''} |")
    return "\n".join(lines) + "\n"


def _cases() -> Iterator:
    package = importlib.import_module("tests.reference.cases")
    for name in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        module = importlib.import_module(f"{package.__name__}.{name}")
        if hasattr(module, "cases"):
            yield from module.cases()


def _types(inputs: tuple) -> Iterator[str]:
    for array in inputs:
        found = dtype_from_numpy(array.dtype)
        if found is not None:
            yield found.short


def main(arguments: list[str]) -> int:
    """Write the page to the path given."""
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
