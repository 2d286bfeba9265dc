"""Build decoders of ``tf.contrib.seq2seq`` 1.15 with its own code in the newest TensorFlow.

    python contrib_decoders.py TENSORFLOW_CORE FOLDER

Writes ``NAME.pb``, a frozen graph, and ``NAME.npz``, with inputs (``in:``) and TensorFlow's outputs
(``out:``), for each decoder. Contrib's modules need packages that newer releases lack; small ones
take their place. GatherTree, whose kernel is in a library of 1.15, is written as AddN of its first
inputs and renamed in the graph; its output is computed here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl as cells
from tensorflow.python.ops import cond, control_flow_ops, rnn, while_loop

v1 = tf.compat.v1
WORDS, WIDTH, UNITS, BEAMS, STEPS, FEATURES = 11, 6, 8, 3, 7, 5
START, END, LONGEST = 1, 2, 9
PACKAGE = "tensorflow.contrib.seq2seq.python.ops"
STAND_IN = "GatherTreeStandIn"
BAHDANAU, LUONG = "BahdanauAttention", "LuongAttention"
# By name: the mode, the class of the attention, its options, and those of ``built``.
DECODERS: Mapping[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "training": ("training", BAHDANAU, {}, {}),
    "training, luong": ("training", LUONG, {"scale": True}, {}),
    "greedy": ("greedy", BAHDANAU, {}, {}),
    "greedy, normalized": ("greedy", BAHDANAU, {"normalize": True}, {"batch": None}),
    "greedy, luong": ("greedy", LUONG, {}, {"impute": True}),
    "greedy, monotonic": ("greedy", "BahdanauMonotonicAttention", {"mode": "parallel"}, {}),
    "greedy, lengths": ("greedy", BAHDANAU, {}, {"has_lengths": True}),
    "greedy, two layers": ("greedy", LUONG, {}, {"layers": 2}),
    "beams": ("beams", BAHDANAU, {}, {}),
    "beams, one sequence": ("beams", LUONG, {"scale": True}, {"batch": 1}),
    "beams, open batch": ("beams", BAHDANAU, {}, {"batch": None}),
    "beams, lengths": ("beams", BAHDANAU, {}, {"has_lengths": True}),
    "beams, no attention": ("beams", "", {}, {}),
}


class Dense:
    """The part of ``tf.layers.Dense`` that contrib uses."""

    dtype = tf.float32

    def __init__(
        self, units: int, *, use_bias: bool = True, name: str = "dense", **_: object
    ) -> None:
        self.units, self.use_bias, self.name = units, use_bias, name

    def __call__(self, x: Any) -> Any:
        with v1.variable_scope(self.name, reuse=v1.AUTO_REUSE):
            y = tf.tensordot(x, v1.get_variable("kernel", [x.shape[-1].value, self.units]), 1)
            return y + v1.get_variable("bias", [self.units]) if self.use_bias else y

    def compute_output_shape(self, shape: Any) -> Any:
        return v1.TensorShape(shape)[:-1].concatenate(self.units)


def gather_tree(ids: Any, parents: Any, max_sequence_lengths: Any, end_token: Any) -> Any:
    for place, value in enumerate((ids, parents, max_sequence_lengths, end_token)):
        tf.identity(value, name=f"{STAND_IN}_{place}")
    return tf.add_n([ids, parents], name=STAND_IN)


def module(name: str, **contents: Any) -> Any:
    made = sys.modules.setdefault(name, ModuleType(name))
    made.__dict__.update(contents)
    return made


def load(core: Path) -> dict[str, Any]:
    """Import contrib's modules from TensorFlow 1.15."""
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    v1.disable_v2_tensorshape()
    np.Inf = np.inf  # type: ignore[attr-defined]
    ops.Tensor = tf.Tensor
    control_flow_ops.while_loop, control_flow_ops.cond = while_loop.while_loop, cond.cond
    module("tensorflow.python.ops", rnn_cell_impl=cells)
    sys.modules["tensorflow.python.ops.rnn_cell_impl"] = cells
    base = module("tensorflow.python.layers.base", Layer=Dense)
    own_core = module("tensorflow.python.layers.core", Dense=Dense)
    module("tensorflow.python.layers", base=base, core=own_core)
    util = {"is_tensor": tf.is_tensor, "with_same_shape": lambda _, value: value}
    framework = "tensorflow.contrib.framework.python.framework"
    for name in (PACKAGE, framework):
        parts = name.split(".")
        for count in range(2, len(parts) + 1):
            module(".".join(parts[:count]))
    module(framework, tensor_util=module(f"{framework}.tensor_util", **util))
    own_ops = module(f"{PACKAGE}.beam_search_ops", gather_tree=gather_tree)
    module(PACKAGE, beam_search_ops=own_ops)
    made: dict[str, Any] = {}
    for name in (
        *("decoder", "helper", "sampler", "attention_wrapper", "basic_decoder"),
        "beam_search_decoder",
    ):
        source = (core / Path(*PACKAGE.split(".")[1:]) / f"{name}.py").read_text()
        for class_name in ("layers.Layer", "layers_base.Layer"):
            source = source.replace(f"output_layer, {class_name})", "output_layer, object)")
        made[name] = module(f"{PACKAGE}.{name}")
        module(PACKAGE, **{name: made[name]})
        exec(compile(source, name, "exec"), made[name].__dict__)
    return made


