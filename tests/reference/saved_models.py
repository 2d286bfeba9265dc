"""Small models in every format that TensorFlow saves, with their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Build = Callable[[ModuleType, Path], "Saved"]

SEED = 11


@dataclass(frozen=True)
class Saved:
    """A saved model.

    Args:
        source: the keywords of ``load_source``.
        feeds: values by tensor name.
        outputs: tensor names, or names of a signature's outputs.
        expected: the values that TensorFlow computes for them.
        options: further fields of ``FreezeOptions``.
    """

    source: dict[str, Path]
    feeds: dict[str, Array]
    outputs: tuple[str, ...]
    expected: list[Array]
    options: dict[str, Any] = field(default_factory=dict)


def image(*shape: int) -> Array:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


@contextmanager
def v1_control_flow(tf: ModuleType, *, functional: bool):
    """TensorFlow 1's loops and branches, or those of TensorFlow 2."""
    was = tf.compat.v1.control_flow_v2_enabled()
    (tf.compat.v1.enable_control_flow_v2 if functional else tf.compat.v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (tf.compat.v1.enable_control_flow_v2 if was else tf.compat.v1.disable_control_flow_v2)()


def variable(tf: ModuleType, name: str, shape, *, resource: bool, **more):
    initial = tf.compat.v1.random_normal_initializer(seed=SEED)
    return tf.compat.v1.get_variable(
        name, shape, initializer=initial, use_resource=resource, **more
    )


def trained(
    tf: ModuleType,
    folder: Path,
    build: Callable[[], dict[str, Any]],
    *,
    feeds: dict[str, Array],
    saver: Callable[[ModuleType], Any] | None = None,
    meta: bool = False,
    binary: bool = True,
) -> tuple[dict[str, Path], list[Array]]:
    """Write a graph with a checkpoint, and compute the outputs that ``build`` returns."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(SEED)
        built = build()
        keeper = saver(tf) if saver else v1.train.Saver()
        config = v1.ConfigProto(device_count={"CPU": 4})
        with v1.Session(config=config) as session:
            for held in v1.global_variables():  # one by one: averages start from the variables
                session.run(held.initializer)
            for op in built.get("steps", []):
                session.run(op, feeds)
            prefix = keeper.save(session, str(folder / "model.ckpt"), write_meta_graph=meta)
            expected = session.run(built["outputs"], feeds)
        name = "graph.pb" if binary else "graph.pbtxt"
        v1.train.write_graph(graph.as_graph_def(), str(folder), name, as_text=not binary)
    if meta:
        return {"meta_graph": Path(prefix + ".meta")}, expected
    return {"graph": folder / name, "checkpoint": Path(prefix)}, expected


def checkpointed(
    graph: Callable[[ModuleType], dict[str, Any]],
    feeds: dict[str, Array],
    outputs: tuple[str, ...],
    *,
    functional: bool | None = None,
    options: dict[str, Any] | None = None,
    **saving: Any,
) -> Build:
    """A graph with a checkpoint.

    Args:
        graph: builds the graph in the current default graph; see ``trained``.
        feeds: values by tensor name.
        outputs: tensor names.
        functional: the generation of control flow; None for the current one.
        options: further fields of ``FreezeOptions``.
        saving: further keywords of ``trained``.
    """

    def build(tf: ModuleType, folder: Path) -> Saved:
        generation = (
            nullcontext() if functional is None else v1_control_flow(tf, functional=functional)
        )
        with generation:
            source, expected = trained(tf, folder, lambda: graph(tf), feeds=feeds, **saving)
        return Saved(source, feeds, outputs, expected, options or {})

    return build


def dense(tf: ModuleType, *, resource: bool):
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    weights = variable(tf, "layer/weights", [4, 3], resource=resource)
    bias = variable(tf, "layer/bias", [3], resource=resource)
    y = tf.nn.softmax(tf.matmul(x, weights) + bias, name="y")
    return {"outputs": [y]}


def plain(*, resource: bool, version: int = 2, meta: bool = False, binary: bool = True) -> Build:
    return checkpointed(
        lambda tf: dense(tf, resource=resource),
        {"x:0": image(5, 4)},
        ("y",),
        saver=lambda tf: tf.compat.v1.train.Saver(write_version=version),
        meta=meta,
        binary=binary,
    )


def sharded(tf: ModuleType, folder: Path) -> Saved:
    """Four shards, one for each device that holds variables."""

    def build():
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        for i in range(4):
            with tf.device(f"/cpu:{i}"):
                x = tf.tanh(tf.matmul(x, variable(tf, f"w{i}", [4, 4], resource=i % 2 == 0)))
        return {"outputs": [tf.identity(x, name="y")]}

    feeds = {"x:0": image(2, 4)}
    source, expected = trained(
        tf, folder, build, feeds=feeds, saver=lambda tf: tf.compat.v1.train.Saver(sharded=True)
    )
    assert len(list(folder.glob("*.data-?????-of-00004"))) == 4
    return Saved(source, feeds, ("y",), expected)


def partitioned(*, resource: bool, meta: bool = True) -> Build:
    def build(tf: ModuleType, folder: Path) -> Saved:
        v1 = tf.compat.v1

        def graph():
            ids = v1.placeholder(tf.int32, [None], name="ids")
            parts = variable(
                tf,
                "embedding",
                [10, 4],
                resource=resource,
                partitioner=v1.fixed_size_partitioner(3),
            )
            embeddings = v1.nn.embedding_lookup(list(parts), ids, partition_strategy="div")
            return {"outputs": [tf.identity(embeddings, name="y")]}

        feeds = {"ids:0": np.array([0, 3, 4, 9], np.int32)}
        source, expected = trained(tf, folder, graph, feeds=feeds, meta=meta)
        if not meta:
            drop_saver(tf, source["graph"])
        return Saved(source, feeds, ("y",), expected)

    return build


def drop_saver(tf: ModuleType, path: Path) -> None:
    """Remove the ops that save and restore, as `extract_sub_graph` does."""
    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    nodes = [node for node in graph.node if not node.name.startswith("save/")]
    del graph.node[:]
    graph.node.extend(nodes)
    path.write_bytes(graph.SerializeToString())


def renamed() -> Build:
    """A saver that stores variables under other names."""

    def saver(tf: ModuleType) -> Any:
        weights, bias = tf.compat.v1.global_variables()
        return tf.compat.v1.train.Saver({"old/w": weights, "old/b": bias})

    return checkpointed(
        lambda tf: dense(tf, resource=False), {"x:0": image(5, 4)}, ("y",), saver=saver
    )


def moving_averages(*, resource: bool) -> Build:
    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        built = dense(tf, resource=resource)
        averages = tf.train.ExponentialMovingAverage(0.5)
        keep = averages.apply(v1.trainable_variables())
        moves = [v.assign_add(tf.ones_like(v)) for v in v1.trainable_variables()]
        with tf.control_dependencies(moves):
            step = tf.group(keep)
        means = [averages.average(v) for v in v1.trainable_variables()]
        x = v1.get_default_graph().get_tensor_by_name("x:0")
        with_means = tf.nn.softmax(tf.matmul(x, means[0]) + means[1])
        built["steps"] = [moves, step, moves]
        built["outputs"] = [with_means]
        return built

    return checkpointed(graph, {"x:0": image(5, 4)}, ("y",), options={"moving_averages": True})


def loop_and_branch(*, functional: bool, resource: bool) -> Build:
    """A loop and a branch, both using variables inside."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        weights = variable(tf, "weights", [4, 4], resource=resource)
        bias = variable(tf, "bias", [4], resource=resource)

        def turn(i, state):
            return i + 1, tf.tanh(tf.matmul(state, weights) + bias)

        _, state = tf.while_loop(lambda i, _: i < 3, turn, [tf.constant(0), x])
        y = tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.matmul(state, weights),
            lambda: tf.zeros_like(state) + 2 * bias,
        )
        return {"outputs": [tf.identity(y, name="y")]}

    return checkpointed(graph, {"x:0": image(2, 4)}, ("y",), functional=functional)


