"""Recognize a detection post-processor by its data flow and its results on random images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import DIVISIONS, ENTERS, SCALINGS, SUMS
from mobileprep.graph.reachability import ends, placeholders, reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, refuse

_SUPPRESSIONS: Final = frozenset(
    f"NonMaxSuppression{version}" for version in ("", "V2", "V3", "V4", "V5")
)
# Ops that forward their first input, sliced, gathered, or with another shape.
_MOVES: Final = IDENTITIES | {
    *("Reshape", "Squeeze", "ExpandDims", "Slice", "StridedSlice", "Unpack", "Split"),
    *("Gather", "GatherV2", "Enter", "RefEnter", "Switch"),
}
_READS: Final = frozenset({"TensorArrayReadV3", "TensorArrayReadV2", "TensorArrayRead"})
_SCATTERS: Final = frozenset({"TensorArrayScatterV3", "TensorArrayScatterV2", "TensorArrayScatter"})
_CLIPS: Final = frozenset({"Minimum", "Maximum"})
_JOINS: Final = frozenset({"ConcatV2", "Pack"})
_OP: Final = "TFLite_Detection_PostProcess"


class Detector(Struct, frozen=True):
    """The inputs and settings of a detection post-processor.

    Args:
        encodings: the raw box encodings.
        scores: the class scores of all boxes, after the score conversion.
        columns: the number of scores per box, including the background.
        anchors: centers and sizes, [boxes, 4].
        scales: scales of the box coder: y, x, height, and width.
        clips_first: whether boxes are clipped before overlapping ones are suppressed.
        first_class: the number of the first class in the outputs.
        options: the other attributes of TFLite_Detection_PostProcess.
        outputs: the nodes of the outputs by role: boxes, scores, classes, count.
        count_type: the type of the number of detections.
    """

    encodings: Ref
    scores: Ref
    columns: int
    anchors: Array
    scales: tuple[float, ...]
    clips_first: bool
    first_class: int
    options: Mapping[str, AttrValue]
    outputs: Mapping[str, str] = field(default_factory=dict)
    count_type: DType = DType.FLOAT


def recognized(graph: Graph, images: Images, where: str) -> Detector | None:
    """Recognize the post-processor of a graph; None if the outputs need no suppression of boxes.

    Raises:
        TransformError: the post-processor has an unsupported form.
    """
    try:
        return _Recognition(graph, images, where).detector()
    except (InvalidGraphError, UnsupportedError, UsageError) as error:
        message = f"the graph does not run on a random image: {error}"
        raise refuse(where, message, RAW_OUTPUTS) from error


class _Recognition:
    """Recognition in one graph."""

    def __init__(self, graph: Graph, images: Images, where: str) -> None:
        self._graph, self._images, self._where = graph, images, where

    def detector(self) -> Detector | None:
        ends_at = [ref.node for ref in self._images.outputs]
        needed = reachable(self._graph, ends_at, through_control=False)
        suppressions = [n for n in self._graph if n.name in needed and n.op in _SUPPRESSIONS]
        if not suppressions:
            return None
        outputs = self._outputs({n.name for n in suppressions})
        first = suppressions[0]
        score_path = list(self._path(first.data_inputs[1]))
        scores, columns = self._scores(score_path, len(suppressions))
        box_path = list(self._path(first.data_inputs[0]))
        encodings, anchors, scales = box_coder(self._graph, self._images, box_path[-1], self._where)
        clips_first = any(n.op in _CLIPS for ref in box_path if (n := self._graph[ref.node]))
        options = {
            "max_detections": attr.integer(self._images.values([outputs["scores"]])[0].shape[1]),
            "max_classes_per_detection": attr.integer(1),
            "num_classes": attr.integer(len(suppressions)),
            "use_regular_nms": attr.boolean(True),
            **self._limits(suppressions, score_path),
        }
        count = (
            self._images.values([outputs["count"]])[0].dtype
            if "count" in outputs
            else np.dtype(np.float32)
        )
        return Detector(
            encodings,
            scores,
            columns,
            anchors,
            scales,
            clips_first,
            self._first_class(outputs["classes"]),
            options,
            outputs,
            dtype_from_numpy(count) or DType.FLOAT,
        )

    def _outputs(self, suppressions: set[str]) -> dict[str, str]:
        """Return the nodes of the outputs by role."""
        roles: dict[str, str] = {}
        for ref in self._images.outputs:
            above = reachable(self._graph, [ref.node], through_control=False)
            if not above & suppressions:
                continue
            value = self._images.values([str(ref)])[0]
            role = ""
            if value.ndim == 3 and value.shape[2] == 4:
                role = "boxes"
            elif value.ndim == 1:
                role = "count"
            elif value.ndim == 2:
                is_whole = np.array_equal(value, np.round(value))
                # Without a detection, both are zero.
                is_class = is_whole and (value.any() or "class" in ref.node)
                role = "classes" if is_class else "scores"
            if not role or role in roles or ref.index or value.shape[0] != 1:
                message = f"{_OP} does not compute the output {str(ref)!r}"
                raise refuse(self._where, message, "remove it from the outputs")
            roles[role] = ref.node
        for role in ("boxes", "scores", "classes"):
            if role not in roles:
                message = f"no output has the {role} of the detections"
                raise refuse(self._where, message, "name all outputs of the post-processor")
        return roles

    def _path(self, ref: Ref) -> Iterator[Ref]:
        """Yield a tensor and its sources, up to the node that computes their values."""
        seen = set()
        while ref not in seen:
            seen.add(ref)
            yield ref
            node = self._graph[ref.node]
            if node.op in _READS:
                flow = self._source(node.data_inputs[2])
                if flow.op not in _SCATTERS:
                    return
                ref = flow.data_inputs[2]
            elif node.op in _MOVES:
                ref = node.data_inputs[1 if node.op == "Split" else 0]
            elif node.op in _CLIPS | {"Sub", "Mul"}:
                ref = node.data_inputs[0]
            elif node.op in _JOINS and self._graph[node.data_inputs[0].node].op in _CLIPS | {"Mul"}:
                # Boxes that are clipped, or scaled to a window, column by column.
                ref = node.data_inputs[0]
            else:
                return

    def _source(self, ref: Ref) -> Node:
        """Return the source node of a tensor, outside of loops."""
        node = self._graph[ref.node]
        while node.op in IDENTITIES or node.op in ENTERS:
            node = self._graph[node.data_inputs[0].node]
        return node

    def _outside(self, path: Sequence[Ref]) -> list[Ref]:
        """Return the tensors of a path that are outside of loops."""
        inside = [i for i, ref in enumerate(path) if self._graph[ref.node].op in (*_READS, *ENTERS)]
        return list(path[inside[-1] + 1 if inside else 0 :])

    def _scores(self, path: Sequence[Ref], classes: int) -> tuple[Ref, int]:
        """Return the scores of all classes, including the background if it is the first class."""
        scores, values = None, None
        for ref in self._outside(path):
            value = self._images.values([str(ref)])[0]
            if value.ndim < 2 or (value.ndim == 3 and value.shape[0] != 1):
                continue
            matrix = value.reshape(-1, value.shape[-1])
            if matrix.shape[1] == classes and scores is None:
                scores, values = ref, matrix
            elif values is not None and np.array_equal(matrix[:, 1:], values):
                return ref, classes + 1
        if scores is None:
            message = f"no tensor has the scores of the {classes} classes that are suppressed"
            raise refuse(self._where, message, RAW_OUTPUTS)
        return scores, classes

    def _limits(
        self, suppressions: Sequence[Node], score_path: Sequence[Ref]
    ) -> dict[str, AttrValue]:
        """Return the thresholds, and the number of boxes kept per class."""
        limits = {self._limits_of(node, score_path) for node in suppressions}
        if len(limits) != 1:
            message = "the classes are suppressed with different limits"
            raise refuse(self._where, message, RAW_OUTPUTS)
        overlap, score, most = limits.pop()
        return {
            "nms_iou_threshold": attr.floating(overlap),
            "nms_score_threshold": attr.floating(score),
            "detections_per_class": attr.integer(most),
        }

    def _limits_of(self, node: Node, path: Sequence[Ref]) -> tuple[float, float, int]:
        """Return a suppression's overlap and score thresholds, and its box limit."""
        inputs = node.data_inputs
        overlap: float | None = node.attr_float("iou_threshold", 0.5)
        if len(inputs) > 3:
            overlap = self._number(inputs[3])
        lowest = float(np.finfo(np.float32).min)
        score = self._number(inputs[4]) if len(inputs) > 4 else lowest
        sigma = self._number(inputs[5]) if len(inputs) > 5 else 0.0
        most = self._number(inputs[2])
        if overlap is None or score is None or most is None or sigma != 0:
            message = f"the limits of {node.op} {node.name!r} are not constant"
            if sigma:
                message = f"{node.op} {node.name!r} lowers scores instead of dropping boxes"
            raise refuse(self._where, message, RAW_OUTPUTS)
        score = max(score, *(self._filtered(ref) for ref in path), lowest)
        # TensorFlow keeps boxes with more than the score, LiteRT also those with exactly the score;
        # boxes outside of the image have a score of zero.
        above = np.nextafter(np.float32(score), np.float32(np.inf))
        return overlap, float(max(above, np.finfo(np.float32).tiny)), int(most)

    def _filtered(self, ref: Ref) -> float:
        """Return the score above which a Gather of a path keeps boxes."""
        node = self._graph[ref.node]
        if node.op not in ("Gather", "GatherV2"):
            return -np.inf
        filters = [node.data_inputs[1]]
        while filters:
            chosen = self._graph[filters.pop().node]
            if chosen.op == "Greater":
                compared = list(self._path(chosen.data_inputs[0]))
                is_score = compared[-1] in self._path(node.data_inputs[0])
                limit = self._number(chosen.data_inputs[1])
                return limit if is_score and limit is not None else -np.inf
            if chosen.op in {*IDENTITIES, "Where", "Reshape", "Squeeze", "Cast"}:
                filters.append(chosen.data_inputs[0])
        return -np.inf

    def _number(self, ref: Ref) -> float | None:
        """Return a scalar constant, or the smallest operand of a Minimum."""
        node = self._source(ref)
        if node.op == "Const":
            value = node.attr_tensor("value").array()
            return float(value.reshape(())) if value.size == 1 else None
        if node.op == "Minimum":
            numbers = [n for r in node.data_inputs if (n := self._number(r)) is not None]
            return min(numbers, default=None)
        return None

    def _first_class(self, name: str) -> int:
        """Return the number that is added to the classes of the suppression."""
        node = self._graph[name]
        while node.op in {*IDENTITIES, "Cast", "ExpandDims", "Reshape", "Pack"}:
            node = self._graph[node.data_inputs[0].node]
        numbers = [self._number(ref) for ref in node.data_inputs] if node.op in SUMS else []
        return int(next((n for n in numbers if n is not None), 0))


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
