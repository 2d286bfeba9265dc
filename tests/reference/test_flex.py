"""Flex operators match those of TensorFlow's converter."""

from __future__ import annotations

from types import ModuleType

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.flatbuffer import root_table
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from tests.litert.graphs import feed, op
from tests.litert.test_flex import record

pytestmark = pytest.mark.reference


def options_of(content: bytes, name: str) -> tuple[str, bytes]:
    """The op and the serialized NodeDef of a custom operator."""
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    model = root_table(layout(), "Model", content)
    codes = [code.text("custom_code") for code in model.tables("operator_codes")]
    operators = next(model.tables("subgraphs")).tables("operators")
    (operator,) = [o for o in operators if codes[o.number("opcode_index")] == name]
    parts = flexbuffers.GetRoot(
        bytearray(operator.array("custom_options", "u1").tobytes())
    ).AsVector
    return parts[0].AsString, bytes(parts[1].AsStringBytes)


@pytest.mark.filterwarnings("ignore")
def test_options_match_the_tensorflow_converter(tf: ModuleType) -> None:
    """No wheel has an interpreter with the Flex delegate, so only the files are compared."""
    spec = tf.TensorSpec((3, 3), tf.float32)
    function = tf.function(lambda x: tf.linalg.inv(x) * 2.0, input_signature=[spec])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    sets = tf.lite.OpsSet
    converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS, sets.SELECT_TF_OPS]
    theirs = options_of(converter.convert(), "FlexMatrixInverse")
    nodes = [feed("x", (3, 3)), op("y", "MatrixInverse", ["x"], T=DType.FLOAT, adjoint=False)]
    ours = options_of(bytes(model_bytes(record(Graph(nodes)))), "FlexMatrixInverse")
    assert ours[0] == theirs[0] == "MatrixInverse"
    mine, expected = (tf.compat.v1.NodeDef.FromString(side[1]) for side in (ours, theirs))
    expected.ClearField("experimental_debug_info")
    assert mine == expected
