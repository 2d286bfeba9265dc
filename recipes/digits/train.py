"""Train the digits network, and write its training graph, sharded checkpoint, and data sets.

The recipe in this directory starts from these files, which a TensorFlow 1 training job would write.
Only training needs TensorFlow and scikit-learn:

    pip install tensorflow-cpu scikit-learn
    python recipes/digits/train.py

The same versions on the same machine write the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

try:
    import numpy as np
    import tensorflow.compat.v1 as tf
    from google.protobuf import text_format
    from network import network
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ModuleNotFoundError as error:
    message = (
        f"train.py: no module named {error.name!r}. Training needs TensorFlow and scikit-learn: "
        "pip install tensorflow-cpu scikit-learn. Building the recipe needs neither."
    )
    raise SystemExit(message) from error

SEED = 7
PIXEL_MAX = 16.0  # scikit-learn's pixels are counts from 0 to 16
TEST_FRACTION = 0.25
CALIBRATION_IMAGES = 100

STEPS = 1000
BATCH = 64
LEARNING_RATE = 0.01
WEIGHT_DECAY = 1e-4
AVERAGE_DECAY = 0.99
MINIMUM_ACCURACY = 0.97
# Attributes that TensorFlow 1.15 does not have, by op.
NEWER_ATTRIBUTES = {
    "DepthwiseConv2dNative": ("explicit_paddings",),
    "DepthwiseConv2dNativeBackpropFilter": ("explicit_paddings",),
    "DepthwiseConv2dNativeBackpropInput": ("explicit_paddings",),
    "MatMul": ("grad_a", "grad_b"),
}

# In place of two parameter servers: a sharded saver writes a shard for each device with variables.
CONVOLUTION_DEVICE = "/device:CPU:0"
DENSE_DEVICE = "/device:CPU:1"


@dataclass(frozen=True)
class Split:
    """Images as float32 [N, 8, 8, 1] in [0, 1] and labels as int64 [N]."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class TrainingGraph:
    """The graph, and the ops that the training loop runs."""

    graph: tf.Graph
    initialize: tf.Operation
    train_step: tf.Operation
    summaries: tf.Tensor
    saver: tf.train.Saver


def load_splits() -> tuple[Split, Split]:
    """Return scikit-learn's digits as a training and a test split, stratified by label."""
    digits = load_digits()
    images = (digits.images / PIXEL_MAX).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=TEST_FRACTION, stratify=labels, random_state=SEED
    )
    return Split(train_images, train_labels), Split(test_images, test_labels)


def place_variable(operation: tf.Operation) -> str:
    """Return the device of a variable, by its layer; other operations keep theirs."""
    if operation.type not in ("VariableV2", "VarHandleOp"):
        return operation.device
    is_dense = operation.name.startswith(("Dense/", "Logits/"))
    return DENSE_DEVICE if is_dense else CONVOLUTION_DEVICE


def weight_decay() -> tf.Tensor:
    """Return the L2 penalty of the weights of all layers."""
    weights = [var for var in tf.trainable_variables() if var.op.name.endswith("/weights")]
    return WEIGHT_DECAY * tf.add_n([tf.nn.l2_loss(var) for var in weights])


