"""Find the box coder of a detection model: raw encodings, anchors, and scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import DIVISIONS, SCALINGS, SUMS
from mobileprep.graph.reachability import ends, placeholders, reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, refuse

RAW_OUTPUTS: Final = (
    "name the raw box encodings and the scores as outputs of the model, such as `concat` and "
    "`concat_1`, and post-process them in the app"
)


_SHAPES: Final = frozenset({*IDENTITIES, "Reshape", "Squeeze", "ExpandDims"})


_COLUMNS: Final = frozenset({"Unpack", "Split"})


class _Column(NamedTuple):
    """A column of the encodings: the node that splits them, its index, and its divisor."""

    node: str
    number: int
    scale: float


def box_coder(
    graph: Graph, images: Images, boxes: Ref, where: str
) -> tuple[Ref, Array, tuple[float, ...]]:
    """Find the box coder behind the decoded boxes.

    Returns:
        The raw encodings, the anchors as centers and sizes, float32 [boxes, 4], and the scales of
        y, x, height, and width.

    Raises:
        TransformError: the boxes are not decoded from encodings and constant anchors.
    """
    above = reachable(graph, [boxes.node], through_control=False)
    nodes = [node for node in graph if node.name in above]
    exps = [_column(graph, images, n.data_inputs[0]) for n in nodes if n.op == "Exp"]
    bases = {column.node for column in exps if column is not None}
    if len(exps) != 2 or len(bases) != 1:
        message = "no box decoder with two Exp was found before the suppression of boxes"
        raise refuse(where, message, RAW_OUTPUTS)
    base = graph[bases.pop()]
    scales: dict[int, float] = {}
    products: dict[int, tuple[str, Ref]] = {}
    for column, product, factor in _products(graph, images, nodes):
        if column.node == base.name:
            scales[column.number] = column.scale
            products[column.number] = product, factor
    centers = {i: _addend(graph, above, products[i][0]) for i in (0, 1) if i in products}
    if sorted(products) != [0, 1, 2, 3]:
        message = "the boxes are not decoded as centers and sizes relative to anchors"
        raise refuse(where, message, RAW_OUTPUTS)
    parts = [images.constant(r) for r in (centers[0], centers[1], products[2][1], products[3][1])]
    constants = [part.reshape(-1) for part in parts if part is not None]
    if len(constants) < len(parts):
        message = "the anchors depend on the image"
        hint = "export the model with a fixed_shape_resizer, or give its input a fixed shape"
        raise refuse(where, message, hint)
    anchors = np.stack(constants, axis=1).astype(np.float32)
    coder = tuple(scales[i] for i in range(4))
    encodings = _encodings(graph, base)
    expected = _decoded(images.values([str(encodings)])[0], anchors, coder)
    value = images.values([str(boxes)])[0]
    corners = value.reshape(-1, 4) if value.shape[-1] == 4 else value.reshape(4, -1).T
    if corners.shape != expected.shape or not np.allclose(corners, expected, 1e-3, 1e-4):
        message = "the decoded boxes are not corners in the order y, x, y, x"
        raise refuse(where, message, RAW_OUTPUTS)
    return encodings, anchors, coder


def _column(graph: Graph, images: Images, ref: Ref) -> _Column | None:
    """Return the column that a tensor consists of, with its scale if it has one."""
    node, scale = graph[ref.node], 1.0
    if node.op in SCALINGS:
        factor = images.constant(node.data_inputs[1])
        if factor is None or factor.size != 1:
            return None
        number = float(factor.reshape(()))
        scale = number if node.op in DIVISIONS else 1 / number
        ref = node.data_inputs[0]
    return _Column(ref.node, ref.index, scale) if graph[ref.node].op in _COLUMNS else None


def _products(graph: Graph, images: Images, nodes: list[Node]) -> list[tuple[_Column, str, Ref]]:
    """Return products of columns, or of their exponentials, with one value per box."""
    products = []
    for node in nodes:
        for ref, factor in (node.data_inputs, node.data_inputs[::-1]) if node.op == "Mul" else ():
            source = graph[ref.node].data_inputs[0] if graph[ref.node].op == "Exp" else ref
            column = _column(graph, images, source)
            if column is not None and images.values([str(factor)])[0].size > 1:
                products.append((column, node.name, factor))
    return products


def _addend(graph: Graph, above: set[str], product: str) -> Ref:
    """Return the tensor that is added to a product, or the product itself if there is none."""
    for node in graph.consumers.get(product, ()):
        if node.op in SUMS and node.name in above:
            return next(r for r in node.data_inputs if r.node != product)
    return Ref(product)


def _encodings(graph: Graph, base: Node) -> Ref:
    """Return the tensor that a node splits into columns, before it was reshaped."""
    ref = base.data_inputs[1 if base.op == "Split" else 0]
    if graph[ref.node].op == "Transpose":
        ref = graph[ref.node].data_inputs[0]
    while graph[ref.node].op in _SHAPES:
        ref = graph[ref.node].data_inputs[0]
    return ref


def _decoded(encodings: Array, anchors: Array, scales: tuple[float, ...]) -> Array:
    code = encodings.reshape(-1, 4) / np.array(scales, np.float32)
    if len(code) != len(anchors):
        return np.zeros((0, 4), np.float32)
    centers = code[:, :2] * anchors[:, 2:] + anchors[:, :2]
    halves = np.exp(code[:, 2:]) * anchors[:, 2:] / 2
    return np.concatenate([centers - halves, centers + halves], axis=1)


_SIZES: Final = (64, 97)


_OPEN: Final = (1, -1, -1, 3)


class Images:
    """Values of a graph's tensors for random images, of two sizes if the size is variable."""

    def __init__(self, graph: Graph, context: Context) -> None:
        names = context.inputs or tuple(placeholders(graph))
        self.inputs = [parse_ref(name) for name in names]
        self.outputs = [parse_ref(name) for name in context.outputs or ends(graph)]
        self._graph = graph
        self._interpreter = Interpreter(graph)
        self._values: dict[tuple[str, int], Array] = {}

    def feeds(self, number: int) -> dict[str, Array]:
        """Return values for the inputs: an image."""
        random = np.random.default_rng(number)
        feeds = {}
        for ref in self.inputs:
            node = self._graph[ref.node]
            shape = (
                (node.attr_shape("shape") or (1, -1, -1, 3))
                if "shape" in node.attrs
                else (1, -1, -1, 3)
            )
            kind = node.attr_dtype("dtype", DType.UINT8)
            sizes = [s if s > 0 else _SIZES[number] if i else 1 for i, s in enumerate(shape)]
            if len(sizes) == 4 and shape[3] < 1:
                sizes[3] = 3
            values = random.integers(0, 256, sizes)
            feeds[str(ref)] = values.astype(kind.numpy)
        return feeds

    def values(self, names: Sequence[str], number: int = 0) -> list[Array]:
        """Return the values of tensors outside of loops."""
        missing = [n for n in dict.fromkeys(names) if (n, number) not in self._values]
        if missing:
            arrays = self._interpreter.run(missing, self.feeds(number))
            self._values.update(zip(((n, number) for n in missing), arrays, strict=True))
        return [self._values[name, number] for name in names]

    def constant(self, ref: Ref) -> Array | None:
        """Return the value of a tensor if it does not depend on the image."""
        first, second = (self.values([str(ref)], number)[0] for number in (0, 1))
        return first if np.array_equal(first, second) else None
