"""Tests."""

from __future__ import annotations

import json
import pickle
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from mobileprep.errors import CorruptFileError, RecipeError, UsageError
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.data import device_named
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Integration, Recipe, Step, Target, digestible
from mobileprep.recipe.settings import Budget, InputSpec, Source
from mobileprep.recipe.validation_settings import MetricChoice, Quantize
from mobileprep.transforms.base import make_transform
from mobileprep.transforms.quantize_nodes.layer_choice import Rules
from tests.transforms.graphs import node

HEAD = "version: 1\nname: digits\nsource: {frozen: model.pb}\n"


@pytest.fixture
def target(load):
    """Load a recipe of ``head`` and ``lines`` and return its only target."""

    def target(lines: str, head: str = HEAD) -> Target:
        (only,) = load(head + lines).targets
        return only

    return target


def names(target):
    return [step.name for step in target.transforms]


def test_default_target(target):
    phone = target("targets: {phone: {}}\n")
    assert phone == Target("phone", "phone", None, Source("frozen", phone.source.file))
    assert phone.freeze == Freeze(clear_devices=True)
    assert phone.quantize == Quantize("none")
    assert phone.registration == ("1.15",)
    assert (phone.platform, phone.artifact, phone.abis) == ("generic", "frozen", ())
    assert phone.budget == Budget(None, None)
    assert phone.validation is None
    assert phone.engine == "numpy"


def test_engine_of_a_target(target):
    assert target("engine: auto\ntargets: {phone: {}}\n").engine == "auto"
    assert target("engine: auto\ntargets: {phone: {engine: tensorflow}}\n").engine == "tensorflow"


def test_empty_target(target):
    assert target("targets:\n  phone:\n").name == "phone"


def test_all_keys(target, tmp_path):
    phone = target(
        """
freeze: {clear_devices: false, moving_averages: true, variable_names_blacklist: [a, b]}
inputs:
  image: {dtype: float32, shape: [-1, 8, 8, 1]}
  keep: {shape: []}
  other:
outputs: [probabilities, "logits:1"]
transforms: [fold_constants: {ignore_errors: true}]
validation: {data: data/test.npz, labels: y, metric: top1, max_drop: 0}
targets:
  phone:
    platform: android
    abis: [arm64-v8a, x86]
    quantize: {mode: weights, minimum_size: 16}
    obfuscate: true
    sort: true
    artifact: text
    registration: {tensorflow: ["1.15", "2.21"]}
    budget: {model_bytes: 60 KB, compressed_bytes: 1000}
"""
    )
    assert phone.freeze == Freeze(
        clear_devices=False, moving_averages=True, variable_names_blacklist=("a", "b")
    )
    assert phone.inputs == (
        InputSpec("image", "float32", (-1, 8, 8, 1)),
        InputSpec("keep", None, ()),
        InputSpec("other", None, None),
    )
    assert phone.outputs == ("probabilities", "logits:1")
    assert phone.transforms == (
        Step("fold_constants", (("ignore_errors", True),)),
        Step("quantize_weights", (("minimum_size", 16),)),
        Step("obfuscate_names"),
        Step("sort_by_execution_order"),
    )
    (metric,) = phone.validation.metrics
    assert metric == MetricChoice(metric="top1", labels="y", max_drop=0.0)
    assert isinstance(metric.max_drop, float)
    assert [at.split(":")[1] for at in (metric.place, metric.limit_place)] == ["12", "12"]
    assert phone.validation.data.file.path == tmp_path / "data/test.npz"
    assert (phone.platform, phone.abis) == ("android", ("arm64-v8a", "x86"))
    assert (phone.artifact, phone.registration) == ("text", ("1.15", "2.21"))
    assert phone.budget == Budget(60_000, 1000)


def test_graph_with_checkpoint_and_pins(target, tmp_path):
    source = target(
        f"source:\n  graph: model/g.pbtxt\n  checkpoint: model/c-1\n"
        f"  sha256: {{model/g.pbtxt: {'AB' * 32}, model/c-1.index: {'cd' * 32}}}\n"
        "targets: {p: {}}\n",
        head="version: 1\nname: x\n",
    ).source
    assert (source.kind, source.file.name) == ("graph", "model/g.pbtxt")
    assert source.file.path == tmp_path / "model/g.pbtxt"
    assert source.file.place == "recipe.yaml:4:10"
    assert source.checkpoint.path == tmp_path / "model/c-1"
    assert [(pin.file.name, pin.sha256) for pin in source.pins] == [
        ("model/c-1.index", "cd" * 32),
        ("model/g.pbtxt", "ab" * 32),
    ]


