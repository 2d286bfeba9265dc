"""Loops, branches, and TensorArrays of TensorFlow 1, each a function from "x" to a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Build = Callable[[Any, Any], Any]
"""From TensorFlow and a placeholder of three numbers to the output tensor."""


def written(tf: Any, x: Any) -> Any:
    """An array of known size."""
    array = tf.TensorArray(tf.float32, size=5)
    body = lambda i, a: (i + 1, a.write(i, x * tf.cast(i, tf.float32)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 5, body, [0, array])[1].stack()


def grown(tf: Any, x: Any) -> Any:
    """An array whose size depends on an input."""
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    turns = tf.cast(tf.abs(x[0]), tf.int32) % 7 + 1
    body = lambda i, a: (i + 1, a.write(i, x * tf.cast(i, tf.float32)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < turns, body, [0, array])[1].stack()


def joined(tf: Any, x: Any) -> Any:
    """Elements of many lengths."""
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False)

    def body(i: Any, a: Any) -> Any:
        numbers = tf.range(tf.cast(i + 1, tf.float32))
        return i + 1, a.write(i, tf.reshape(numbers, [-1]) * x[0])

    return tf.while_loop(lambda i, _: i < 4, body, [0, array])[1].concat()


def joined_alike(tf: Any, x: Any) -> Any:
    """Elements of one length."""
    array = tf.TensorArray(tf.float32, size=4)
    body = lambda i, a: (i + 1, a.write(i, x + tf.cast(i, tf.float32)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 4, body, [0, array])[1].concat()


def read_backwards(tf: Any, x: Any) -> Any:
    """One array is read while another is written."""
    count = tf.shape(x)[0]
    source = tf.TensorArray(tf.float32, size=count).unstack(x)
    sums = tf.TensorArray(tf.float32, size=count)

    def body(i: Any, total: Any, a: Any) -> Any:
        return i + 1, total + source.read(count - 1 - i), a.write(i, total)

    results = tf.while_loop(lambda i, *_: i < count, body, [0, 0.0, sums])
    return results[2].stack() + results[1]


def cut_and_read(tf: Any, x: Any) -> Any:
    """An array of parts of a tensor."""
    array = tf.TensorArray(tf.float32, size=3).split(tf.tile(x, [2]), [2, 2, 2])
    return array.read(1) + array.read(2)


def scattered(tf: Any, x: Any) -> Any:
    """Elements in another order."""
    array = tf.TensorArray(tf.float32, size=4).scatter([3, 1, 0, 2], tf.tile(x, [4])[:4])
    return array.stack()


def mapped(tf: Any, x: Any) -> Any:
    """map_fn."""
    return tf.map_fn(lambda v: v * v + 1, x)


def mapped_within(tf: Any, x: Any) -> Any:
    """map_fn in map_fn."""
    return tf.map_fn(lambda v: tf.map_fn(lambda w: w * v + 1, x), x)


def scanned(tf: Any, x: Any) -> Any:
    """scan."""
    return tf.scan(lambda a, v: a + v * 2, x)


def folded(tf: Any, x: Any) -> Any:
    """foldl and foldr."""
    from_left = tf.foldl(lambda a, v: a * 0.5 + v, x)
    return from_left + tf.foldr(lambda a, v: a * 0.5 + v, x)


def limited(tf: Any, x: Any) -> Any:
    """A loop of at most seven iterations."""
    return tf.while_loop(
        lambda v: v < 1e9, lambda v: [v * 2.0], [tf.abs(x[0]) + 1], maximum_iterations=7
    )


def loop_of_branches_in_a_branch(tf: Any, x: Any) -> Any:
    """Branches in branches in a loop in a branch."""

    def body(i: Any, a: Any) -> Any:
        inner = lambda: tf.cond(i > 3, lambda: a + x, lambda: a - x)  # noqa: E731
        return i + 1, tf.cond(tf.equal(i % 2, 0), inner, lambda: a)

    loop = lambda: tf.while_loop(lambda i, _: i < 7, body, [0, x])[1]  # noqa: E731
    return tf.cond(x[0] > 0, loop, lambda: -x)


def passed_through(tf: Any, x: Any) -> Any:
    """A branch that does nothing."""
    return tf.cond(x[0] > 0, lambda: tf.identity(x), lambda: x * 2)


def two_results(tf: Any, x: Any) -> Any:
    """Branches of two results."""
    a, b = tf.cond(x[0] > 0, lambda: (x + 1, x * 2), lambda: (x - 1, x))
    return a * b


def one_after_another(tf: Any, x: Any) -> Any:
    """Four conditionals on one predicate, each reading the output of the previous one."""
    positive, y = x[0] > 0, x
    for _ in range(4):
        y = tf.cond(positive, lambda y=y: y * 2 + 1, lambda y=y: y - 1)
    return y


def decided(tf: Any, x: Any) -> Any:
    """A constant predicate."""
    return tf.cond(tf.identity(tf.constant(True)), lambda: x + 1, lambda: x * 5)


def beam(tf: Any, x: Any) -> Any:
    """A beam search of three beams, whose states are gathered."""
    logits = tf.reshape(tf.tile(x, [4]), [3, 4])

    def body(i: Any, tokens: Any, score: Any, past: Any) -> Any:
        total = score[:, None] + tf.nn.log_softmax(logits * tf.cast(i + 1, tf.float32))
        best, places = tf.nn.top_k(tf.reshape(total, [-1]), 3)
        chosen = places % 4
        past = tf.concat([tf.gather(past, places // 4)[:, 1:], chosen[:, None]], 1)
        return i + 1, chosen, best, past

    begin = [0, tf.zeros([3], tf.int32), tf.zeros([3]), tf.zeros([3, 5], tf.int32)]
    results = tf.while_loop(lambda i, *_: i < 5, body, begin)
    return tf.cast(results[3], tf.float32) + results[2][:, None]


def lengthened(tf: Any, x: Any) -> Any:
    """A tensor that grows in each iteration."""
    return tf.while_loop(
        lambda i, _: i < 4,
        lambda i, a: (i + 1, tf.concat([a, x[:1]], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1]


def joined_and_added(tf: Any, x: Any) -> Any:
    """Joined elements, whose shape the rest of the graph depends on."""
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False)
    results = tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, a.write(i, x)), [0, array])
    return tf.reshape(results[1].concat(), [-1])[:3] + tf.ones([3])


def one_reads_another(tf: Any, x: Any) -> Any:
    """A loop that reads the output of an earlier loop in each iteration."""
    first = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.tanh(v)), [0, x])[1]
    return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v + first), [0, x])[1]


def array_in_a_loop(tf: Any, x: Any) -> Any:
    """An array of constant size that each iteration creates."""

    def body(i: Any, v: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=2)
        write = lambda j, a: (j + 1, a.write(j, x * tf.cast(i + j, tf.float32)))  # noqa: E731
        rows = tf.while_loop(lambda j, _: j < 2, write, [0, array])[1].stack()
        return i + 1, v + tf.reduce_sum(rows, 0)

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]


BUILDS: list[Build] = [
    *(written, grown, joined, joined_alike, read_backwards, cut_and_read, scattered),
    *(mapped, mapped_within, scanned, folded, limited, loop_of_branches_in_a_branch),
    *(passed_through, two_results, one_after_another, decided, beam, lengthened),
    *(joined_and_added, one_reads_another, array_in_a_loop),
]
