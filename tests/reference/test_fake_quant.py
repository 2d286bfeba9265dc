"""``insert_fake_quant`` against the code of TensorFlow 1.15's ``tf.contrib.quantize``.

That code is Python, and runs on TensorFlow 2 as well.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.transforms.base import Context, make_transform
from tests.reference.conftest import SHARED

pytestmark = pytest.mark.reference

PACKAGE = "tensorflow.contrib.quantize.python"


@pytest.fixture(scope="module", autouse=True)
def graph_mode(tf: ModuleType) -> Iterator[None]:
    """Run the tests of this module, and no others, with the behavior of TensorFlow 1."""
    tf.compat.v1.disable_v2_behavior()
    yield
    tf.compat.v1.reset_default_graph()
    tf.compat.v1.enable_v2_behavior()


@pytest.fixture(scope="module")
def contrib(original: Path, tf: ModuleType) -> Iterator[ModuleType]:
    """The module ``quantize_graph`` of the original."""
    from tensorflow.python.ops import control_flow_ops

    tf = tf.compat.v1
    patch = pytest.MonkeyPatch()
    patch.setattr(control_flow_ops, "cond", tf.cond, raising=False)
    for name in ("tensorflow.contrib", "tensorflow.contrib.quantize", PACKAGE):
        patch.setitem(sys.modules, name, ModuleType(name))
    folder = original / "tensorflow_core" / "contrib" / "quantize" / "python"
    sys.modules[PACKAGE].__path__ = [str(folder)]
    yield importlib.import_module(f"{PACKAGE}.quantize_graph")
    patch.undo()


class Networks:
    """Small networks, whose last node is ``out``.

    Args:
        tf: the module ``tensorflow.compat.v1``.
        training: whether batch normalizations use the statistics of the batch.
        fused: whether batch normalizations are single ops.
    """

    def __init__(self, tf: Any, *, training: bool, fused: bool = True) -> None:
        self.tf, self.training, self.fused = tf, training, fused
        self.image = tf.placeholder(tf.float32, [None, 8, 8, 3], name="x")

    def conv(self, x: Any, name: str, size: int = 4, *, bias: bool = True, **scope: Any) -> Any:
        tf = self.tf
        with tf.variable_scope(name, **scope):
            weights = tf.get_variable("weights", [3, 3, x.shape[-1], size])
            y = tf.nn.conv2d(x, weights, 1, "SAME")
            return tf.nn.bias_add(y, tf.get_variable("biases", [1, size])[0]) if bias else y

    def norm(self, x: Any, name: str) -> Any:
        """A batch normalization with moving averages."""
        tf = self.tf
        with tf.variable_scope(name):
            dims = [x.shape[-1]]
            gamma = tf.get_variable("gamma", dims, initializer=tf.random_uniform_initializer(1, 2))
            beta = tf.get_variable("beta", dims)
            mean = tf.get_variable("mean", dims, trainable=False)
            start = tf.random_uniform_initializer(0.5, 1.5)
            variance = tf.get_variable("variance", dims, trainable=False, initializer=start)
            if not self.training:
                if self.fused:
                    return tf.nn.fused_batch_norm(
                        x, gamma, beta, mean, variance, is_training=False
                    )[0]
                return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)
            if self.fused:
                y, batch_mean, batch_variance = tf.nn.fused_batch_norm(x, gamma, beta)
            else:
                batch_mean, batch_variance = tf.nn.moments(x, [0, 1, 2])
                y = tf.nn.batch_normalization(x, batch_mean, batch_variance, beta, gamma, 1e-3)
            for average, value in ((mean, batch_mean), (variance, batch_variance)):
                update = tf.assign_sub(average, (average - value) * 0.1)
                tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
            return y

    def residual(self) -> None:
        """Sums after a batch normalization and before Relu, and a dense layer."""
        tf = self.tf
        y = tf.nn.relu(self.conv(self.image, "net/first"))
        for block in ("net/one", "net/two"):
            z = tf.nn.relu(self.norm(self.conv(y, f"{block}/a", bias=False), f"{block}/a/norm"))
            z = self.norm(self.conv(z, f"{block}/b", bias=False), f"{block}/b/norm")
            y = tf.nn.relu(z + y)
        y = tf.reduce_mean(y, [1, 2])
        tf.add(tf.matmul(y, tf.get_variable("w", [4, 5])), tf.get_variable("b", [5]), name="out")

    def inverted(self) -> None:
        """Sums of batch normalizations without an activation, and a depthwise convolution."""
        tf = self.tf
        y = tf.nn.relu6(self.conv(self.image, "first"))
        for block in ("one", "two"):
            with tf.variable_scope(block):
                weights = tf.get_variable("weights", [3, 3, 4, 2])
                z = tf.nn.depthwise_conv2d(y, weights, [1, 1, 1, 1], "SAME")
            z = tf.nn.relu6(self.norm(z, f"{block}/norm"))
            y = self.norm(self.conv(z, f"{block}/b", bias=False), f"{block}/b/norm") + y
        tf.identity(self.conv(y, "last"), name="out")

    def linear(self) -> None:
        """Batch normalizations whose outputs are inputs of normalized convolutions.

        The original lets the second convolution read the first normalization, not the folded one.
        """
        y = self.image
        for name in ("one", "two"):
            y = self.norm(self.conv(y, name, bias=False), f"{name}/norm")
        self.tf.nn.relu(y, name="out")

    def sums(self) -> None:
        """Sums and products after activations, and layers that feed each other."""
        tf = self.tf
        y = tf.nn.relu(self.conv(self.image, "a"))
        w = y + tf.nn.relu(self.conv(y, "s/b"))
        v = tf.nn.max_pool(w * y, 2, 1, "SAME") + w
        r = self.conv(self.conv(v, "r"), "r2", bias=False)
        tf.multiply(tf.nn.sigmoid(r), r, name="out")

    def variables(self) -> None:
        """Resource variables, partitioned variables, and sums of two layers."""
        tf = self.tf
        y = tf.identity(self.conv(self.image, "a"))
        z = tf.nn.relu(self.conv(y, "b", use_resource=True))
        parts = tf.fixed_size_partitioner(2, axis=1)
        p = tf.nn.relu(self.conv(z, "p", bias=False, partitioner=parts))
        z = tf.concat([y, z, p], 3)
        tf.add(self.conv(z, "c") + self.conv(z, "d"), 1.0, name="out")

    def atrous(self) -> None:
        """A depthwise convolution between SpaceToBatchND and BatchToSpaceND."""
        tf = self.tf
        y = tf.space_to_batch_nd(self.image, [2, 2], [[2, 2], [2, 2]])
        weights = tf.get_variable("q/w", [3, 3, 3, 1])
        y = tf.nn.depthwise_conv2d(y, weights, [1, 1, 1, 1], "VALID", name="q/conv")
        y = tf.batch_to_space_nd(y, [2, 2], [[0, 0], [0, 0]])
        tf.nn.relu(self.norm(y, "q/norm"), name="out")


NAMES = ("residual", "inverted", "linear", "sums", "variables", "atrous")


def transformed(definition: Any, **options: Any) -> Graph:
    graph = graph_from_bytes(definition.SerializeToString(), "graph")
    return make_transform("insert_fake_quant", options).apply(graph, Context()).graph


def rounded(nodes: Any) -> dict[str, tuple[str, int, bool]]:
    """The tensor that each fake quantization rounds, its bits, and whether it is narrow."""
    return {
        n.name: (n.input[0], n.attr["num_bits"].i, n.attr["narrow_range"].b)
        for n in nodes
        if n.op == "FakeQuantWithMinMaxVars"
    }


def variables(nodes: Any) -> set[str]:
    return {n.name for n in nodes if n.op in ("VariableV2", "VarHandleOp")}


def as_definition(tf: Any, graph: Graph) -> Any:
    from mobileprep.graph.serde import graph_to_bytes

    return tf.GraphDef.FromString(graph_to_bytes(graph))


@pytest.mark.parametrize("options", [{}, {"scope": "net", "weight_bits": 4}, {"symmetric": True}])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_places_and_variables_are_those_of_the_original(contrib, tf, name, training, options):
    tf = tf.compat.v1
    with tf.Graph().as_default() as graph:
        getattr(Networks(tf, training=training), name)()
        before = graph.as_graph_def()
        create = f"experimental_create_{'training' if training else 'eval'}_graph"
        getattr(contrib, create)(graph, quant_delay=None, **options)
        theirs = graph.as_graph_def().node
    mode = "training" if training else "eval"
    ours = as_definition(tf, transformed(before, mode=mode, **options)).node
    assert rounded(ours) == rounded(theirs)
    assert variables(ours) == variables(theirs)
    assert bool(rounded(theirs)) == ("scope" not in options or name == "residual")


def test_places_are_those_in_a_network_that_1_15_trained(contrib, tf):
    """The training graph of ``made-qat-mnist-tf115``, without its fake quantization."""
    file = SHARED / "models" / "made-qat-mnist-tf115" / "train.ckpt-1260.meta"
    if not file.exists():
        pytest.skip("the trained network does not exist")
    tf = tf.compat.v1
    theirs = tf.MetaGraphDef.FromString(file.read_bytes()).graph_def
    quantized = {n.input[0]: n.name for n in theirs.node if n.op == "FakeQuantWithMinMaxVars"}
    before = without_fake_quants(tf, theirs)
    after = as_definition(tf, transformed(before))
    assert rounded(after.node) == rounded(theirs.node)
    assert len(quantized) == 14
    ranges = {v for v in variables(after.node) if "_quant/" in v}
    assert ranges == {v for v in variables(theirs.node) if "_quant/" in v and "Adam" not in v}


def without_fake_quants(tf: Any, definition: Any) -> Any:
    """Undo the rewrite: read the rounded tensors, and the batch norms that were folded."""
    parts = ("_quant/", "_Fold", "_fold", "correction_", "post_conv_mul", "fake_quantization_step")
    nodes = {n.name: n for n in definition.node}
    graph = tf.GraphDef(versions=definition.versions)

    def source(name: str) -> str:
        node = nodes[name.lstrip("^").partition(":")[0]]
        if node.name.endswith("/delayed_quant/Merge"):
            scope = node.name.removesuffix("/delayed_quant/Merge")
            return source(nodes[f"{scope}/FakeQuantWithMinMaxVars"].input[0])
        if node.name.endswith("/add_fold"):
            scope = node.name.removesuffix("/add_fold")
            return f"{scope}/BatchNorm/FusedBatchNormV3"
        return name

    for node in definition.node:
        of_optimizer = node.name.startswith(("gradients/", "Adam", "save/", "init", "beta"))
        if of_optimizer or "/Adam" in node.name or any(part in node.name for part in parts):
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(map(source, node.input))
    names = {n.name for n in graph.node}
    for node in graph.node:
        inputs = [i for i in node.input if i.lstrip("^").partition(":")[0] in names]
        if not all(i.startswith("^") for i in node.input if i not in inputs):
            raise AssertionError(node.name)
        del node.input[:]
        node.input.extend(inputs)
    return graph


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("residual", {}), ("inverted", {}), ("atrous", {})),
        *(("residual", {"quant_delay": 2}), ("inverted", {"quant_delay": 2})),
        # Not "inverted": the original ignores `symmetric` for sums without an activation.
        *(("residual", {"symmetric": True}), ("atrous", {"symmetric": True})),
    ],
)
def test_training_steps_are_those_of_the_original(contrib, tf, name, options):
    """Losses, gradients, and ranges of three steps, from the same initial variables."""
    tf = tf.compat.v1
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        getattr(Networks(tf, training=True), name)()
        before = tf.train.export_meta_graph(clear_devices=True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            initial = {v.name: v.eval(session) for v in tf.global_variables()}
        contrib.experimental_create_training_graph(graph, **options)
        theirs = trained(tf, graph, initial)
    with tf.Graph().as_default() as graph:
        import_transformed(tf, before, **options)
        ours = trained(tf, graph, initial)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        tolerance = 1e-4 * np.abs(value).max()
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["residual", "inverted", "linear", "atrous"])
def test_folding_alone_changes_no_loss_and_no_gradient(tf, name, fused):
    """Before rounding starts, the network trains like the one without fake quantization."""
    tf = tf.compat.v1
    with tf.Graph().as_default() as graph:
        getattr(Networks(tf, training=True, fused=fused), name)()
        before = tf.train.export_meta_graph()
        chance = np.random.default_rng(3)
        shapes = {v.name: tuple(v.shape) for v in tf.global_variables()}
        initial = {k: chance.uniform(0.5, 1.5, v).astype(np.float32) for k, v in shapes.items()}
        for key in initial:
            if "weights" in key:
                initial[key] -= 1
        plain = trained(tf, graph, initial)
    with tf.Graph().as_default() as graph:
        import_transformed(tf, before, quant_delay=1000)
        folded = trained(tf, graph, initial)
    for key, value in plain.items():
        # Gradients of scales are differences of large float32 sums.
        tolerance = 1e-3 * np.abs(value).max()
        np.testing.assert_allclose(folded[key], value, rtol=0, atol=tolerance, err_msg=key)


def test_learned_ranges_are_trained(tf):
    tf = tf.compat.v1
    with tf.Graph().as_default():
        Networks(tf, training=True).residual()
        before = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph:
        import_transformed(tf, before, ranges="learned", granularity="channel")
        ranges = [v for v in tf.trainable_variables() if "_quant/" in v.name]
        assert len(ranges) == 28
        channels = {v.shape.as_list()[0] for v in ranges if v.shape.rank == 1}
        assert channels == {4, 5}
        results = trained(tf, graph, {})
    moved = [k for k, v in results.items() if "gradient 0" in k and "act_quant" in k and np.any(v)]
    assert moved


def import_transformed(tf: Any, meta: Any, **options: Any) -> None:
    """Import a MetaGraph after the transform, as the command line writes it."""
    import tempfile

    from mobileprep.cli.main import main

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.meta"), Path(folder, "out.meta")
        source.write_bytes(meta.SerializeToString())
        text = ", ".join(f"{k}={str(v).lower()}" for k, v in options.items())
        chain = f"insert_fake_quant({text})"
        flags = [f"--in_graph={source}", f"--out_graph={target}", f"--transforms={chain}"]
        assert main(["transform", *flags]) == 0
        tf.train.import_meta_graph(str(target))


def one_thread(tf):
    """Create a session whose sums have the same order in each run: rounding is not continuous."""
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    return tf.Session(config=config)


def trained(tf: Any, graph: Any, initial: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Loss and gradients of three batches, and the ranges after them."""
    loss = tf.reduce_mean(tf.square(graph.get_tensor_by_name("out:0") - 0.5))
    names = [v.name for v in tf.trainable_variables()]
    # Not applied: in the graph of 1.15, it is not fixed whether others read the variable before.
    pairs = zip(names, tf.gradients(loss, tf.trainable_variables()), strict=True)
    gradients = {name: gradient for name, gradient in pairs if gradient is not None}
    images = np.random.default_rng(0).standard_normal((3, 16, 8, 8, 3)).astype(np.float32)
    results = {}
    with one_thread(tf) as session:
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            if variable.name in initial:
                variable.load(initial[variable.name], session)
        for number, batch in enumerate(images):
            values = session.run([loss, gradients], {"x:0": batch})
            results[f"loss {number}"] = values[0]
            results |= {f"gradient {number} of {k}": v for k, v in values[1].items()}
        results |= {v.name: v.eval(session) for v in tf.global_variables()}
    return results