def nested_control_flow() -> Build:
    """Branches in a loop in a loop, and a choice among three."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [4], name="x")
        which = v1.placeholder(tf.int32, [], name="which")
        scale = variable(tf, "scale", [4], resource=True)

        def inner(j, state):
            state = tf.cond(tf.equal(j % 2, 0), lambda: state + scale, lambda: state * scale)
            return j + 1, state

        def outer(i, state):
            _, state = tf.while_loop(lambda j, _: j < i, inner, [tf.constant(0), state])
            return i + 1, state

        _, state = tf.while_loop(lambda i, _: i < 4, outer, [tf.constant(0), x])
        y = tf.switch_case(
            which, [lambda: state * scale, lambda: tf.constant(3.0) + scale, lambda: state]
        )
        return {"outputs": [tf.identity(y, name="y")]}

    return checkpointed(graph, {"x:0": image(4), "which:0": np.int32(1)}, ("y",), functional=True)


def gather_and_count_in_a_loop(*, functional: bool, resource: bool) -> Build:
    """A loop that gathers from a variable, chooses between constants, and counts its turns."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [3], name="x")
        table = variable(tf, "table", [4, 3], resource=resource)
        turns = variable(tf, "turns", [], resource=resource, trainable=False)

        def turn(i, state):
            def chosen():
                return tf.case(
                    [(i < 1, lambda: tf.constant(1.0)), (i < 2, lambda: tf.constant(2.0))],
                    default=lambda: tf.cast(tf.shape(table)[0], tf.float32),
                )

            state = tf.tanh(state + tf.gather(table, i) * chosen())
            if functional:
                return i + 1, state
            with tf.control_dependencies([v1.assign_add(turns, 1.0)]):
                return i + 1, tf.identity(state) * tf.constant(0.5)

        _, state = tf.while_loop(lambda i, _: i < 4, turn, [tf.constant(0), x])
        return {"outputs": [tf.identity(state, name="y")]}

    return checkpointed(graph, {"x:0": image(3)}, ("y",), functional=functional)