def test_checkpoint_next_to_a_meta_graph_is_the_default(target, tmp_path):
    head = "version: 1\nname: x\n"
    source = target("source: {meta_graph: m/c-1.meta}\ntargets: {p: {}}\n", head).source
    assert source.checkpoint.name == "m/c-1"
    assert source.checkpoint.path == tmp_path / "m/c-1"
    text = "source: {meta_graph: m/c-1.meta, checkpoint: d}\ntargets: {p: {}}\n"
    assert target(text, head).source.checkpoint.name == "d"
    assert target("source: {meta_graph: other}\ntargets: {p: {}}\n", head).source.checkpoint is None


def test_saved_model(target):
    text = "source: {saved_model: m, tags: [serve, gpu], signature: predict}\ntargets: {p: {}}\n"
    source = target(text, "version: 1\nname: x\n").source
    assert (source.kind, source.tags, source.signature) == (
        "saved_model",
        ("serve", "gpu"),
        "predict",
    )


@pytest.mark.parametrize(
    ("quantize", "steps", "resolved"),
    [
        ("none", (), Quantize("none")),
        ("weights", (("quantize_weights", "minimum_size", 1024),), Quantize("weights")),
        ("round", (("round_weights", "num_steps", 256),), Quantize("round")),
        (
            "{mode: weights, minimum_size: 5}",
            (("quantize_weights", "minimum_size", 5),),
            Quantize("weights", (("minimum_size", 5),)),
        ),
        (
            "{mode: round, num_steps: 16.0}",
            (("round_weights", "num_steps", 16),),
            Quantize("round", (("num_steps", 16),)),
        ),
    ],
)
def test_quantize_adds_a_step(target, quantize, steps, resolved):
    quantized = target(f"targets: {{p: {{quantize: {quantize}}}}}\n")
    assert quantized.transforms == tuple(Step(name, ((key, value),)) for name, key, value in steps)
    assert quantized.quantize == resolved


@pytest.mark.parametrize(
    ("quantize", "name", "params"),
    [
        ("float16", "cast_weights", {"minimum_size": 1024, "type": "float16"}),
        (
            "{mode: bfloat16, minimum_size: 5}",
            "cast_weights",
            {"minimum_size": 5, "type": "bfloat16"},
        ),
        (
            "{mode: weights, bits: 4.0}",
            "linear_quantize_weights",
            {"minimum_size": 1024, "bits": 4},
        ),
        (
            "{mode: weights, granularity: channel}",
            "linear_quantize_weights",
            {"minimum_size": 1024, "granularity": "channel"},
        ),
        (
            "{mode: weights, bits: 8, granularity: tensor, minimum_size: 0}",
            "linear_quantize_weights",
            {"minimum_size": 0, "bits": 8, "granularity": "tensor"},
        ),
    ],
)
def test_quantize_adds_a_step_for_small_constants(target, quantize, name, params):
    (step,) = target(f"targets: {{p: {{quantize: {quantize}}}}}\n").transforms
    assert (step.name, dict(step.params)) == (name, params)
    make_transform(name, params)


@pytest.mark.parametrize(
    ("quantize", "calibration", "ranges", "takes_ranges"),
    [
        ("nodes", "", "dynamic", False),
        ("{mode: nodes, ranges: dynamic}", "calibration: {data: d}\n", "dynamic", False),
        ("{mode: nodes, ranges: observed}", "calibration: {data: d}\n", "observed", True),
        ("{mode: nodes, ranges: trained}", "", "trained", False),
        ("{mode: nodes, ranges: trained}", "calibration: {data: d}\n", "trained", True),
    ],
)
def test_ranges_of_quantized_nodes(target, quantize, calibration, ranges, takes_ranges):
    (step,) = target(f"{calibration}targets: {{p: {{quantize: {quantize}}}}}\n").transforms
    # Without this option, the transform behaves like the original.
    assert step == Step("quantize_nodes", (("ranges", ranges),), takes_ranges=takes_ranges)


