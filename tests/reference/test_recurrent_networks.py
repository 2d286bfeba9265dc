"""Recurrent Keras networks in LiteRT match TensorFlow."""

from __future__ import annotations

from types import ModuleType

import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from tests.litert.graphs import answered
from tests.reference.golden import assert_close
from tests.reference.recurrent_networks import NETWORKS, keras_network, sequence

FUSED = {"UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"}

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("eager")]


# Networks with cells that LiteRT has no operator for.
LOOPS = ("gru", "hard sigmoid", "convolutional")


@pytest.mark.parametrize("batch", [1, None])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_keras_networks(name: str, batch: int | None, tf: ModuleType) -> None:
    function, graph, fed, fetched = keras_network(tf, name, batch)
    record = converted(graph, [CutInput(fed)], [fetched])
    content = model_bytes(record)
    found = {operator.code.builtin for operator in record.subgraphs[0].operators}
    if batch:
        is_loop = any(word in name for word in LOOPS)
        assert ("WHILE" in found) is is_loop
        assert bool(found & FUSED) is not is_loop
    values = sequence(name, 1 if batch else 3)
    expected = function(tf.constant(values)).numpy()
    # Twice, because no state may remain.
    for found in (answered(content, [values]), answered(content, [values])):
        assert_close(found, [expected], 1e-5)