def lstm(*, functional: bool) -> Build:
    """An LSTM over a sequence, its gates in one matrix, unrolled by a loop with TensorArrays."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [2, 6, 3], name="x")
        kernel = variable(tf, "lstm/kernel", [3 + 5, 4 * 5], resource=functional)
        bias = variable(tf, "lstm/bias", [4 * 5], resource=functional)
        steps = tf.TensorArray(tf.float32, 6).unstack(tf.transpose(x, [1, 0, 2]))

        def turn(t, cell, hidden, out):
            joined = tf.concat([steps.read(t), hidden], axis=1)
            i, j, f, o = tf.split(tf.matmul(joined, kernel) + bias, 4, axis=1)
            cell = cell * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            hidden = tf.tanh(cell) * tf.sigmoid(o)
            return t + 1, cell, hidden, out.write(t, hidden)

        zeros = tf.zeros([2, 5])
        start = [tf.constant(0), zeros, zeros, tf.TensorArray(tf.float32, 6)]
        *_, hidden, out = tf.while_loop(lambda t, *_: t < 6, turn, start)
        last = tf.identity(hidden, name="last")
        return {"outputs": [last, tf.identity(out.stack(), name="all")]}

    return checkpointed(graph, {"x:0": image(2, 6, 3)}, ("last", "all"), functional=functional)


def gathers() -> Build:
    """Resource variables that are gathered from, and asked for their shape."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        ids = v1.placeholder(tf.int32, [2, None], name="ids")
        table = variable(tf, "table", [2, 6, 3], resource=True)
        handle, raw = table.handle, tf.raw_ops
        batched = raw.ResourceGather(resource=handle, indices=ids, dtype=tf.float32, batch_dims=1)
        rows = raw.ResourceGather(resource=handle, indices=ids[:, 0] % 2, dtype=tf.float32)
        points = raw.ResourceGatherNd(resource=handle, indices=ids[:, :2] % 2, dtype=tf.float32)
        shape = raw.VariableShape(input=handle)
        names = ("batched", "rows", "points", "shape")
        tensors = (batched, rows, points, shape)
        return {"outputs": [tf.identity(t, name=n) for t, n in zip(tensors, names, strict=True)]}

    return checkpointed(
        graph,
        {"ids:0": np.array([[0, 5, 1], [1, 1, 4]], np.int32)},
        ("batched", "rows", "points", "shape"),
    )