@pytest.mark.parametrize(
    ("releases", "pads"), [('["1.15", "2.21"]', False), ('["2.21"]', True), ('"2.21"', True)]
)
def test_quantized_pads_need_kernels_in_every_release(target, releases, pads):
    text = f"targets: {{p: {{quantize: nodes, registration: {{tensorflow: {releases}}}}}}}\n"
    (step,) = target(text).transforms
    assert step.options.get("tensorflow") == ("2.21" if pads else None)
    make_transform(step.name, step.options)


def test_repairs_come_between_then_and_quantization(target):
    quantized = target(
        "transforms: [strip_unused_nodes]\ncalibration: {data: d}\ntargets:\n"
        "  p:\n    then: [fold_constants]\n    sort: true\n    quantize:\n"
        "      {mode: nodes, ranges: observed, repair: [remove_nodes: {op: [Identity]}]}\n"
    )
    assert names(quantized) == [
        "strip_unused_nodes",
        "fold_constants",
        "remove_nodes",
        "quantize_nodes",
        "sort_by_execution_order",
    ]
    assert quantized.transforms[2].options == {"op": ("Identity",)}
    assert [step.takes_ranges for step in quantized.transforms] == [
        False,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("chain", "repair", "data", "measured_on"),
    [
        ("", "correct_bias", "data/c.npz", "data/c.npz"),
        ("", "absorb_high_biases", "data/c.npz", "data/c.npz"),
        ("", "reconstruct_weights: {bits: 4}", "data/c.npz", "data/c.npz"),
        ("", "correct_bias: {data: own.npz}", "data/c.npz", "own.npz"),
        ("", "correct_bias", "photos", None),
        ("", "correct_bias", "{npz: c.npz, inputs: {x: y}}", None),
        ("", "remove_device", "data/c.npz", None),
        # Statistics in the graph replace the data.
        ("fuse_batch_norms: {keep_statistics: true}", "correct_bias", "data/c.npz", None),
    ],
)
def test_measuring_repairs_use_the_calibration_data(
    write, tmp_path, chain, repair, data, measured_on
):
    path = write(
        f"{HEAD}transforms: [{chain}]\ncalibration: {{data: {data}}}\ntargets:\n"
        f"  p: {{quantize: {{mode: nodes, ranges: observed, repair: [{repair}]}}}}\n"
    )
    step = load_recipe(path, environ={}).targets[0].transforms[-2]
    assert step.options.get("data") == measured_on
    assert [file.file.path for file in step.files] == (
        [tmp_path / measured_on] if measured_on else []
    )


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("", {"minimum_size": 1024, "granularity": "tensor", "symmetric": False}),
        (", minimum_size: 9", {"minimum_size": 9, "granularity": "tensor", "symmetric": False}),
        (", bits: 4", {"minimum_size": 1024, "bits": 4}),
        (", granularity: tensor", {"minimum_size": 1024, "granularity": "tensor"}),
    ],
)
def test_reconstructed_weights_have_the_steps_that_the_target_stores(write, weights, expected):
    path = write(
        f"{HEAD}calibration: {{data: c.npz}}\ntargets:\n"
        f"  p: {{quantize: {{mode: weights{weights}, repair: [reconstruct_weights]}}}}\n"
    )
    step, storing = load_recipe(path, environ={}).targets[0].transforms
    assert step.options == {"data": "c.npz", **expected}
    is_plain = "symmetric" in expected
    assert storing.name == ("quantize_weights" if is_plain else "linear_quantize_weights")
    make_transform(step.name, step.options)


def test_litert_stores_small_weights_in_float(write):
    path = write(
        f"{HEAD}calibration: {{data: c.npz}}\ntargets:\n"
        "  p: {artifact: tflite, quantize: {mode: weights, repair: [reconstruct_weights]}}\n"
    )
    (step,) = load_recipe(path, environ={}).targets[0].transforms
    assert step.options == {"data": "c.npz", "minimum_size": 1024}


def test_reconstruct_weights_keeps_its_own_options(write):
    path = write(
        f"{HEAD}targets:\n  p:\n    quantize: {{mode: weights, bits: 4, repair: "
        "[reconstruct_weights: {data: own.npz, bits: 3, samples: 5}]}\n"
    )
    step = load_recipe(path, environ={}).targets[0].transforms[0]
    assert step.options == {"data": "own.npz", "bits": 3, "samples": 5, "minimum_size": 1024}


