"""This package and TensorFlow in one process, imported in either order."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier

pytestmark = pytest.mark.reference

OURS = """
from pathlib import Path
from mobileprep.formats.protos import checkpoint_pb2, graph_pb2, graph_text_pb2
from mobileprep.formats.protos import memmapped_pb2, saved_model_pb2
from mobileprep.graph.files import read_graph
"""
THEIRS = "import tensorflow as tf\n"
# Both read the same file with their own message classes.
BOTH = """
import sys
import numpy as np
from mobileprep.runtime.interpreter import Interpreter
path = Path(sys.argv[1])
x = np.arange(6, dtype=np.float32).reshape(2, 3)
(ours,) = Interpreter(read_graph(path)).run(["y"], {"x": x})
proto = tf.compat.v1.GraphDef.FromString(path.read_bytes())
assert type(proto) is not graph_pb2.GraphDef
assert graph_pb2.GraphDef.FromString(proto.SerializeToString()).node[0].name == "x"
with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
    tf.import_graph_def(proto, name="")
    (theirs,) = session.run(["y:0"], {"x:0": x})
assert np.array_equal(ours, theirs), (ours, theirs)
print("both")
"""


@pytest.mark.parametrize(
    "order", [OURS + THEIRS, THEIRS + OURS], ids=["ours-first", "theirs-first"]
)
def test_import_with_tensorflow_in_either_order(tmp_path: Path, order: str) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow-cpu is not installed")
    write_graph(tmp_path / "g.pb", classifier(scale=2.0, shift=float(np.float32(0.5))))
    done = subprocess.run(
        [sys.executable, "-c", order + BOTH, str(tmp_path / "g.pb")],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "both\n"