def vocabulary(folder: Path) -> Path:
    path = folder / "words.txt"
    path.write_text("yes\nno\nup\n", encoding="utf-8")
    return path


WORDS = np.array([b"no", b"never", b"up"], dtype=object)


def line_numbers(tf: ModuleType, words: Path) -> Any:
    """The initializer of a table from the words of a file to their line numbers."""
    line_number = tf.lookup.TextFileIndex.LINE_NUMBER
    return tf.lookup.TextFileInitializer(str(words), tf.string, 0, tf.int64, line_number)


def table_of_pairs(tf: ModuleType, words: Sequence[str | bytes] = ("no", "up")) -> Any:
    """A table from two words to 7 and 8, and from other words to -1."""
    pairs = tf.lookup.KeyValueTensorInitializer(list(words), [7, 8], tf.string, tf.int64)
    return tf.lookup.StaticHashTable(pairs, -1)


def save_model(
    tf: ModuleType, session: Any, folder: Path, inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    """Write a TensorFlow 1 SavedModel with its assets to ``saved`` in a folder."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(folder / "saved"))
    builder.add_meta_graph_and_variables(
        session,
        ["serve"],
        {"serving_default": v1.saved_model.predict_signature_def(inputs, outputs)},
        assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
        main_op=v1.tables_initializer(),
    )
    builder.save()


def tables_in_tf1(tf: ModuleType, folder: Path) -> Saved:
    """A TensorFlow 1 SavedModel with a vocabulary file and a table of constants."""
    v1 = tf.compat.v1
    words = vocabulary(folder)
    with tf.Graph().as_default():
        text = v1.placeholder(tf.string, [None], name="text")
        by_file = tf.lookup.StaticVocabularyTable(line_numbers(tf, words), 2)
        by_pairs = table_of_pairs(tf)
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, tf.constant(str(words)))
        weights = variable(tf, "weights", [5], resource=True)
        ids = by_file.lookup(text)
        score = tf.identity(tf.gather(weights, ids), name="score")
        code = tf.identity(by_pairs.lookup(text), name="code")
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            expected = session.run([score, code], {"text:0": WORDS})
            save_model(tf, session, folder, {"text": text}, {"s": score, "c": code})
    return Saved({"saved_model": folder / "saved"}, {"text:0": WORDS}, ("s", "c"), expected)


def exported(
    tf: ModuleType, folder: Path, module: Any, feeds: dict[str, Array], outputs: tuple[str, ...]
) -> Saved:
    """Write a TensorFlow 2 SavedModel of a module's ``serve``, and run the loaded model."""
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    results = loaded(**{k: tf.constant(v) for k, v in feeds.items()})
    return Saved(
        {"saved_model": folder},
        {f"serving_default_{k}:0": v for k, v in feeds.items()},
        outputs,
        [results[name].numpy() for name in outputs],
    )


def module_with(tf: ModuleType, serve: Callable[..., Any], **parts: Any) -> Any:
    module = tf.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    module.serve = serve
    return module


def tables_in_a_graph(tf: ModuleType, folder: Path) -> Saved:
    """Tables of a plain graph: filled from a file, by constants, and by the checkpoint."""
    v1 = tf.compat.v1
    words = vocabulary(folder)

    def graph():
        text = v1.placeholder(tf.string, [None], name="text")
        by_file = tf.lookup.StaticHashTable(line_numbers(tf, words), -1)
        by_pairs = table_of_pairs(tf)
        learnt = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        steps = [v1.tables_initializer(), learnt.insert(["no"], tf.constant([5], tf.int64))]
        scale = variable(tf, "scale", [], resource=True)
        names = ("ids", "codes", "learnt")
        values = [t.lookup(text) for t in (by_file, by_pairs, learnt)]
        outputs = [tf.identity(t, name=n) for t, n in zip(values, names, strict=True)]
        return {"outputs": [*outputs, tf.identity(scale, name="scaled")], "steps": steps}

    feeds = {"text:0": WORDS}
    source, expected = trained(tf, folder, graph, feeds=feeds)
    return Saved(source, feeds, ("ids", "codes", "learnt", "scaled"), expected)


def tables_in_tf2(tf: ModuleType, folder: Path) -> Saved:
    words = vocabulary(folder)
    table = tf.lookup.StaticHashTable(line_numbers(tf, words), -1)
    pairs = table_of_pairs(tf)

    learnt = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    learnt.insert(["up"], [3])
    embedding = tf.Variable(image(4, 2))  # without a name, as are the variables of asset paths

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text):
        ids = table.lookup(text)
        rows = tf.gather(embedding, ids + 1)
        learned = learnt.lookup(text)
        return {"ids": ids, "codes": pairs.lookup(text), "rows": rows, "learned": learned}

    parts = {"table": table, "pairs": pairs, "learnt": learnt, "embedding": embedding}
    module = module_with(tf, serve, **parts)
    outputs = ("ids", "codes", "rows", "learned")
    return exported(tf, folder / "saved", module, {"text": WORDS}, outputs)