@pytest.mark.parametrize(
    ("quantize", "measured_on"), [("int8", "data/c.npz"), ("int16x8", None), ("int4", None)]
)
def test_equalize_ranges_measures_8_bit_activations(write, quantize, measured_on):
    path = write(
        f"{HEAD}calibration: {{data: data/c.npz}}\ntargets:\n  p: {{artifact: tflite, "
        f"quantize: {{mode: {quantize}, repair: [equalize_ranges]}}}}\n"
    )
    steps = load_recipe(path, environ={}).targets[0].transforms
    (step,) = [step for step in steps if step.name == "equalize_ranges"]
    assert step.options.get("data") == measured_on


def test_calibration(target):
    text = (
        "calibration: {data: d/c.npz, method: mse, samples: 20, seed: 3, batch: 4, "
        "range_file: r.yaml, workers: 2, dask: 'tcp://a:1'}\ntargets: {p: {}}\n"
    )
    calibration = target(text).calibration
    assert (calibration.data.file.name, calibration.range_file.name) == ("d/c.npz", "r.yaml")
    assert (calibration.method, calibration.samples, calibration.seed, calibration.batch) == (
        "mse",
        20,
        3,
        4,
    )
    assert (calibration.workers, calibration.dask) == (2, "tcp://a:1")
    # The workers do not affect the cache key.
    assert {"workers", "dask"}.isdisjoint(digestible(calibration))
    alone = target(text.replace(", workers: 2, dask: 'tcp://a:1'", "")).calibration
    assert alone == calibration
    counts = target(
        "calibration: {data: d, samples: 2e1, seed: 3.0, batch: 4.0, workers: 1.0}\n"
        "targets: {p: {}}\n"
    ).calibration
    assert repr((counts.samples, counts.seed, counts.batch, counts.workers)) == "(20, 3, 4, 1)"
    assert counts.method == "auto"
    text = "calibration: {data: d, method: percentile, percentile: 99}\ntargets: {p: {}}\n"
    percentile = target(text).calibration
    assert (percentile.method, percentile.percentile, percentile.samples) == (
        "percentile",
        99,
        None,
    )
    assert target("targets: {p: {}}\n").calibration is None


def test_then_extends_the_shared_chain(target):
    extended = target(
        "transforms: [strip_unused_nodes]\n"
        "targets:\n  p: {then: 'fold_constants strip_unused_nodes', quantize: round, sort: true}\n"
    )
    assert names(extended) == [
        "strip_unused_nodes",
        "fold_constants",
        "strip_unused_nodes",
        "round_weights",
        "sort_by_execution_order",
    ]


def test_target_overrides_sections(load):
    recipe = load(
        """
version: 1
name: digits
source: {graph: g, checkpoint: c}
freeze: {clear_devices: false}
inputs: {a: {dtype: int8}, b: {dtype: int8}}
outputs: [y]
transforms: [strip_unused_nodes]
validation: {data: d.npz, max_drop: 0.1}
targets:
  plain: {}
  other:
    source: {frozen: f}
    freeze: {clear_devices: true}
    inputs: {a: {shape: [1]}, b: null, c: {}}
    outputs: [z]
    transforms: [fold_constants]
    validation: {max_drop: 0.2}
  unchecked: {validation: null, transforms: null}
"""
    )
    plain, other, unchecked = recipe.targets
    assert plain.source.kind == "graph"
    assert plain.validation.metrics[0].max_drop == 0.1
    assert (other.source.kind, other.source.checkpoint) == ("frozen", None)
    assert other.freeze.clear_devices
    assert other.inputs == (InputSpec("a", "int8", (1,)), InputSpec("c"))
    assert other.outputs == ("z",)
    assert names(other) == ["fold_constants"]
    assert other.validation.data.file.name == "d.npz"
    assert other.validation.metrics[0].max_drop == 0.2
    assert unchecked.validation is None
    assert unchecked.transforms == ()
    assert unchecked.outputs == ("y",)


