from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mobileprep.errors import RecipeError
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe, Step, Target, digestible
from mobileprep.recipe.settings import Budget, InputSpec, Source
from mobileprep.recipe.validation_settings import MetricChoice, Quantize
from mobileprep.transforms.base import make_transform
from mobileprep.transforms.quantize_nodes.rules import Rules
from tests.transforms.graphs import node

HEAD = "version: 1\nname: digits\nsource: {frozen: model.pb}\n"


@pytest.fixture
def target(load):
    """The only target of a recipe of a head and these lines."""

    def target(lines: str, head: str = HEAD) -> Target:
        (found,) = load(head + lines).targets
        return found

    return target


def names(target):
    return [step.name for step in target.transforms]


def test_defaults(target):
    found = target("targets: {phone: {}}\n")
    assert found == Target("phone", "phone", None, Source("frozen", found.source.file))
    assert found.freeze == Freeze(clear_devices=True)
    assert found.quantize == Quantize("none")
    assert found.registration == ("1.15",)
    assert (found.platform, found.artifact, found.abis) == ("generic", "frozen", ())
    assert found.budget == Budget(None, None)
    assert found.validation is None
    assert found.engine == "numpy"


def test_a_target_may_have_its_own_engine(target):
    assert target("engine: auto\ntargets: {phone: {}}\n").engine == "auto"
    assert target("engine: auto\ntargets: {phone: {engine: tensorflow}}\n").engine == "tensorflow"


def test_a_target_may_be_left_empty(target):
    assert target("targets:\n  phone:\n").name == "phone"