RECIPE = """
version: 1
name: digits
source: {{graph: eval.pb, checkpoint: quantized.ckpt}}
inputs:
  image: {{dtype: float32, shape: [-1, 28, 28, 1]}}
outputs: [probabilities]
transforms: [strip_unused_nodes, downgrade, fold_constants]
calibration: {{data: {data}/calibration.npz, method: min_max}}
validation: {{data: {data}/test.npz, labels: label, metric: top1, max_drop: 0.005}}
targets:
  nodes: {{platform: android, quantize: {{mode: nodes, ranges: trained}}}}
  lite: {{platform: android, artifact: tflite, quantize: {{mode: int8, ranges: trained}}}}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("work_dir")
def test_the_mnist_network_trains_and_keeps_its_accuracy_in_8_bits(tf, monkeypatch):
    """300 steps from the float checkpoint, then int8 builds with the trained ranges."""
    pytest.importorskip("ai_edge_litert")
    import mobileprep
    from mobileprep.cli.main import main

    tf = tf.compat.v1
    folder = Path(__file__).resolve().parents[2] / "recipes" / "mnist"
    monkeypatch.syspath_prepend(str(folder))
    network = importlib.import_module("network")
    checkpoint = str(folder / "model" / "model.ckpt-4000")
    with tf.Graph().as_default():
        image = tf.placeholder(tf.float32, [None, 28, 28, 1], name="image")
        logits = network.network(image, network.FloatLayers(training=True))
        label = tf.placeholder(tf.int64, [None], name="label")
        tf.losses.sparse_softmax_cross_entropy(label, logits)
        before = tf.train.export_meta_graph()
    with np.load(folder / "data" / "calibration.npz") as data:
        images = data["image"]
    with np.load(folder / "data" / "test.npz") as data:
        tests, answers = data["image"], data["label"]
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.float32, [None, 28, 28, 1], name="image")
        logits = network.network(image, network.FloatLayers(training=False))
        tf.train.Saver().restore(session, checkpoint)
        labels, predictions = (
            np.argmax(session.run(logits, {image: x}), 1) for x in (images, tests)
        )
    in_float = float(np.mean(predictions == answers))
    assert in_float == 0.987
    with tf.Graph().as_default():
        import_transformed(tf, before)
        step = tf.train.AdamOptimizer(5e-4)
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies(updates):
            step = step.minimize(tf.losses.get_total_loss())
        stored = {name for name, _ in tf.train.list_variables(checkpoint)}
        saved = [v for v in tf.global_variables() if v.op.name in stored]
        assert len(saved) == 57
        chance = np.random.default_rng(0)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver(saved).restore(session, checkpoint)
            for _ in range(300):
                chosen = chance.integers(len(images), size=64)
                shifted = np.roll(images[chosen], chance.integers(-2, 3, 2), (1, 2))
                session.run(step, {"image:0": shifted, "label:0": labels[chosen]})
            tf.train.Saver().save(session, "quantized.ckpt")
    flags = ["--inputs=image", "--outputs=probabilities", "--out_graph=eval.pb"]
    graph = folder / "model" / "graph.pbtxt"
    chain = "insert_fake_quant(mode=eval)"
    assert main(["transform", f"--in_graph={graph}", *flags, f"--transforms={chain}"]) == 0
    Path("recipe.yaml").write_text(RECIPE.format(data=folder / "data"), encoding="utf-8")
    built = mobileprep.build("recipe.yaml", warn=print)
    for target in built.targets:
        assert target.report.accuracy is not None
        (metric,) = target.report.accuracy.metrics
        assert metric.after is not None
        assert metric.after >= in_float - 0.005, target.folder