def test_several_models(load):
    recipe = load(
        """
version: 1
name: speech
outputs: [y]
transforms: [strip_unused_nodes]
models:
  wake:
    source: {frozen: wake.pb}
    targets: {phone: {sort: true}, watch: {}}
  words:
    source: {frozen: words.pb}
    outputs: [z]
    targets: {pi: null}
targets:
  phone: {platform: android}
  pi: {platform: raspberry-pi}
"""
    )
    assert [(t.model, t.name, t.folder, t.platform) for t in recipe.targets] == [
        ("wake", "phone", "wake/phone", "android"),
        ("wake", "pi", "wake/pi", "raspberry-pi"),
        ("wake", "watch", "wake/watch", "generic"),
        ("words", "phone", "words/phone", "android"),
    ]
    assert [t.source.file.name for t in recipe.targets] == ["wake.pb"] * 3 + ["words.pb"]
    assert names(recipe.targets[0]) == ["strip_unused_nodes", "sort_by_execution_order"]
    assert recipe.targets[3].outputs == ("z",)


def test_paths_are_relative_to_their_recipe_file(load, write, tmp_path):
    write("version: 1\nname: x\nsource: {frozen: m.pb}\n", "shared/base.yaml")
    recipe = load("extends: shared/base.yaml\nvalidation: {data: t.npz}\ntargets: {p: {}}\n")
    (target,) = recipe.targets
    assert target.source.file.path == tmp_path / "shared/m.pb"
    assert target.source.file.name == "m.pb"
    assert target.source.file.place == "shared/base.yaml:3:18"
    assert target.validation.data.file.path == tmp_path / "t.npz"


def test_locations_of_keys(load):
    recipe = load(HEAD + "outputs: [y,\n  z]\ntargets:\n  p: {}\n  q:\n    outputs: [w]\n")
    p, q = recipe.targets
    assert p.place(("outputs", 1)) == "recipe.yaml:5:3"
    assert q.place(("outputs", 0)) == "recipe.yaml:9:15"
    assert p.place(("source", "frozen")) == "recipe.yaml:3:18"
    # A missing key has the location of its closest parent.
    assert p.place(("outputs", 7)) == "recipe.yaml:4:1"
    assert p.place(("source", "nope", "deeper")) == "recipe.yaml:3:1"
    assert recipe.place(("targets", "q")) == "recipe.yaml:8:3"
    assert recipe.place() == "recipe.yaml:1:1"


def test_used_variables_are_listed(load):
    text = (
        "version: 1\nname: x\nsource: {frozen: '${M}.pb'}\ntargets:\n  p:\n    sort: ${S:-true}\n"
    )
    recipe = load(text, settings={"M": "m"})
    assert recipe.variables == ("M", "S")
    assert recipe.targets[0].source.file.name == "m.pb"
    assert names(recipe.targets[0]) == ["sort_by_execution_order"]


def test_digest_ignores_paths_and_locations(load, write):
    text = "transforms: [remove_nodes: {op: A}]\nvalidation: {data: d}\ntargets: {p: {}}\n"
    original = digestible(load(HEAD + text))
    # Comments, quotes, and the directory are ignored.
    moved = "# moved\n" + HEAD + "\n\n" + text.replace("A}", "'A'}")
    write(moved, "else/where.yaml")
    assert digestible(load("extends: else/where.yaml\n")) == original
    assert str(Path.cwd()) not in repr(original)
    assert "recipe.yaml" not in repr(original)
    step = {
        "name": "remove_nodes",
        "params": [["op", ["A"]]],
        "plugin": None,
        "takes_ranges": False,
        "trials": 0,
    }
    assert original["targets"][0]["transforms"] == [step]
    assert digestible(load(HEAD + text.replace("A}", "B}"))) != original


def test_recipe_can_be_hashed_and_pickled(load):
    recipe = load(HEAD + "targets: {p: {quantize: weights}}\n")
    copy = pickle.loads(pickle.dumps(recipe))
    assert isinstance(copy, Recipe)
    assert copy == recipe
    assert hash(copy.targets) == hash(recipe.targets)
    assert copy.place(("targets", "p")) == recipe.place(("targets", "p"))


RULES = """targets:
  p:
    quantize:
      mode: nodes
      ranges: dynamic
      rules:
        - {ops: [Conv2D, MatMul], bits: 6, granularity: channel, method: mse}
        - {nodes: '^logits/[a-z]+$', mode: float}
"""


def test_rules_become_an_option_of_the_step(target):
    (step,) = target(RULES.replace("bits: 6", "bits: 6.0")).transforms
    assert step.name == "quantize_nodes"
    assert step.options == {
        "ranges": "dynamic",
        "rule": (
            "bits=6 granularity=channel method=mse ops=Conv2D,MatMul",
            "mode=float nodes=^logits/[a-z]+$",
        ),
    }
    transform = make_transform(step.name, step.options)
    assert Rules(step.name, transform.rule).settings(node("logits/x", "MatMul")).mode == "float"