def test_everything_given(target, tmp_path):
    found = target(
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
    assert found.freeze == Freeze(
        clear_devices=False, moving_averages=True, variable_names_blacklist=("a", "b")
    )
    assert found.inputs == (
        InputSpec("image", "float32", (-1, 8, 8, 1)),
        InputSpec("keep", None, ()),
        InputSpec("other", None, None),
    )
    assert found.outputs == ("probabilities", "logits:1")
    assert found.transforms == (
        Step("fold_constants", (("ignore_errors", True),)),
        Step("quantize_weights", (("minimum_size", 16),)),
        Step("obfuscate_names"),
        Step("sort_by_execution_order"),
    )
    (metric,) = found.validation.metrics
    assert metric == MetricChoice(metric="top1", labels="y", max_drop=0.0)
    assert isinstance(metric.max_drop, float)
    assert [at.split(":")[1] for at in (metric.place, metric.limit_place)] == ["12", "12"]
    assert found.validation.data.file.path == tmp_path / "data/test.npz"
    assert (found.platform, found.abis) == ("android", ("arm64-v8a", "x86"))
    assert (found.artifact, found.registration) == ("text", ("1.15", "2.21"))
    assert found.budget == Budget(60_000, 1000)


def test_a_graph_with_checkpoint_and_pins(target, tmp_path):
    found = target(
        f"source:\n  graph: model/g.pbtxt\n  checkpoint: model/c-1\n"
        f"  sha256: {{model/g.pbtxt: {'AB' * 32}, model/c-1.index: {'cd' * 32}}}\n"
        "targets: {p: {}}\n",
        head="version: 1\nname: x\n",
    ).source
    assert (found.kind, found.file.name) == ("graph", "model/g.pbtxt")
    assert found.file.path == tmp_path / "model/g.pbtxt"
    assert found.file.place == "recipe.yaml:4:10"
    assert found.checkpoint.path == tmp_path / "model/c-1"
    assert [(pin.file.name, pin.sha256) for pin in found.pins] == [
        ("model/c-1.index", "cd" * 32),
        ("model/g.pbtxt", "ab" * 32),
    ]


def test_a_meta_graph_finds_its_checkpoint_beside_it(target, tmp_path):
    head = "version: 1\nname: x\n"
    source = target("source: {meta_graph: m/c-1.meta}\ntargets: {p: {}}\n", head).source
    assert source.checkpoint.name == "m/c-1"
    assert source.checkpoint.path == tmp_path / "m/c-1"
    text = "source: {meta_graph: m/c-1.meta, checkpoint: d}\ntargets: {p: {}}\n"
    assert target(text, head).source.checkpoint.name == "d"
    assert target("source: {meta_graph: other}\ntargets: {p: {}}\n", head).source.checkpoint is None


def test_a_saved_model(target):
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
def test_quantize_is_a_step_of_the_chain(target, quantize, steps, resolved):
    found = target(f"targets: {{p: {{quantize: {quantize}}}}}\n")
    assert found.transforms == tuple(Step(name, ((key, value),)) for name, key, value in steps)
    assert found.quantize == resolved


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
def test_constants_of_few_bits_are_a_step_of_the_chain(target, quantize, name, params):
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
def test_nodes_are_quantized_by_ranges_of_three_kinds(
    target, quantize, calibration, ranges, takes_ranges
):
    (step,) = target(f"{calibration}targets: {{p: {{quantize: {quantize}}}}}\n").transforms
    # The transform without the option does what the original did.
    assert step == Step("quantize_nodes", (("ranges", ranges),), takes_ranges=takes_ranges)


@pytest.mark.parametrize(
    ("releases", "pads"), [('["1.15", "2.21"]', False), ('["2.21"]', True), ('"2.21"', True)]
)
def test_pads_are_in_eight_bits_where_every_release_of_the_target_has_kernels(
    target, releases, pads
):
    text = f"targets: {{p: {{quantize: nodes, registration: {{tensorflow: {releases}}}}}}}\n"
    (step,) = target(text).transforms
    assert step.options.get("tensorflow") == ("2.21" if pads else None)
    make_transform(step.name, step.options)


def test_repairs_come_between_then_and_quantizing(target):
    found = target(
        "transforms: [strip_unused_nodes]\ncalibration: {data: d}\ntargets:\n"
        "  p:\n    then: [fold_constants]\n    sort: true\n    quantize:\n"
        "      {mode: nodes, ranges: observed, repair: [remove_nodes: {op: [Identity]}]}\n"
    )
    assert names(found) == [
        "strip_unused_nodes",
        "fold_constants",
        "remove_nodes",
        "quantize_nodes",
        "sort_by_execution_order",
    ]
    assert found.transforms[2].options == {"op": ("Identity",)}
    assert [step.takes_ranges for step in found.transforms] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("chain", "repair", "data", "measured_on"),
    [
        ("", "correct_bias", "data/c.npz", "data/c.npz"),
        ("", "absorb_high_biases", "data/c.npz", "data/c.npz"),
        ("", "correct_bias: {data: own.npz}", "data/c.npz", "own.npz"),
        ("", "correct_bias", "photos", None),
        ("", "correct_bias", "{npz: c.npz, inputs: {x: y}}", None),
        ("", "remove_device", "data/c.npz", None),
        # Statistics are kept to do without data.
        ("fuse_batch_norms: {keep_statistics: true}", "correct_bias", "data/c.npz", None),
    ],
)
def test_repairs_that_measure_take_the_calibration_s_data(
    write, tmp_path, chain, repair, data, measured_on
):
    path = write(
        f"{HEAD}transforms: [{chain}]\ncalibration: {{data: {data}}}\ntargets:\n"
        f"  p: {{quantize: {{mode: nodes, ranges: observed, repair: [{repair}]}}}}\n"
    )
    (found,) = load_recipe(path, environ={}).targets
    step = found.transforms[-2]
    assert step.options.get("data") == measured_on
    assert [file.file.path for file in step.files] == (
        [tmp_path / measured_on] if measured_on else []
    )


def test_a_calibration(target):
    text = (
        "calibration: {data: d/c.npz, method: mse, samples: 20, seed: 3, batch: 4, "
        "range_file: r.yaml, workers: 2, dask: 'tcp://a:1'}\ntargets: {p: {}}\n"
    )
    found = target(text).calibration
    assert (found.data.file.name, found.range_file.name) == ("d/c.npz", "r.yaml")
    assert (found.method, found.samples, found.seed, found.batch) == ("mse", 20, 3, 4)
    assert (found.workers, found.dask) == (2, "tcp://a:1")
    # Where it runs decides nothing.
    assert {"workers", "dask"}.isdisjoint(digestible(found))
    alone = target(text.replace(", workers: 2, dask: 'tcp://a:1'", "")).calibration
    assert alone == found
    counts = target(
        "calibration: {data: d, samples: 2e1, seed: 3.0, batch: 4.0, workers: 1.0}\n"
        "targets: {p: {}}\n"
    ).calibration
    assert repr((counts.samples, counts.seed, counts.batch, counts.workers)) == "(20, 3, 4, 1)"
    default = target("calibration: {data: d, percentile: 99}\ntargets: {p: {}}\n").calibration
    assert (default.method, default.percentile, default.samples) == ("percentile", 99.0, None)
    assert target("targets: {p: {}}\n").calibration is None