def built(
    contrib: dict[str, Any],
    mode: str,
    attention: str,
    attention_options: dict[str, Any],
    *,
    batch: int | None = 2,
    has_lengths: bool = False,
    layers: int = 1,
    impute: bool = False,
) -> list[Any]:
    """Return the outputs of an encoder and a decoder."""
    x = v1.placeholder(tf.float32, [batch, STEPS, FEATURES], name="x")
    lengths = v1.placeholder(tf.int32, [batch], name="lengths") if has_lengths else None
    count = tf.shape(x)[0] if batch is None else batch
    with v1.variable_scope("encoder"):
        memory, state = rnn.dynamic_rnn(cells.BasicLSTMCell(UNITS), x, dtype=tf.float32)
    words = v1.get_variable("words", [WORDS, WIDTH])
    beams, rows = contrib["beam_search_decoder"], count
    if mode == "beams":
        memory, state = (
            tf.nest.map_structure(lambda t: beams.tile_batch(t, BEAMS), value)
            for value in (memory, state)
        )
        lengths = None if lengths is None else beams.tile_batch(lengths, BEAMS)
        rows = count * BEAMS
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(UNITS) for _ in range(layers)])
    states = (state, *[cells.BasicLSTMCell(UNITS).zero_state(rows, tf.float32)] * (layers - 1))
    if attention:
        wrapper = contrib["attention_wrapper"]
        mechanism = getattr(wrapper, attention)(
            UNITS, memory, memory_sequence_length=lengths, **attention_options
        )
        cell = wrapper.AttentionWrapper(cell, mechanism, attention_layer_size=UNITS)
        states = cell.zero_state(rows, tf.float32).clone(cell_state=states)
    helper, basic, decoder = (contrib[n] for n in ("helper", "basic_decoder", "decoder"))
    first = tf.fill([count], START)
    if mode == "beams":
        search = beams.BeamSearchDecoder(
            cell, words, first, END, states, BEAMS, output_layer=Dense(WORDS)
        )
        found, last, sizes = decoder.dynamic_decode(search, maximum_iterations=LONGEST)
        scores = found.beam_search_decoder_output.scores
        return [found.predicted_ids, scores, sizes, last.log_probs]
    if mode == "training":
        target = v1.placeholder(tf.float32, [batch, LONGEST, WIDTH], name="target")
        reader = helper.TrainingHelper(target, tf.fill([count], LONGEST))
    else:
        reader = helper.GreedyEmbeddingHelper(words, first, END)
    done = basic.BasicDecoder(cell, reader, states, output_layer=Dense(WORDS))
    found, _, sizes = decoder.dynamic_decode(
        done, impute_finished=impute, maximum_iterations=LONGEST
    )
    return [found.rnn_output, found.sample_id, sizes]


def by_definition(ids: Any, parents: Any, lengths: Any, end: Any) -> Any:
    """Return what GatherTree computes."""
    result = np.full_like(ids, end)
    for entry, beam in np.ndindex(ids.shape[1:]):
        place = beam
        for step in reversed(range(min(len(ids), lengths[entry]))):
            result[step, entry, beam] = ids[step, entry, place]
            place = parents[step, entry, place]
        ended = np.flatnonzero(result[:, entry, beam] == end)
        result[ended[0] if len(ended) else len(ids) :, entry, beam] = end
    return result


def write(folder: Path, name: str, contrib: dict[str, Any]) -> None:
    """Write the graph of a decoder, an input, and its outputs."""
    mode, attention, attention_options, options = DECODERS[name]
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(3)
        start = v1.random_normal_initializer(stddev=0.8)
        with v1.variable_scope("net", use_resource=False, initializer=start):
            outputs = built(contrib, mode, attention, attention_options, **options)
        names = [tf.identity(value, f"y{i}").op.name for i, value in enumerate(outputs)]
        session.run(v1.global_variables_initializer())
        stand_ins = [n.name for n in graph.get_operations() if STAND_IN in n.name]
        frozen = v1.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), [*names, *stand_ins]
        )
        count = options.get("batch", 2) or 2
        random = np.random.default_rng(3)
        drawn = {
            "x": random.normal(size=(count, STEPS, FEATURES)).astype(np.float32),
            "target": random.normal(size=(count, LONGEST, WIDTH)).astype(np.float32),
            "lengths": np.array([5, 7][:count], np.int32),
        }
        fed = {n.name: n.outputs[0] for n in graph.get_operations() if n.type == "Placeholder"}
        feeds = {name: drawn[name.rpartition("/")[2]] for name in fed}
        ends = [graph.get_tensor_by_name(f"{n}:0") for n in [*names, *sorted(stand_ins)[1:]]]
        values = session.run(ends, {fed[name]: value for name, value in feeds.items()})
    expected = dict(zip(names, values, strict=False))
    for node in frozen.node:
        if node.name.endswith(STAND_IN):
            node.op = "GatherTree"
            del node.attr["N"]
            node.input[:] = [f"{node.name}_{i}" for i in range(4)]
            tree = by_definition(*values[len(names) :])
            expected[names[0]] = tree.transpose(1, 0, 2)
    (folder / f"{name}.pb").write_bytes(frozen.SerializeToString())
    arrays = {f"in:{k}".replace("/", "|"): v for k, v in feeds.items()}
    np.savez(folder / f"{name}.npz", **arrays, **{f"out:{k}": v for k, v in expected.items()})


if __name__ == "__main__":
    modules = load(Path(sys.argv[1]))
    for decoder_name in DECODERS:
        write(Path(sys.argv[2]), decoder_name, modules)