def test_rules_are_refused_for_modes_without_layers(load):
    with pytest.raises(RecipeError, match="'rules' applies only to"):
        load(HEAD + "targets: {p: {quantize: {mode: float16, rules: [{mode: float}]}}}\n")


@pytest.mark.parametrize(
    ("quantize", "expected"),
    [
        ("mode: int4, block_size: 64", {"bits": 4, "block_size": 64}),
        (
            "mode: weights, bits: 5, granularity: tensor",
            {"bits": 5, "granularity": "tensor", "minimum_size": 1024},
        ),
        ("mode: int4", {}),
    ],
)
def test_reconstructed_weights_have_the_steps_of_the_litert_file(write, quantize, expected):
    target = f"{{artifact: tflite, quantize: {{{quantize}, repair: [reconstruct_weights]}}}}"
    path = write(f"{HEAD}calibration: {{data: c.npz}}\ntargets:\n  p: {target}\n")
    (step,) = load_recipe(path, environ={}).targets[0].transforms
    assert step.options == {"data": "c.npz", **expected}
    make_transform(step.name, step.options)


def test_target_overrides_the_integration(load) -> None:
    recipe = load(
        HEAD + "integration: {languages: [java, cpp], package: org.example, threads: 2}\n"
        "targets:\n  a: {}\n  b: {integration: {languages: [objc], class_name: Digits}}\n"
        "  c: {integration: null}\n"
    )
    assert [target.integration for target in recipe.targets] == [
        Integration(("java", "cpp"), "org.example", threads=2),
        Integration(("objc",), "org.example", "Digits", 2),
        None,
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{package: org.example}", "languages"),
        ("{languages: []}", "languages"),
        ("{languages: [swift]}", "swift"),
        ("{languages: [cpp], threads: 0}", "threads"),
        ("{languages: [cpp], package: Org.Example}", "a package is lower-case words"),
        ("{languages: [cpp], package: 'a; b'}", "a package is lower-case words"),
        ("{languages: [cpp], package: org.new.x}", "'new' cannot be a part of a package"),
        ("{languages: [cpp], class_name: digits}", "a class starts with a capital"),
        ("{languages: [cpp], class_name: String}", "the code has another class of the name"),
    ],
)
def test_invalid_integration_is_refused(load, section: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(HEAD + f"integration: {section}\ntargets: {{a: {{}}}}\n")


def test_supported_languages_depend_on_the_runtime(load) -> None:
    lite = "targets: {a: {artifact: tflite}}\n"
    load(HEAD + "integration: {languages: [java, kotlin, swift, cpp]}\n" + lite)
    with pytest.raises(RecipeError, match="no code for LiteRT is here in 'objc'"):
        load(HEAD + "integration: {languages: [objc]}\n" + lite)
    with pytest.raises(RecipeError, match="no code for TensorFlow is here in 'swift'"):
        load(HEAD + "integration: {languages: [swift]}\ntargets: {a: {}}\n")


def test_encrypted_litert_model_with_integer_inputs(load) -> None:
    quantize = "quantize: {mode: int8, inference_input_type: uint8}"
    text = "integration: {languages: [java]}\ncalibration: {data: d.npz}\n"
    text += "protect: {encrypt: {key: env:KEY}}\n"
    text += f"targets: {{a: {{artifact: tflite, {quantize}}}}}\n"
    (target,) = load(HEAD + text).targets
    assert (target.protect.key, target.quantize.inference_input_type) == ("KEY", "uint8")


def test_encrypted_memory_mapped_model_is_refused(load) -> None:
    with pytest.raises(RecipeError, match="cannot be mapped into memory"):
        load(HEAD + "protect: {encrypt: {key: env:KEY}}\ntargets: {a: {artifact: memmapped}}\n")


def test_flex_requires_litert(load) -> None:
    with pytest.raises(RecipeError, match="'flex' is of"):
        load(HEAD + "targets: {a: {flex: true}}\n")
    (target,) = load(HEAD + "targets: {a: {flex: true, artifact: tflite}}\n").targets
    assert target.flex


def test_min_runtime_is_a_quoted_release_and_requires_litert(load) -> None:
    lite = "targets: {a: {artifact: tflite, litert: {min_runtime: %s}}}\n"
    (target,) = load(HEAD + lite % '"2.14"').targets
    assert target.min_runtime == "2.14"
    for wrong in ("2.20", '"2"', '"2.x"'):
        with pytest.raises(RecipeError, match=r"min_runtime|release"):
            load(HEAD + lite % wrong)
    with pytest.raises(RecipeError, match="'litert' requires 'artifact: tflite'"):
        load(HEAD + 'targets: {a: {litert: {min_runtime: "2.14"}}}\n')


def test_streaming_is_a_switch_or_a_number_of_steps_and_requires_litert(load) -> None:
    lite = "targets: {a: {artifact: tflite, streaming: %s}}\n"
    steps = {"true": 1, "{steps: 4}": 4, "{}": 1}
    for text, number in steps.items():
        (target,) = load(HEAD + lite % text).targets
        assert target.streaming.steps == number
    (target,) = load(HEAD + lite % "false").targets
    assert target.streaming is None
    for wrong in ("{steps: 0}", "4", "{step: 4}"):
        with pytest.raises(RecipeError, match="stream"):
            load(HEAD + lite % wrong)
    with pytest.raises(RecipeError, match="'streaming' requires 'artifact: tflite'"):
        load(HEAD + "targets: {a: {streaming: true}}\n")


@pytest.mark.parametrize("artifact", ["text", "memmapped"])
@pytest.mark.parametrize("language", ["java", "kotlin"])
def test_artifact_that_a_language_cannot_load_is_refused(
    load, artifact: str, language: str
) -> None:
    text = (
        f"integration: {{languages: [cpp, {language}]}}\ntargets: {{a: {{artifact: {artifact}}}}}\n"
    )
    with pytest.raises(RecipeError, match=f"loads no model with 'artifact: {artifact}'"):
        load(HEAD + text)


DEVICES_HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\n"
PROFILE = "title: our gate\ngflops: 2\nsource: measured by us\nbasis: MobileNet V1 on it\n"


def loaded(folder: Path, text: str) -> Recipe:
    (folder / "r.yaml").write_text(DEVICES_HEAD + text)
    return load_recipe(folder / "r.yaml", environ={})


def test_device_is_a_known_name_or_a_profile_file(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/gate.yaml").write_text(PROFILE)
    recipe = loaded(
        tmp_path,
        "device: smartphone\n"
        "targets:\n"
        "  a: {budget: {latency_ms: 50}}\n"
        "  b: {device: devices/gate.yaml, budget: {latency_ms: 2.5}}\n"
        "  c: {device: null}\n",
    )
    a, b, c = recipe.targets
    assert a.device is not None and a.device.gflops == 10 and a.device_file is None
    assert b.device is not None and b.device.title == "our gate" and b.device.gflops == 2.0
    assert b.device.name == "gate" and b.device.basis == "MobileNet V1 on it"
    assert b.device_file is not None and b.device_file.path == tmp_path / "devices/gate.yaml"
    assert (a.budget.latency_ms, b.budget.latency_ms) == (50.0, 2.5)
    assert c.device is None


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("title: t\ngflops: fast\nsource: s\n", "gate.yaml:2:9: gflops: expected a number"),
        ("title: t\ngflops: 0\nsource: s\n", "gate.yaml:2:9: gflops: must be at least"),
        ("title: t\ngflops: .inf\nsource: s\n", "gate.yaml:2:9: gflops: expected a number"),
        ("title: t\ngflops: 2\n", "the key 'source' is missing"),
        (PROFILE + "cores: 8\n", "gate.yaml:5:1: cores: unknown key 'cores'"),
        ("- a\n", "mapping of keys to values"),
        (PROFILE + "x" * (1 << 20), "at most 1,048,576 bytes"),
    ],
)
def test_invalid_profile_is_reported(tmp_path: Path, profile: str, message: str) -> None:
    (tmp_path / "gate.yaml").write_text(profile)
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}}\n")
    assert message in caught.value.message