def test_then_goes_on_from_the_shared_chain(target):
    found = target(
        "transforms: [strip_unused_nodes]\n"
        "targets:\n  p: {then: 'fold_constants strip_unused_nodes', quantize: round, sort: true}\n"
    )
    assert names(found) == [
        "strip_unused_nodes",
        "fold_constants",
        "strip_unused_nodes",
        "round_weights",
        "sort_by_execution_order",
    ]


def test_a_target_overrides_any_section(load):
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


def test_paths_start_at_the_file_that_names_them(load, write, tmp_path):
    write("version: 1\nname: x\nsource: {frozen: m.pb}\n", "shared/base.yaml")
    recipe = load("extends: shared/base.yaml\nvalidation: {data: t.npz}\ntargets: {p: {}}\n")
    (target,) = recipe.targets
    assert target.source.file.path == tmp_path / "shared/m.pb"
    assert target.source.file.name == "m.pb"
    assert target.source.file.place == "shared/base.yaml:3:18"
    assert target.validation.data.file.path == tmp_path / "t.npz"


def test_places_for_later_layers(load):
    recipe = load(HEAD + "outputs: [y,\n  z]\ntargets:\n  p: {}\n  q:\n    outputs: [w]\n")
    p, q = recipe.targets
    assert p.place(("outputs", 1)) == "recipe.yaml:5:3"
    assert q.place(("outputs", 0)) == "recipe.yaml:9:15"
    assert p.place(("source", "frozen")) == "recipe.yaml:3:18"
    # What is not there is at the nearest thing above it.
    assert p.place(("outputs", 7)) == "recipe.yaml:4:1"
    assert p.place(("source", "nope", "deeper")) == "recipe.yaml:3:1"
    assert recipe.place(("targets", "q")) == "recipe.yaml:8:3"
    assert recipe.place() == "recipe.yaml:1:1"


def test_variables_are_named(load):
    text = (
        "version: 1\nname: x\nsource: {frozen: '${M}.pb'}\ntargets:\n  p:\n    sort: ${S:-true}\n"
    )
    recipe = load(text, settings={"M": "m"})
    assert recipe.variables == ("M", "S")
    assert recipe.targets[0].source.file.name == "m.pb"
    assert names(recipe.targets[0]) == ["sort_by_execution_order"]


def test_what_decides_results_has_no_path_or_place(load, write):
    text = "transforms: [remove_nodes: {op: A}]\nvalidation: {data: d}\ntargets: {p: {}}\n"
    here = digestible(load(HEAD + text))
    # Comments, quoting and the folder do not matter.
    moved = "# moved\n" + HEAD + "\n\n" + text.replace("A}", "'A'}")
    write(moved, "else/where.yaml")
    there = load("extends: else/where.yaml\n")
    assert digestible(there) == here
    assert str(Path.cwd()) not in repr(here)
    assert "recipe.yaml" not in repr(here)
    step = {
        "name": "remove_nodes",
        "params": [["op", ["A"]]],
        "plugin": None,
        "takes_ranges": False,
        "trials": 0,
    }
    assert here["targets"][0]["transforms"] == [step]
    changed = digestible(load(HEAD + text.replace("A}", "B}")))
    assert changed != here


def test_a_recipe_can_be_hashed_and_pickled(load):
    recipe = load(HEAD + "targets: {p: {quantize: weights}}\n")
    copy = pickle.loads(pickle.dumps(recipe))
    assert isinstance(copy, Recipe)
    assert copy == recipe
    assert hash(copy.targets) == hash(recipe.targets)
    assert copy.place(("targets", "p")) == recipe.place(("targets", "p"))


RULED = """targets:
  p:
    quantize:
      mode: nodes
      ranges: dynamic
      rules:
        - {ops: [Conv2D, MatMul], bits: 6, granularity: channel, method: mse}
        - {nodes: '^logits/[a-z]+$', mode: float}
"""


def test_rules_are_an_option_of_the_step(target):
    (step,) = target(RULED.replace("bits: 6", "bits: 6.0")).transforms
    assert step.name == "quantize_nodes"
    assert step.options == {
        "ranges": "dynamic",
        "rule": (
            "bits=6 granularity=channel method=mse ops=Conv2D,MatMul",
            "mode=float nodes=^logits/[a-z]+$",
        ),
    }
    made = make_transform(step.name, step.options)
    assert Rules(step.name, made.rule).settings(node("logits/x", "MatMul")).mode == "float"


def test_a_mode_that_takes_no_ranges_takes_no_rules_either(load):
    with pytest.raises(RecipeError, match="'rules' applies only to"):
        load(HEAD + "targets: {p: {quantize: {mode: weights, rules: [{mode: float}]}}}\n")
