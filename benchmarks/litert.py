"""Reference int8 models: TensorFlow's converter with ai-edge-quantizer's static int8 recipe."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe
from numpy.typing import NDArray
from tensorflow.lite.python.convert_phase import ConverterError

Array = NDArray[Any]
_SIGNATURE = "serving_default"


class RefusedError(Exception):
    """A network that the LiteRT tools reject, with the reason."""


class Int8:
    """A network in static int8, with weights per channel and activations per tensor.

    Args:
        graph: frozen graph.
        shapes: shapes of the inputs.
        outputs: tensors to compute.
        calibration: feeds for measuring ranges.

    Raises:
        RefusedError: the converter, the quantizer, or the interpreter rejects the network.
    """

    def __init__(
        self,
        graph: Path,
        shapes: Mapping[str, Sequence[int]],
        outputs: Sequence[str],
        calibration: Sequence[Mapping[str, Array]],
    ) -> None:
        self._inputs = {name: f"i{i}" for i, name in enumerate(shapes)}
        self._outputs = {name: f"o{i}" for i, name in enumerate(outputs)}
        try:
            model = self._quantized(self._converted(graph, shapes), calibration)
            self.bytes = len(model)
            self._interpreter = Interpreter(model_content=model)
            self._interpreter.allocate_tensors()
            self._runner = self._interpreter.get_signature_runner(_SIGNATURE)
        except (ConverterError, ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            message = f"{type(error).__name__}: {first[:120]}"
            raise RefusedError(message) from error

    def _quantized(self, converted: bytes, calibration: Sequence[Mapping[str, Array]]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "float.tflite"
            file.write_bytes(converted)
            quantizing = quantizer.Quantizer(str(file))
            quantizing.load_quantization_recipe(recipe.static_wi8_ai8())
            feeds = [{self._inputs[k]: v for k, v in feed.items()} for feed in calibration]
            with redirect_stdout(sys.stderr):  # both print their progress
                ranges = quantizing.calibrate({_SIGNATURE: feeds})
                return bytes(quantizing.quantize(ranges).quantized_model)

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for one sample as floats."""
        details = self._runner.get_input_details()
        given = {i: _as_integers(feed[name], details[i]) for name, i in self._inputs.items()}
        found = self._runner(**given)
        details = self._runner.get_output_details()
        return [_as_floats(found[o], details[o]) for o in self._outputs.values()]

    def _converted(self, graph: Path, shapes: Mapping[str, Sequence[int]]) -> bytes:
        tf1 = tf.compat.v1
        definition = tf1.GraphDef.FromString(graph.read_bytes())
        for node in definition.node:
            if node.name in shapes and node.op == "Placeholder":
                shape = tf.TensorShape(shapes[node.name]).as_proto()
                node.attr["shape"].shape.CopyFrom(shape)
        with tempfile.TemporaryDirectory() as folder:
            model = str(Path(folder) / "model")
            with tf.Graph().as_default() as found:
                tf.import_graph_def(definition, name="")
                tensors = found.get_tensor_by_name
                with tf1.Session(graph=found) as session:
                    tf1.saved_model.simple_save(
                        session,
                        model,
                        {i: tensors(f"{name}:0") for name, i in self._inputs.items()},
                        {o: tensors(_tensor(name)) for name, o in self._outputs.items()},
                    )
            # Convert outside of the graph's context, or the signature would be lost.
            converted: bytes = tf.lite.TFLiteConverter.from_saved_model(model).convert()
            return converted


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _as_integers(values: Array, details: Mapping[str, Any]) -> Array:
    scale, zero = details["quantization"]
    if not scale:
        return values
    limits = np.iinfo(details["dtype"])
    return np.clip(np.round(values / scale) + zero, limits.min, limits.max).astype(details["dtype"])


def _as_floats(values: Array, details: Mapping[str, Any]) -> Array:
    scale, zero = details["quantization"]
    return (values.astype(np.float32) - zero) * scale if scale else values
