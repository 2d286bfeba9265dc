"""Compare the time and memory of freezing with TensorFlow's freeze_graph.

    python benchmarks/freeze.py [--tensorflow PYTHON]

PYTHON is an interpreter that can import TensorFlow, by default this one. It also writes the models:
a ResNet-50 with 25.6 million parameters, and a model of 1.5 GB. Whole processes are measured, and
the tools run alternately. Limits: 0.25 times the wall time of freeze_graph, and for the large model
a peak memory of 1.3 times the size of the checkpoint.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import alternate, measure, mobileprep

MODELS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
folder, what = sys.argv[1:]

def weights(name, shape):
    return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=0.01))

def layer(x, name, size, filters, stride=1, relu=True):
    with tf.variable_scope(name):
        kernel = weights("weights", [size, size, x.shape[-1], filters])
        x = tf.nn.conv2d(x, kernel, strides=[1, stride, stride, 1], padding="SAME")
        ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
        gamma = tf.get_variable("gamma", [filters], initializer=ones)
        variance = tf.get_variable("variance", [filters], initializer=ones)
        beta = tf.get_variable("beta", [filters], initializer=zeros)
        mean = tf.get_variable("mean", [filters], initializer=zeros)
        x, _, _ = tf.nn.fused_batch_norm(x, gamma, beta, mean, variance, is_training=False)
        return tf.nn.relu(x) if relu else x

def resnet(x):
    x = layer(x, "stem", 7, 64, 2)
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for stage, (blocks, filters) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            name, stride = f"block{stage}_{block}", 2 if stage and not block else 1
            y = layer(x, name + "/a", 1, filters)
            y = layer(y, name + "/b", 3, filters, stride)
            y = layer(y, name + "/c", 1, 4 * filters, relu=False)
            if not block:
                x = layer(x, name + "/shortcut", 1, 4 * filters, stride, relu=False)
            x = tf.nn.relu(x + y)
    x = tf.reduce_mean(x, [1, 2])
    return tf.matmul(x, weights("dense/weights", [2048, 1000])) + weights("dense/bias", [1000])

def wide(x):
    for i in range(24):
        x = tf.matmul(x, weights(f"w{i}", [4096, 4096]))
    return x

with tf.Graph().as_default() as graph:
    shape = [None, 224, 224, 3] if what == "resnet" else [None, 4096]
    x = tf.placeholder(tf.float32, shape, name="x")
    tf.nn.softmax(resnet(x) if what == "resnet" else wide(x), name="y")
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        saver.save(session, folder + "/model.ckpt", write_meta_graph=False)
    tf.train.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        against_freeze_graph(made(args.tensorflow, Path(name), "resnet"), args)
    with tempfile.TemporaryDirectory() as name:
        in_memory(made(args.tensorflow, Path(name), "wide"))


def made(tensorflow: str, folder: Path, what: str) -> Path:
    subprocess.run([tensorflow, "-c", MODELS, str(folder), what], check=True, capture_output=True)
    return folder


def flags(folder: Path, out: str) -> list[str]:
    return [
        f"--input_graph={folder / 'graph.pb'}",
        "--input_binary=true",
        f"--input_checkpoint={folder / 'model.ckpt'}",
        f"--output_graph={folder / out}",
        "--output_node_names=y",
    ]


def against_freeze_graph(folder: Path, args: argparse.Namespace) -> None:
    size = sum(p.stat().st_size for p in folder.glob("model.ckpt.data*"))
    theirs_command = [args.tensorflow, "-m", "tensorflow.python.tools.freeze_graph"]
    ours, theirs = alternate(
        [mobileprep(), "freeze", *flags(folder, "ours.pb")],
        [*theirs_command, *flags(folder, "theirs.pb")],
        runs=args.runs,
    )
    same = (folder / "ours.pb").stat().st_size / (folder / "theirs.pb").stat().st_size
    print(f"ResNet-50, {size / 1e6:.0f} MB (our frozen graph has {same:.4f} times the bytes):")
    print(f"  ours   {ours.median:.2f} s (best {ours.best:.2f}), {ours.peak / 1e6:.0f} MB")
    print(f"  theirs {theirs.median:.2f} s (best {theirs.best:.2f}), {theirs.peak / 1e6:.0f} MB")
    print(f"  wall time ratio {ours.median / theirs.median:.3f} (bound 0.25)")


def in_memory(folder: Path) -> None:
    size = sum(p.stat().st_size for p in folder.glob("model.ckpt.data*"))
    ours = measure([mobileprep(), "freeze", *flags(folder, "ours.pb")], runs=1)
    print(f"checkpoint of {size / 1e9:.2f} GB: {ours.best:.1f} s, {ours.peak / 1e9:.2f} GB")
    print(f"  memory over size {ours.peak / size:.2f} (bound 1.3)")


if __name__ == "__main__":
    main()