def functions_in_tf2(tf: ModuleType, folder: Path) -> Saved:
    """Nested functions, one called twice, captured constants, a loop and a branch inside."""
    weights = tf.Variable(image(4, 4), name="weights")
    bias = tf.Variable(image(4), name="bias")
    twin = tf.Variable(image(4) * 2, name="bias")
    captured = tf.constant(image(700, 4))

    @tf.function
    def layer(x, b):
        return tf.tanh(tf.matmul(x, weights) + b)

    @tf.function
    def block(x):
        y = layer(layer(x, bias), twin)
        for _ in tf.range(3):
            y = layer(y, bias) + y
        return y

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(x):
        y = block(x)
        z = block(2.0 * y) if tf.reduce_sum(y) > 0 else y - twin
        tf.debugging.assert_all_finite(z, "not finite")
        return {"a": y, "b": tf.matmul(z, captured, transpose_b=True)}

    module = module_with(tf, serve, weights=weights, bias=bias, twin=twin)
    return exported(tf, folder, module, {"x": image(3, 4)}, ("a", "b"))


def keras_network(tf: ModuleType, folder: Path) -> Saved:
    """Keras layers: an embedding, a bidirectional LSTM, a GRU, batch normalization, dropout."""
    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input([None], dtype="int32", name="ids"),
            layers.Embedding(20, 6, mask_zero=True),
            layers.Bidirectional(layers.LSTM(5, return_sequences=True)),
            layers.GRU(4),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax", name="out"),
        ]
    )

    @tf.function(input_signature=[tf.TensorSpec([None, 7], tf.int32, name="ids")])
    def serve(ids):
        return {"y": model(ids, training=False)}

    module = module_with(tf, serve, model=model)
    ids = np.random.default_rng(SEED).integers(1, 20, [2, 7]).astype(np.int32)
    ids[1, 4:] = 0
    return exported(tf, folder, module, {"ids": ids}, ("y",))


def training_call(tf: ModuleType, folder: Path) -> Saved:
    """A TensorFlow 2 function whose batch normalization was exported in training mode."""
    tf.keras.utils.set_random_seed(SEED)
    norm = tf.keras.layers.BatchNormalization()
    x = image(4, 2, 2, 3)
    norm(x, training=True)

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 2, 3], tf.float32, name="x")])
    def serve(x):
        return {"y": norm(x, training=True)}

    expected = norm(x, training=False).numpy()
    saved = exported(tf, folder, module_with(tf, serve, norm=norm), {"x": x}, ("y",))
    return Saved(saved.source, saved.feeds, saved.outputs, [expected])


