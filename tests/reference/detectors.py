"""SSD detectors with random weights, in the form that TensorFlow 1's object detection API exported.

The forms differ by year: boxes are filtered and clipped before the suppression (``2017``, for one
image without a loop; ``2018``, in a loop over images), or clipped after it (``2019``).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

SIZE = 48
OUTPUTS = ("detection_boxes", "detection_scores", "detection_classes", "num_detections")


class Form(NamedTuple):
    """How a detector is exported."""

    year: str = "2019"
    converter: str = "sigmoid"
    has_background: bool = True
    computes_anchors: bool = True
    classes: int = 4
    scales: tuple[float, ...] | None = (10.0, 10.0, 5.0, 5.0)
    least_score: float = 0.3
    per_class: int = 20
    total: int = 20
    seed: int = 0


def frozen(tf: ModuleType, form: Form) -> bytes:
    """The graph of a detector, with loops of control flow v1."""
    v1 = tf.compat.v1
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with v1.Graph().as_default() as graph:
            _Detector(v1, form).build()
        return v1.graph_util.extract_sub_graph(
            graph.as_graph_def(), [*OUTPUTS, "concat", "concat_1"]
        ).SerializeToString()
    finally:
        if was_v2:
            v1.enable_control_flow_v2()


class _Detector:
    """Builds a detector in the current graph."""

    def __init__(self, v1: ModuleType, form: Form) -> None:
        self.v1, self.form = v1, form
        self.random = np.random.default_rng(form.seed)

    def build(self) -> None:
        v1, form = self.v1, self.form
        batch = 1 if form.year == "2017" else None
        image = v1.placeholder(v1.uint8, [batch, None, None, 3], name="image_tensor")
        resized = self.resized(v1.cast(image, v1.float32, name="ToFloat"))
        first = v1.nn.relu6(self.conv(resized, 8, 4))
        second = v1.nn.relu6(self.conv(first, 8, 3))
        encodings, predictions = [], []
        per_box = form.classes + form.has_background
        for layer in (first, second):
            count = v1.shape(layer)[0]
            boxes = self.conv(layer, 2 * 4, 1, 2.0)
            encodings.append(v1.reshape(boxes, v1.stack([count, -1, 1, 4])))
            scores = self.conv(layer, 2 * per_box, 1, 2.0)
            predictions.append(v1.reshape(scores, v1.stack([count, -1, per_box])))
        encoded = v1.concat(encodings, 1, name="concat")
        predicted = v1.concat(predictions, 1, name="concat_1")
        anchors = self.anchors([int(layer.shape[1]) for layer in (first, second)])
        with v1.name_scope("Postprocessor"):
            boxes = self.decoded(encoded, anchors)
            convert = v1.sigmoid if form.converter == "sigmoid" else v1.nn.softmax
            scores = convert(predicted)
            if form.has_background:
                scores = v1.slice(scores, [0, 0, 1], [-1, -1, -1])
            detections = self.suppressed(boxes, scores)
        classes = detections[2] + 1 if form.has_background else detections[2]
        for name, value in zip(OUTPUTS, (*detections[:2], classes, detections[3]), strict=True):
            v1.identity(v1.cast(value, v1.float32), name=name)

    def resized(self, images: Any) -> Any:
        """Resize images in a loop, and scale them to -1..1."""
        v1 = self.v1
        with v1.name_scope("Preprocessor"):
            images_resized = v1.map_fn(
                lambda image: v1.image.resize_images(image, [SIZE, SIZE]), images, dtype=v1.float32
            )
            return images_resized * (2 / 255) - 1.0

    def conv(self, value: Any, channels: int, stride: int, gain: float = 1.0) -> Any:
        v1 = self.v1
        shape = (3, 3, int(value.shape[3]), channels)
        weights = self.random.normal(0, gain / np.sqrt(9 * shape[2]), shape).astype(np.float32)
        bias = self.random.normal(0, 0.2, channels).astype(np.float32)
        steps = [1, stride, stride, 1]
        return v1.nn.bias_add(v1.nn.conv2d(value, v1.constant(weights), steps, "SAME"), bias)

    def anchors(self, sizes: list[int]) -> Any:
        """Corners of two anchors for each position, computed or constant."""
        v1, corners_by_layer = self.v1, []
        with v1.name_scope("MultipleGridAnchorGenerator"):
            for size, scale in zip(sizes, (0.3, 0.6), strict=True):
                places = (v1.cast(v1.range(size), v1.float32) + 0.5) / size
                y, x = v1.meshgrid(places, places, indexing="ij")
                halves = [(scale / 2, scale / 2), (scale * 0.35, scale * 0.7)]
                corners = [v1.stack([y - h, x - w, y + h, x + w], axis=2) for h, w in halves]
                corners_by_layer.append(v1.reshape(v1.stack(corners, axis=2), [-1, 4]))
            anchors = v1.concat(corners_by_layer, 0)
        if self.form.computes_anchors:
            return anchors
        with v1.Session() as session:
            return v1.constant(session.run(anchors))

    def decoded(self, encodings: Any, anchors: Any) -> Any:
        """Corners of boxes [images, boxes, 1, 4]."""
        v1 = self.v1
        images, count = v1.shape(encodings)[0], int(anchors.shape[0])
        tiled = v1.tile(v1.expand_dims(anchors, 0), v1.stack([images, 1, 1]))
        top, left, bottom, right = v1.unstack(v1.transpose(v1.reshape(tiled, [-1, 4])))
        height, width = bottom - top, right - left
        y, x = top + height / 2.0, left + width / 2.0
        codes = v1.unstack(v1.transpose(v1.reshape(encodings, [-1, 4])))
        if self.form.scales:
            codes = [code / scale for code, scale in zip(codes, self.form.scales, strict=True)]
        half_w, half_h = v1.exp(codes[3]) * width / 2.0, v1.exp(codes[2]) * height / 2.0
        y, x = codes[0] * height + y, codes[1] * width + x
        corners = v1.stack([y - half_h, x - half_w, y + half_h, x + half_w])
        boxes = v1.reshape(v1.transpose(corners), v1.stack([images, count, 4]))
        return v1.expand_dims(boxes, axis=2)

    def suppressed(self, boxes: Any, scores: Any) -> tuple[Any, ...]:
        """Boxes, scores, classes, and their number, of all images."""
        v1 = self.v1
        if self.form.year == "2017":
            shaped = v1.reshape(boxes, [1, -1, 1, 4]), v1.reshape(scores, [1, -1, scores.shape[2]])
            parts = self.of_image([v1.unstack(part, num=1)[0] for part in shaped])
            return tuple(v1.stack([part]) for part in parts)
        count = v1.ones([v1.shape(boxes)[0]], v1.int32) * v1.shape(boxes)[1]
        kinds = (v1.float32, v1.float32, v1.float32, v1.int32)
        return tuple(v1.map_fn(self.of_image, [boxes, scores, count], dtype=kinds))

    def of_image(self, parts: Any) -> tuple[Any, ...]:
        v1, form = self.v1, self.form
        boxes, scores = parts[:2]
        if len(parts) > 2:
            boxes = v1.slice(boxes, [0, 0, 0], v1.stack([parts[2], -1, -1]))
            scores = v1.slice(scores, [0, 0], v1.stack([parts[2], -1]))
        boxes = v1.unstack(v1.reshape(boxes, [-1, 1, 4]), axis=1)[0]
        scores = v1.reshape(scores, [-1, form.classes])
        rows: tuple[list[Any], ...] = ([], [], [])
        for number in range(form.classes):
            one = v1.slice(scores, [0, number], v1.stack([v1.shape(scores)[0], 1]))
            selected = self.of_class(boxes, v1.reshape(one, [-1]))
            for part, value in zip(
                rows, (*selected, v1.zeros_like(selected[1]) + number), strict=True
            ):
                part.append(value)
        selection = [v1.concat(part, 0) for part in rows]
        selection = self.best(selection, v1.shape(selection[1])[0])
        if form.year == "2019":
            clipped, area = self.clipped(selection[0])
            selection = [v1.gather(p, self.where(area > 0)) for p in (clipped, *selection[1:])]
        count = v1.minimum(form.total, v1.shape(selection[1])[0])
        selection = self.best(selection, count)
        missing = form.total - count
        padded = [v1.pad(selection[0], v1.stack([v1.stack([0, missing]), [0, 0]]))]
        padded += [v1.pad(part, [v1.stack([0, missing])]) for part in selection[1:]]
        padded = [v1.reshape(p, [form.total, *p.shape[1:]]) for p in padded]
        return (*padded, count)

    def of_class(self, boxes: Any, scores: Any) -> tuple[Any, Any]:
        """The selected boxes of a class, and their scores."""
        v1, form = self.v1, self.form
        limits = {"iou_threshold": 0.5}
        if form.year == "2019":
            limits["score_threshold"] = form.least_score
        else:
            chosen = self.where(v1.greater(scores, form.least_score))
            boxes, scores = v1.gather(boxes, chosen), v1.gather(scores, chosen)
            clipped, area = self.clipped(boxes)
            chosen = self.where(v1.greater(area, 0.0))
            boxes, scores = v1.gather(clipped, chosen), v1.gather(scores, chosen)
        most = v1.minimum(form.per_class, v1.shape(boxes)[0])
        indices = v1.image.non_max_suppression(boxes, scores, most, **limits)
        return v1.gather(boxes, indices), v1.gather(scores, indices)

    def clipped(self, boxes: Any) -> tuple[Any, Any]:
        """Boxes cut to the image, and their areas."""
        v1 = self.v1
        window = v1.unstack(v1.constant([0.0, 0.0, 1.0, 1.0]))
        columns = [
            v1.maximum(v1.minimum(column, window[2 + i % 2]), window[i % 2])
            for i, column in enumerate(v1.split(boxes, 4, axis=1))
        ]
        area = v1.squeeze((columns[2] - columns[0]) * (columns[3] - columns[1]), [1])
        return v1.concat(columns, 1), area

    def best(self, parts: list[Any], count: Any) -> list[Any]:
        _, order = self.v1.nn.top_k(parts[1], count, sorted=True)
        return [self.v1.gather(part, order) for part in parts]

    def where(self, chosen: Any) -> Any:
        return self.v1.cast(self.v1.reshape(self.v1.where(chosen), [-1]), self.v1.int32)