def test_missing_device_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}, b: {device: smartfone}}\n")
    assert "r.yaml:4:23" in caught.value.message and "gate.yaml" in caught.value.message
    assert "unknown device 'smartfone'; did you mean 'smartphone'?" in caught.value.message
    with pytest.raises(UsageError, match="unknown device 'smartfone'"):
        device_named("smartfone")
    with pytest.raises(CorruptFileError):
        device_named(str(tmp_path / "gate.yaml"))


def test_latency_needs_a_device(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a latency needs the device") as caught:
        loaded(tmp_path, "targets: {a: {budget: {latency_ms: 5}}}\n")
    assert "device: smartphone" in caught.value.message


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("{}", "gate.yaml:5:1: rates: needs at least"),
        ("{gpu: {gflops: 1}}", "gate.yaml:5:9: rates.gpu: unknown key 'gpu'"),
        ("{other: {gflops: 0}}", "gate.yaml:5:25: rates.other.gflops: must be at least"),
        ("{other: {gbytes: .inf}}", "gate.yaml:5:25: rates.other.gbytes: expected a number"),
        ("{other: {overhead_us: -1}}", "gate.yaml:5:30: rates.other.overhead_us: must be at least"),
        ("[other]", "gate.yaml:5:1: rates: expected a mapping"),
    ],
)
def test_invalid_rates_are_reported(tmp_path: Path, rates: str, message: str) -> None:
    (tmp_path / "gate.yaml").write_text(f"{PROFILE}rates: {rates}\n")
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, "targets: {a: {device: gate.yaml}}\n")
    assert message in caught.value.message