def add_training(loss: tf.Tensor) -> tf.Operation:
    """Add Adam, moving averages, and histograms, and return the op for one step of all."""
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(LEARNING_RATE, global_step, STEPS // 10, 0.7, staircase=True)
    optimizer = tf.train.AdamOptimizer(rate)
    gradients = optimizer.compute_gradients(loss)
    for gradient, variable in gradients:
        tf.summary.histogram(variable.op.name, variable)
        tf.summary.histogram(f"{variable.op.name}/gradient", gradient)
    tf.summary.scalar("learning_rate", rate)

    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        apply_gradients = optimizer.apply_gradients(gradients, global_step=global_step)
    averages = tf.train.ExponentialMovingAverage(AVERAGE_DECAY, num_updates=global_step)
    with tf.control_dependencies([apply_gradients]):
        return averages.apply(tf.trainable_variables())


def build_training_graph() -> TrainingGraph:
    """Build the inference and training networks, the optimizer, the summaries, and the saver."""
    with tf.Graph().as_default() as graph, tf.device(place_variable):
        tf.set_random_seed(SEED)
        image = tf.placeholder(tf.float32, [None, 8, 8, 1], name="image")
        label = tf.placeholder(tf.int64, [None], name="label")
        inference_logits = network(image, training=False)
        tf.nn.softmax(inference_logits, name="probabilities")
        with tf.name_scope("accuracy"):
            correct = tf.equal(tf.argmax(inference_logits, axis=1), label)
            tf.summary.scalar("accuracy", tf.reduce_mean(tf.cast(correct, tf.float32)))

        with tf.name_scope("training"):
            logits = network(image, training=True)
            cross_entropy = tf.losses.sparse_softmax_cross_entropy(label, logits)
            loss = cross_entropy + weight_decay()
        tf.summary.scalar("cross_entropy", cross_entropy)
        tf.summary.scalar("loss", loss)
        train_step = add_training(loss)
        return TrainingGraph(
            graph,
            initialize=tf.global_variables_initializer(),
            train_step=train_step,
            summaries=tf.summary.merge_all(),
            saver=tf.train.Saver(sharded=True, save_relative_paths=True),
        )


def session_config() -> tf.ConfigProto:
    """Return settings for two CPU devices and one thread, so that sums have a fixed order."""
    return tf.ConfigProto(
        device_count={"CPU": 2}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )


def batches(split: Split) -> Iterator[dict[str, np.ndarray]]:
    """Yield shuffled batches as feeds without end; omit the rest of an epoch."""
    generator = np.random.default_rng(SEED)
    while True:
        order = generator.permutation(len(split.images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield {"image:0": split.images[chosen], "label:0": split.labels[chosen]}


def train(training: TrainingGraph, split: Split, folder: Path, event_folder: Path | None) -> str:
    """Train, write the graph and the checkpoint to `folder`, and return the checkpoint's prefix.

    With `event_folder`, write summaries for TensorBoard there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    graph_def = without_newer_attributes(training.graph.as_graph_def())
    tf.io.write_graph(graph_def, str(folder), "graph.pbtxt", as_text=True)
    events = tf.summary.FileWriter(str(event_folder)) if event_folder else None
    with tf.Session(graph=training.graph, config=session_config()) as session:
        session.run(training.initialize)
        for step, feed in enumerate(islice(batches(split), STEPS)):
            # In the same run, because dropout would be different in another one.
            _, summaries = session.run([training.train_step, training.summaries], feed)
            if events:
                events.add_summary(summaries, step)
        if events:
            events.close()
        return training.saver.save(
            session, str(folder / "model.ckpt"), global_step=STEPS, write_meta_graph=False
        )


def without_newer_attributes(graph_def: tf.GraphDef) -> tf.GraphDef:
    """Remove attributes that TensorFlow 1.15 does not have; all have their defaults."""
    for node in graph_def.node:
        for name in NEWER_ATTRIBUTES.get(node.op, ()):
            del node.attr[name]
    return graph_def


def measure(graph_file: Path, checkpoint: str, saver: tf.train.Saver, split: Split) -> float:
    """Return the top-1 accuracy of `probabilities`, from the files that `train` wrote."""
    graph_def = text_format.Parse(graph_file.read_text(encoding="utf-8"), tf.GraphDef())
    names = saver.as_saver_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    with tf.Session(graph=graph, config=session_config()) as session:
        session.run(names.restore_op_name, {names.filename_tensor_name: checkpoint})
        probabilities = session.run("probabilities:0", {"image:0": split.images})
    return float(np.mean(np.argmax(probabilities, axis=1) == split.labels))


def write_data(folder: Path, training: Split, test: Split) -> None:
    """Write the calibration data, which are the first training images, and the test data."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "calibration.npz", image=training.images[:CALIBRATION_IMAGES])
    np.savez_compressed(folder / "test.npz", image=test.images, label=test.labels)


def parse_arguments() -> argparse.Namespace:
    """Return the directories of the command line."""
    parser = argparse.ArgumentParser(description="Train the digits network.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent,
        help="directory for model/ and data/ [default: that of this script]",
    )
    parser.add_argument(
        "--summaries", type=Path, help="directory for the summaries for TensorBoard"
    )
    return parser.parse_args()


def main() -> None:
    """Train, write the model and the data, and print the test accuracy of the written files."""
    arguments = parse_arguments()
    tf.disable_v2_behavior()
    training_split, test_split = load_splits()
    training = build_training_graph()
    model = arguments.out / "model"
    checkpoint = train(training, training_split, model, arguments.summaries)
    write_data(arguments.out / "data", training_split, test_split)
    accuracy = measure(model / "graph.pbtxt", checkpoint, training.saver, test_split)
    print(f"test accuracy: {accuracy:.4f} on {len(test_split.labels)} images")
    if accuracy < MINIMUM_ACCURACY:
        shortfall = f"train.py: test accuracy is below {MINIMUM_ACCURACY:.2f}"
        raise SystemExit(shortfall)


if __name__ == "__main__":
    main()
