"""``explain`` recognizes error messages of TensorFlow and LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mobileprep
from mobileprep.error_codes import find_app_message
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.litert.graphs import feed, op

pytestmark = pytest.mark.reference
SHAPE = (3, 3)


def explained(call: Callable[[], Any]) -> tuple[str, dict[str, str]]:
    """The error code and the names for the error that a call raises."""
    with pytest.raises(Exception, match=r".") as caught:
        call()
    match = find_app_message(str(caught.value))
    assert match is not None, str(caught.value)
    return match[0].code, match[1]


def litert(path: Path, value: Any = None) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(path))
    interpreter.allocate_tensors()
    if value is not None:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()


def converted(path: Path, name: str, **attrs: Any) -> Path:
    """A file with one operator, for the Flex delegate if LiteRT does not support it."""
    graph = Graph([feed("x", SHAPE), op("y", name, ["x"], T=DType.FLOAT, **attrs)])
    mobileprep.to_tflite(graph, path, flex=True)
    return path


def test_litert_without_the_flex_delegate(tmp_path: Path) -> None:
    model = converted(tmp_path / "flex.tflite", "MatrixInverse", adjoint=False)
    assert explained(lambda: litert(model)) == ("MP106", {"op": "MatrixInverse"})


def test_litert_with_wrong_shape_and_dtype(tmp_path: Path) -> None:
    model = converted(tmp_path / "relu.tflite", "Relu")
    for value in (np.zeros((3, 4), np.float32), np.zeros(SHAPE, np.float64)):
        assert explained(lambda v=value: litert(model, v)) == ("MP111", {})


def test_litert_with_an_invalid_file(tmp_path: Path) -> None:
    (tmp_path / "bad.tflite").write_bytes(b"\x1c\0\0\0TFL9" + bytes(64))
    assert explained(lambda: litert(tmp_path / "bad.tflite")) == ("MP112", {})


def test_tensorflow_load_and_run_errors(tf: ModuleType) -> None:
    v1 = tf.compat.v1

    def graph(change: Callable[[Any], None]) -> Any:
        with v1.Graph().as_default() as built:
            tf.identity(v1.placeholder(tf.float32, SHAPE, name="x"), name="y")
        definition = built.as_graph_def()
        change(definition)
        return definition

    def load(definition: Any) -> Any:
        with v1.Graph().as_default() as loaded:
            v1.import_graph_def(definition, name="")
        return loaded

    def unknown_op(definition: Any) -> None:
        definition.node[1].op = "MatrixDiagV99"

    def newer(definition: Any) -> None:
        definition.versions.min_consumer = 999_999

    assert explained(lambda: load(graph(unknown_op))) == ("MP103", {"op": "MatrixDiagV99"})
    assert explained(lambda: load(graph(newer))) == ("MP110", {"version": "999999"})
    with v1.Session(graph=load(graph(lambda _: None))) as session:
        assert explained(lambda: session.run("y:0")) == ("MP108", {"node": "x"})
    assert explained(lambda: v1.Session("bogus://server")) == ("MP104", {})


def test_tensorflow_with_uninitialized_variables(tf: ModuleType) -> None:
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph:
        old = v1.Variable([1.0], use_resource=False, name="dense/kernel")
        new = v1.Variable([1.0], use_resource=True, name="dense/bias").read_value()
        old = tf.identity(old)
    with v1.Session(graph=graph) as session:
        assert explained(lambda: session.run(old)) == ("MP109", {"node": "dense/kernel"})
        assert explained(lambda: session.run(new)) == ("MP109", {})