SOURCE = {"frozen": "model.pb"}
# By section: the value of the recipe and the override of a target.
SECTIONS: dict[str, tuple[Any, Any]] = {
    "calibration": ({"data": "a.npz"}, {"method": "min_max"}),
    "check": ({"data": "a.npz"}, {"max_difference": 0.5}),
    "decoding": ("cut", "keep"),
    "device": ("smartphone", "raspberry-pi-3"),
    "engine": ("numpy", "auto"),
    "freeze": ({"clear_devices": False}, {"moving_averages": True}),
    "inputs": ({"x": {"shape": [1]}}, {"x": {"shape": [2]}}),
    "integration": ({"languages": ["cpp"], "threads": 2}, {"threads": 4}),
    "migration_report": (False, True),
    "ops": ({"A": {"kernel": "AOp"}}, {"B": {"kernel": ["BOp"], "source": "a.npz"}}),
    "outputs": (["y"], ["z"]),
    "preprocessing": ({"channels": "bgr", "mean": 1}, {"mean": 2}),
    "protect": ({"obfuscate": False}, {"obfuscate": True}),
    "quantization_report": (True, False),
    "source": (SOURCE, {"frozen": "other.pb"}),
    "transforms": (["strip_unused_nodes"], ["fold_constants"]),
    "validation": ({"data": "a.npz", "labels": "l", "metric": "top1"}, {"max_drop": 0.5}),
}


def resolved(folder: Path, recipe: dict[str, Any]) -> dict[str, Target]:
    for name in ("model.pb", "other.pb", "a.npz"):
        (folder / name).touch()
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "r", "source": SOURCE, **recipe}))
    return {target.name: target for target in load_recipe(path, environ={}).targets}


def facts(target: Target, section: str) -> str:
    """Return a section of a target without the locations."""
    return re.sub(r"recipe\.yaml(:\d+)+", "", repr(getattr(target, section)))


def test_every_section_of_targets_is_tested() -> None:
    text = resources.files("mobileprep").joinpath("schemas/recipe.json").read_text()
    schema = json.loads(text)
    of_targets = set(schema["$defs"]["target"]["properties"])
    # Pipelines need several models; their own tests override them.
    assert set(SECTIONS) | {"description", "pipeline"} == of_targets & set(schema["properties"])


@pytest.mark.parametrize("section", SECTIONS)
def test_section_of_a_target_overrides_the_recipe(section: str, tmp_path: Path) -> None:
    below, above = SECTIONS[section]
    both = resolved(tmp_path, {section: below, "targets": {"a": {section: above}, "b": None}})
    merged = {**below, **above} if isinstance(below, dict) and section != "source" else above
    if section == "inputs":
        merged = above
    alone = resolved(tmp_path, {section: merged, "targets": {"a": None}})["a"]
    plain = resolved(tmp_path, {section: below, "targets": {"b": None}})["b"]
    assert facts(both["a"], section) == facts(alone, section)
    assert facts(both["b"], section) == facts(plain, section)
    assert facts(both["a"], section) != facts(both["b"], section)
