"""Print a case: a line for each node, with the values of small constants and inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from tests.fuzz.differential.generate import Case

_MAX_SHOWN = 24


def shown(case: Case) -> str:
    """The graph, its functions, inputs, and outputs."""
    return "\n".join(_lines(case))


def _lines(case: Case) -> Iterator[str]:
    for node in case.graph:
        yield _line(node, case)
    for name, function in case.graph.library.functions.items():
        args = ", ".join(f"{a.name}: {a.dtype.short}" for a in function.signature.inputs)
        yield f"{name}({args}):"
        yield from (f"  {_line(node, case)}" for node in function.nodes)
        yield f"  return {', '.join(map(str, function.ret.values()))}"
    yield f"outputs: {', '.join(str(parse_ref(name)) for name in case.outputs)}"


def _line(node: Node, case: Case) -> str:
    if node.op == "Placeholder" and node.name in case.feeds:
        sizes = node.attr_shape("shape")
        is_open = "" if sizes is None or -1 not in sizes else f" open {list(sizes)}"
        return f"{node.name} = input {_array(case.feeds[node.name])}{is_open}"
    inputs = ", ".join(map(str, node.inputs))
    if node.op == "Const":
        waits = f" after {inputs}" if inputs else ""
        return f"{node.name} = {_array(node.attr_tensor('value').array())}{waits}"
    attrs = "".join(
        f" {k}={_attr(v.value)}" for k, v in sorted(node.attrs.items()) if k not in _HIDDEN
    )
    return f"{node.name} = {node.op}({inputs}){attrs}"


_HIDDEN = frozenset({"T", "N", "Tidx", "Tshape", "Tpaddings", "Tperm", "Tparams", "Tindices"})


def _attr(value: object) -> str:
    name = getattr(value, "name", None)
    return str(name if name is not None else value)


def _array(value: np.ndarray) -> str:
    head = f"{value.dtype}{list(value.shape)}"
    if value.size > _MAX_SHOWN:
        return f"{head} {value.min():.4g}..{value.max():.4g}"
    return f"{head} {np.array2string(value, separator=', ', precision=8).replace(chr(10), '')}"