def batch_norm(*, resource: bool) -> Build:
    """Batch normalization in training mode, its averages moved by control dependencies."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 2, 2, 3], name="x")
        gamma = variable(tf, "bn/gamma", [3], resource=resource)
        beta = variable(tf, "bn/beta", [3], resource=resource)
        mean = variable(tf, "bn/moving_mean", [3], resource=resource)
        variance = variable(tf, "bn/moving_variance", [3], resource=resource)
        y, m, v = v1.nn.fused_batch_norm(x, gamma, beta, is_training=True, name="bn/norm")
        updates = [
            mean.assign_sub((mean - m) * 0.1),
            variance.assign_sub((variance - v) * 0.1),
        ]
        with tf.control_dependencies(updates):
            tf.identity(y, name="y")
        positive = variance.assign(tf.abs(variance) + 0.5)
        inference, _, _ = v1.nn.fused_batch_norm(x, gamma, beta, mean, variance, is_training=False)
        return {"outputs": [inference], "steps": [positive]}

    return checkpointed(graph, {"x:0": image(4, 2, 2, 3)}, ("y",))


def dropout() -> Build:
    """Dropout as built by TensorFlow today and by 1.0, both always on."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        built = dense(tf, resource=True)
        y = built["outputs"][0]
        dropped = v1.nn.dropout(y, rate=0.4)
        keep = tf.constant(0.8)
        uniform = tf.random.uniform(tf.shape(dropped), 0.0, 1.0)
        dropped = tf.realdiv(dropped, keep) * tf.floor(keep + uniform)
        tf.identity(dropped, name="out")
        return {"outputs": [y]}

    return checkpointed(graph, {"x:0": image(5, 4)}, ("out",))


def initialized() -> Build:
    """A variable that is not in the checkpoint, given by its initializer."""

    def graph(tf: ModuleType) -> dict[str, Any]:
        v1 = tf.compat.v1
        built = dense(tf, resource=False)
        extra = v1.get_variable("extra", initializer=np.full([3], 2.0, np.float32))
        more = v1.get_variable("more", initializer=lambda: tf.ones([3]) * 3.0)
        tf.group(extra.initializer, more.initializer, name="init_extra")
        return {"outputs": [tf.identity(built["outputs"][0] * more + extra, name="z")]}

    def saver(tf: ModuleType) -> Any:
        v1 = tf.compat.v1
        return v1.train.Saver(v1.get_collection("variables", scope="layer"))

    options = {"initializer_nodes": ("init_extra",)}
    return checkpointed(graph, {"x:0": image(5, 4)}, ("z",), saver=saver, options=options)


ZOO: dict[str, Build] = {
    "ref variables, V2": plain(resource=False),
    "resource variables, V2": plain(resource=True),
    "ref variables, V1": plain(resource=False, version=1),
    "resource variables, V1": plain(resource=True, version=1),
    "text graph": plain(resource=True, binary=False),
    "meta graph": plain(resource=True, meta=True),
    "four shards": sharded,
    "partitioned ref variables": partitioned(resource=False),
    "partitioned resource variables": partitioned(resource=True),
    "partitioned variables without a saver": partitioned(resource=True, meta=False),
    "renamed variables": renamed(),
    "averages of ref variables": moving_averages(resource=False),
    "averages of resource variables": moving_averages(resource=True),
    "TF1 loop and branch, ref": loop_and_branch(functional=False, resource=False),
    "TF1 loop and branch, resource": loop_and_branch(functional=False, resource=True),
    "TF2 loop and branch": loop_and_branch(functional=True, resource=True),
    "nested control flow": nested_control_flow(),
    "gathers in a TF1 loop, ref": gather_and_count_in_a_loop(functional=False, resource=False),
    "gathers in a TF1 loop, resource": gather_and_count_in_a_loop(functional=False, resource=True),
    "gathers in a TF2 loop": gather_and_count_in_a_loop(functional=True, resource=True),
    "TF1 LSTM": lstm(functional=False),
    "TF2 LSTM": lstm(functional=True),
    "gathers": gathers(),
    "tables of a plain graph": tables_in_a_graph,
    "TF1 tables": tables_in_tf1,
    "TF2 tables": tables_in_tf2,
    "TF2 functions": functions_in_tf2,
    "Keras network": keras_network,
    "TF2 call in training mode": training_call,
    "batch norm, ref": batch_norm(resource=False),
    "batch norm, resource": batch_norm(resource=True),
    "dropout": dropout(),
    "initializer nodes": initialized(),
}
