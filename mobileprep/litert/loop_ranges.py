"""Let a graph put out the tensors inside of its loops, so that their ranges can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import Body, body_of, function_of
from mobileprep.graph.refs import Edge, FreshNames, Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.litert.prepare import prepared_function
from mobileprep.litert.program import Op, Program
from mobileprep.litert.quantizing.choice import (
    is_loop,
    moved_values,
    prefix_of,
    tensors_with_ranges,
)

_INT32: Final = attr.dtype(DType.INT32)


def with_observed_loops(graph: Graph, program: Program) -> tuple[Graph, tuple[Edge, ...]]:
    """Add the tensors in bodies of loops whose ranges determine scales to the loops' outputs.

    Each step appends its tensors to lists, which are concatenated after the loop.

    Args:
        graph: a prepared graph.
        program: what it was lowered to.

    Returns:
        The graph, and flat tensors with the values of all steps. They are named after the loop and
        the tensor in its body.
    """
    tensors: list[Edge] = []
    for op in program.ops:
        if is_loop(op) and op.node is not None:
            graph, added = _observed(graph, op, graph[op.node.name])
            tensors += added
    return graph, tuple(tensors)


def _observed(graph: Graph, op: Op, loop: Node) -> tuple[Graph, Sequence[Edge]]:
    body = op.subgraphs[1]
    name = loop.attr_func("body").name
    step = prepared_function(graph, name, [(value.dtype, value.shape) for value in op.outputs])
    moved = {value.name for value in moved_values(body)}
    refs = [parse_ref(name) for name in tensors_with_ranges(body) if name not in moved]
    refs = [ref for ref in refs if ref.node in step.graph]
    prefix, fresh = prefix_of(loop), FreshNames(graph.by_name)
    if not refs or any(f"{prefix}{ref.node}" in graph.by_name for ref in refs):
        return graph, ()
    lists = [Ref(f"list_{i}") for i in range(len(refs))]
    new = FreshNames([*step.graph.by_name, *(ref.node for ref in lists)])
    # Flat, because tensors may be numbers, or grow from step to step.
    sizes = constant(new.name("flat"), Tensor.of(np.array([-1], np.int32)))
    flat = [
        Node(
            new.name("flat"),
            "Reshape",
            (ref, Ref(sizes.name)),
            "",
            {"T": _float(), "Tshape": _INT32},
        )
        for ref in refs
    ]
    pushes = [
        Node(
            new.name("push"),
            "TensorListPushBack",
            (at, Ref(values.name)),
            "",
            {"element_dtype": _float()},
        )
        for at, values in zip(lists, flat, strict=True)
    ]
    nodes = [n for n in step.graph if n.name not in step.inputs]
    args = (*map(Ref, step.inputs), *lists)
    rets = (*step.outputs, *(Ref(push.name) for push in pushes))
    library = Library(
        {**graph.library.functions, **step.graph.library.functions}, graph.library.gradients
    )
    kinds = loop.attr_dtypes("T")
    functions = dict(library.functions)
    changed_body = _function(
        library, name, Body(args, (*nodes, sizes, *flat, *pushes), rets), kinds, kinds
    )
    functions[changed_body.signature.name] = changed_body
    test = body_of(functions[loop.attr_func("cond").name], library)
    test = replace(test, args=(*test.args, *lists))
    changed_test = _function(library, loop.attr_func("cond").name, test, kinds, (DType.BOOL,))
    functions[changed_test.signature.name] = changed_test
    added = _lists(loop, len(refs), fresh)
    count, variant = len(kinds), [DType.VARIANT] * len(refs)
    attrs = {
        **loop.attrs,
        "T": AttrValue("list(type)", (*kinds, *variant)),
        "cond": AttrValue("func", FuncRef(changed_test.signature.name)),
        "body": AttrValue("func", FuncRef(changed_body.signature.name)),
        "output_shapes": AttrValue("list", ()),
    }
    inputs = (*loop.data_inputs, *(Ref(node.name) for node in added if node.op != "Const"))
    whole = replace(loop, inputs=inputs, attrs=attrs)
    after = _joined(loop, count, refs, added[0].name, fresh)
    out = [m for n in graph for m in ([*added, whole, *after] if n is loop else [n])]
    edges = [(f"{prefix}{ref.node}", ref.index) for ref in refs]
    return Graph(out, Library(functions, library.gradients), graph.versions), edges


def _float() -> AttrValue:
    return attr.dtype(DType.FLOAT)


def _lists(loop: Node, count: int, fresh: FreshNames) -> list[Node]:
    """Return the shape of the elements, which may be any, and empty lists."""
    shape = constant(fresh.name(f"{loop.name}/any_shape"), Tensor.of(np.array(-1, np.int32)))
    limit = constant(fresh.name(f"{loop.name}/any_count"), Tensor.of(np.array(-1, np.int32)))
    kinds = {"element_dtype": _float(), "shape_type": _INT32}
    lists = [
        Node(
            fresh.name(f"{loop.name}/list"),
            "EmptyTensorList",
            (Ref(shape.name), Ref(limit.name)),
            "",
            kinds,
        )
        for _ in range(count)
    ]
    return [shape, limit, *lists]


def _joined(
    loop: Node, first: int, refs: Sequence[Ref], shape: str, fresh: FreshNames
) -> list[Node]:
    """Return the nodes that concatenate the lists, and a node for each node of the body."""
    leading = constant(fresh.name(f"{loop.name}/leading"), Tensor.of(np.zeros(0, np.int64)))
    nodes = [leading]
    joined: dict[str, dict[int, Ref]] = {}
    for i, ref in enumerate(refs):
        inputs = (Ref(loop.name, first + i), Ref(shape), Ref(leading.name))
        kinds = {"element_dtype": _float(), "shape_type": _INT32}
        name = fresh.name(f"{loop.name}/joined")
        nodes.append(Node(name, "TensorListConcatV2", inputs, "", kinds))
        joined.setdefault(ref.node, {})[ref.index] = Ref(name)
    for name, outputs in joined.items():
        some = next(iter(outputs.values()))
        values = tuple(outputs.get(i, some) for i in range(max(outputs) + 1))
        types = {"T": AttrValue("list(type)", (DType.FLOAT,) * len(values))}
        nodes.append(Node(f"{prefix_of(loop)}{name}", "IdentityN", values, "", types))
    return nodes


def _function(
    library: Library,
    name: str,
    body: Body,
    arg_kinds: Sequence[DType],
    ret_kinds: Sequence[DType],
) -> Function:
    """Return a function with a new name whose last arguments and results are lists."""
    free = FreshNames(library.functions).name(f"{name}_observed")
    kinds = [*arg_kinds, *[DType.VARIANT] * (len(body.args) - len(arg_kinds))]
    ends = [*ret_kinds, *[DType.VARIANT] * (len(body.rets) - len(ret_kinds))]
    inputs = tuple(ArgDef(ref.node, kind) for ref, kind in zip(body.args, kinds, strict=True))
    outputs = tuple(ArgDef(f"ret_{i}", kind) for i, kind in enumerate(ends))
    return function_of(body, Function(OpDef(free, inputs, outputs)), library)
