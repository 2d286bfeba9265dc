"""Convert networks with TensorFlow's converter, and quantize them with litert-quantizer."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from litert_quantizer import quantizer
from litert_quantizer.algorithm_manager import AlgorithmName
from litert_quantizer.qtyping import TFLOperationName
from litert_quantizer.recipe_manager import RecipeManager
from numpy.typing import NDArray
from quantization_cases import RefusedError, refused
from tensorflow.lite.python.convert_phase import ConverterError

from mobileprep.graph.tflite import PREFIX, parse_tflite

Array = NDArray[Any]
Feeds = Sequence[Mapping[str, Array]]
_SIGNATURE = "serving_default"
_EVERY = ".*"

# Ops with weights. OCTAV does not support constants of other operations.
_LAYERS = (
    TFLOperationName.FULLY_CONNECTED,
    TFLOperationName.CONV_2D,
    TFLOperationName.DEPTHWISE_CONV_2D,
    TFLOperationName.CONV_2D_TRANSPOSE,
)
_DENSE = (TFLOperationName.FULLY_CONNECTED,)
# Ops with 4-bit weights.
_NARROW = (TFLOperationName.FULLY_CONNECTED, TFLOperationName.CONV_2D)


def static(
    algorithm: AlgorithmName,
    operations: Sequence[TFLOperationName] = (),
    bits: int = 8,
    others: AlgorithmName = AlgorithmName.MIN_MAX_UNIFORM_QUANT,
) -> Callable[[RecipeManager], None]:
    """Return a recipe with 8-bit activations.

    Args:
        algorithm: algorithm for the weights.
        operations: operations that it quantizes; all if empty.
        bits: bits of their weights; those of the other operations have 8 bits.
        others: algorithm for the other operations.
    """

    def fill(recipe: RecipeManager) -> None:
        every = TFLOperationName.ALL_SUPPORTED
        first = algorithm if not operations else others
        recipe.add_static_config(_EVERY, every, 8, 8, algorithm_key=first)
        for operation in operations:
            recipe.add_static_config(_EVERY, operation, 8, bits, algorithm_key=algorithm)

    return fill


def dynamic4(
    algorithm: AlgorithmName, dense: AlgorithmName | None = None
) -> Callable[[RecipeManager], None]:
    """Return a recipe with 4-bit weights, or 8-bit where there are no kernels, and float inputs.

    Args:
        algorithm: algorithm for 4-bit weights.
        dense: algorithm for those of dense layers, if another one.
    """

    def fill(recipe: RecipeManager) -> None:
        recipe.add_dynamic_config(_EVERY, TFLOperationName.ALL_SUPPORTED, num_bits=8)
        for operation in _NARROW:
            key = dense if dense and operation in _DENSE else algorithm
            recipe.add_dynamic_config(_EVERY, operation, num_bits=4, algorithm_key=key)

    return fill


_PLAIN, _OCTAV = AlgorithmName.MIN_MAX_UNIFORM_QUANT, AlgorithmName.OCTAV
_HADAMARD = AlgorithmName.DECOMPOSED_HADAMARD_ROTATION
# Recipes of litert-quantizer by the name of their column. The first one has the tool's ranges,
# which are moving averages over the samples. The others have the minimum and maximum of all
# samples, which are better for most networks.
DEFAULT = "litert-quantizer int8"
RECIPES: Mapping[str, Callable[[RecipeManager], None]] = {
    DEFAULT: static(_PLAIN),
    "litert-quantizer int8 min-max": static(_PLAIN),
    "litert-quantizer int8 OCTAV": static(_OCTAV, _LAYERS),
    "litert-quantizer int8 GPTQ": static(AlgorithmName.GPTQ, _DENSE),
    "litert-quantizer int8 OSCAR": static(AlgorithmName.OSCAR, _DENSE),
    "litert-quantizer int8 Hadamard": static(_HADAMARD, _DENSE),
    "litert-quantizer int4 OCTAV": dynamic4(_OCTAV),
    "litert-quantizer int4 GPTQ": dynamic4(_OCTAV, AlgorithmName.GPTQ),
    "litert-quantizer int4 Hadamard": dynamic4(_OCTAV, _HADAMARD),
    "litert-quantizer int4 static OCTAV": static(_OCTAV, _NARROW, 4),
}
# Algorithms that measure more than ranges, and recipes for dense layers only.
MEASURING = ("GPTQ", "OSCAR")
DENSE_ONLY = {name for name in RECIPES if name.endswith((*MEASURING, "Hadamard"))}


class Source:
    """A frozen graph, as the other tools read it.

    Args:
        graph: path of the frozen graph.
        shapes: shapes of the inputs.
        outputs: tensors to compute.
        calibration: feeds for measuring ranges.
    """

    def __init__(
        self,
        graph: Path,
        shapes: Mapping[str, Sequence[int]],
        outputs: Sequence[str],
        calibration: Feeds,
    ) -> None:
        self._graph = graph
        self._shapes = shapes
        self._calibration = calibration
        # Names of inputs and outputs in the converted file's signature.
        self.inputs = {name: f"i{i}" for i, name in enumerate(shapes)}
        self.outputs = {name: f"o{i}" for i, name in enumerate(outputs)}
        self._float: bytes | None = None
        self._widest: dict[str, dict[str, Array]] = {}

    def tensorflow_int8(self) -> bytes:
        """Return TensorFlow's full-integer model, with float inputs and outputs."""

        def configure(converter: tf.lite.TFLiteConverter) -> None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: (
                (_SIGNATURE, feed) for feed in self._feeds()
            )
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]

        return self._convert(configure)

    def litert_quantizer(self, column: str) -> bytes:
        """Return the model of a recipe in ``RECIPES``."""
        if self._float is None:
            self._float = self._convert(lambda converter: None)
        if column in DENSE_ONLY and not has_dense_layer(self._float):
            message = "the network has no dense layer"
            raise RefusedError(message)
        recipe = RecipeManager()
        RECIPES[column](recipe)
        try:
            quantizing = quantizer.Quantizer(self._float)
            quantizing.load_quantization_recipe(recipe.get_quantization_recipe())
            with redirect_stdout(sys.stderr):  # prints its progress
                return bytes(quantizing.quantize(self._ranges(column, quantizing)).quantized_model)
        except (ArithmeticError, LookupError, RuntimeError, ValueError, TypeError) as error:
            raise refused(error) from error

    def _ranges(
        self, column: str, quantizing: quantizer.Quantizer
    ) -> dict[str, dict[str, Any]] | None:
        """Return the ranges of a recipe, and what else its algorithm measures."""
        if not quantizing.need_calibration:
            return None
        if column == DEFAULT:
            return quantizing.calibrate({_SIGNATURE: list(self._feeds())})
        widest = self._widest_ranges()
        if not column.endswith(MEASURING):
            return widest
        ranges = quantizing.calibrate({_SIGNATURE: list(self._feeds())})
        return {name: {**values, **widest.get(name, {})} for name, values in ranges.items()}

    def _widest_ranges(self) -> dict[str, dict[str, Array]]:
        """Return the minimum and maximum of each tensor over all samples, by its name."""
        if not self._widest:
            recipe = RecipeManager()
            static(_PLAIN)(recipe)
            quantizing = quantizer.Quantizer(self._float)
            quantizing.load_quantization_recipe(recipe.get_quantization_recipe())
            for feed in self._feeds():
                for name, measured in quantizing.calibrate({_SIGNATURE: [feed]}).items():
                    before = self._widest.get(name, measured)
                    self._widest[name] = {
                        "min": np.minimum(before["min"], measured["min"]),
                        "max": np.maximum(before["max"], measured["max"]),
                    }
        return self._widest

    def _feeds(self) -> Iterator[dict[str, Array]]:
        for feed in self._calibration:
            yield {self.inputs[name]: values for name, values in feed.items()}

    def _convert(self, configure: Callable[[tf.lite.TFLiteConverter], None]) -> bytes:
        tf1 = tf.compat.v1
        definition = tf1.GraphDef.FromString(self._graph.read_bytes())
        for node in definition.node:
            if node.name in self._shapes and node.op == "Placeholder":
                shape = tf.TensorShape(self._shapes[node.name]).as_proto()
                node.attr["shape"].shape.CopyFrom(shape)
        with tempfile.TemporaryDirectory() as folder:
            model = str(Path(folder) / "model")
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(definition, name="")
                tensor = graph.get_tensor_by_name
                with tf1.Session(graph=graph) as session:
                    tf1.saved_model.simple_save(
                        session,
                        model,
                        {key: tensor(f"{name}:0") for name, key in self.inputs.items()},
                        {key: tensor(_tensor(name)) for name, key in self.outputs.items()},
                    )
            # Convert outside of the graph's context, or the signature would be lost.
            converter = tf.lite.TFLiteConverter.from_saved_model(model)
            configure(converter)
            try:
                return bytes(converter.convert())
            except (
                ConverterError,
                ArithmeticError,
                LookupError,
                RuntimeError,
                ValueError,
            ) as error:
                raise refused(error) from error


def has_dense_layer(model: bytes) -> bool:
    """Return whether a .tflite file has a dense layer."""
    return any(node.op == f"{PREFIX}FULLY_CONNECTED" for node in parse_tflite(model, "model").graph)


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"
