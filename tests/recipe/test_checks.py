"""Checks beyond the schema: combinations of keys and requirements of targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.report.page.render import PAGE
from mobileprep.building.targets import provenance_path

HEAD = "version: 1\nname: digits\n"
SOURCE = "source: {frozen: model.pb}\n"
TARGETS = "targets: {phone: {platform: android}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEAD + SOURCE,
            "1:1: the recipe has no targets; add one: 'targets: {phone: {platform: android}}'",
        ),
        (
            HEAD + TARGETS,
            (
                "1:1: the recipe has no source; add 'source: {graph: ..., checkpoint: ...}' "
                "or another kind of source"
            ),
        ),
        (
            HEAD + "targets:\n  a: {source: {frozen: m}}\n  b: {}\n",
            (
                "5:3 targets.b: the target 'b' has no source; add 'source: {graph: ..., "
                "checkpoint: ...}' or another kind of source"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: {mode: nodes, ranges: observed}}}\n",
            (
                "4:47 targets.p.quantize.ranges: observed ranges need a calibration; "
                "add 'calibration: {data: samples.npz}' to the recipe"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: auto}}\nvalidation: {data: d.npz}\n",
            (
                "4:25 targets.p.quantize: 'quantize: auto' needs a calibration, for the ranges; "
                "add 'calibration: {data: samples.npz}' to the recipe"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: {mode: auto}}}\ncalibration: {data: d.npz}\n",
            (
                "4:32 targets.p.quantize.mode: 'quantize: auto' needs a validation with limits; "
                "add 'validation: {data: test.npz, max_drop: 0.01}' to "
                "the recipe"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: {mode: nodes, trials: 3}}}\n",
            "4:39 targets.p.quantize.trials: 'trials' applies only to 'auto'; remove it",
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: {mode: round, ranges: observed}}}\n",
            (
                "4:39 targets.p.quantize.ranges: 'ranges' applies only to 'nodes', 'int8' or "
                "'int16x8'; remove it"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: int8}}\ncalibration: {data: d.npz}\n",
            (
                "4:25 targets.p.quantize: 'int8' is a mode for LiteRT; add 'artifact: tflite' to "
                "the target"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {artifact: tflite, quantize: nodes}}\n",
            (
                "4:43 targets.p.quantize: LiteRT cannot run what 'nodes' makes; choose of float16, "
                "weights, int4, int8, int16x8"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {artifact: tflite, quantize: int8}}\n",
            (
                "4:43 targets.p.quantize: 'int8' needs a calibration, for the ranges; add "
                "'calibration: {data: samples.npz}' to the recipe"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {artifact: tflite, quantize: {mode: weights, minimum_size: 4}}}\n",
            (
                "4:59 targets.p.quantize.minimum_size: 'minimum_size' does not apply to 'artifact: "
                "tflite'; remove it, or choose 'int4'"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {artifact: tflite, quantize: {mode: int16x8, ranges: trained,"
            + " inference_input_type: int8}}}\n",
            (
                "4:98 targets.p.quantize.inference_input_type: 'int8' is not an input type for "
                "'int16x8'; choose of float, int16"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {artifact: tflite, quantize: {mode: int8, ranges: dynamic}}}\n"
            + "calibration: {data: d.npz}\n",
            (
                "4:64 targets.p.quantize.ranges: 'int8' needs ranges that are known before the "
                "model runs; write 'observed' or 'trained'"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {quantize: {mode: nodes, rules: [{ops: [Conv2D], percentile: 99}]}}}\n",
            (
                "4:63 targets.p.quantize.rules[0].percentile: 'percentile' needs the method "
                "'percentile'; write 'method: percentile' as well, or remove it"
            ),
        ),
        (
            HEAD + SOURCE + "targets: {p: {quantize: {mode: nodes, rules: [{ops: [Conv2D]}]}}}\n",
            (
                "4:47 targets.p.quantize.rules[0]: the rule has no effect; "
                "add 'mode: float', or 'bits', 'granularity' or 'method'"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {quantize: {mode: nodes, rules: [{ops: [Add], mode: int16x8}]}}}\n",
            (
                "4:60 targets.p.quantize.rules[0].mode: a rule with the mode 'int16x8' needs "
                "LiteRT's integers; write 'mode: int8' in 'quantize'"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {quantize: {mode: auto, min_int8_macs: 0.5}}}\n"
            + "calibration: {data: d.npz}\nvalidation: {data: d.npz}\n",
            (
                "4:38 targets.p.quantize.min_int8_macs: 'min_int8_macs' requires 'artifact: "
                "tflite'; add 'artifact: tflite' to the target 'p', or remove 'min_int8_macs'"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {artifact: tflite, quantize: {mode: int8, min_int8_macs: 0.5}}}\n"
            + "calibration: {data: d.npz}\n",
            (
                "4:56 targets.p.quantize.min_int8_macs: 'min_int8_macs' applies only to 'auto'; "
                "remove it"
            ),
        ),
        (
            HEAD
            + SOURCE
            + "targets: {p: {artifact: tflite, quantize: auto}}\n"
            + "calibration: {data: d.npz}\nvalidation: {data: d.npz, engine: graph}\n",
            (
                "6:35 validation.engine: 'quantize: auto' measures .tflite files, and the "
                "validation runs the graph; remove 'engine'"
            ),
        ),
        (
            HEAD + SOURCE + TARGETS + "calibration: {method: mse}\n",
            "5:1 calibration: a calibration needs samples; add 'data: samples.npz'",
        ),
        (
            HEAD + SOURCE + TARGETS + "calibration: {data: d, method: mse, percentile: 99}\n",
            ("5:37 calibration.percentile: 'percentile' applies only to 'percentile'; remove it"),
        ),
        (
            HEAD + TARGETS + "source: {}\n",
            (
                "4:1 source: the source names no model; add one of frozen, graph, meta_graph, "
                "saved_model"
            ),
        ),
        (
            HEAD + TARGETS + "source:\n  frozen: a\n  graph: b\n  saved_model: c\n",
            (
                "6:3 source.graph: a source names one model: 'frozen' is already set; "
                "keep one of them"
            ),
        ),
        (
            HEAD + TARGETS + "source:\n  frozen: a\n  graph: b\n  saved_model: c\n",
            (
                "7:3 source.saved_model: a source names one model: 'frozen' is already set; "
                "keep one of them"
            ),
        ),
        (
            HEAD + TARGETS + "source: {graph: g}\n",
            (
                "4:1 source: a graph needs the checkpoint of its variables; add 'checkpoint: ...', "
                "or write 'frozen' for a graph without variables"
            ),
        ),
        (
            HEAD + TARGETS + "source: {frozen: g, checkpoint: c}\n",
            (
                "4:21 source.checkpoint: 'checkpoint' applies only to 'graph' or 'meta_graph'; "
                "remove it"
            ),
        ),
        (
            HEAD + TARGETS + "source: {meta_graph: g, tags: [serve]}\n",
            "4:25 source.tags: 'tags' applies only to 'saved_model'; remove it",
        ),
        (
            HEAD + TARGETS + "source: {frozen: g, signature: s}\n",
            (
                "4:21 source.signature: 'signature' applies only to 'meta_graph' or 'saved_model'; "
                "remove it"
            ),
        ),
        (
            HEAD + TARGETS + f"source: {{frozen: model.pb, sha256: {{modl.pb: {'a' * 64}}}}}\n",
            (
                "4:37 source.sha256['modl.pb']: 'modl.pb' is not a file of this source; "
                "did you mean 'model.pb'?"
            ),
        ),
        (
            HEAD + SOURCE + TARGETS + "validation: {max_drop: 0.1}\n",
            "5:1 validation: validation needs a test set; add 'data: test.npz'",
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    quantize: {mode: round, minimum_size: 3}\n",
            (
                "6:29 targets.p.quantize.minimum_size: 'minimum_size' applies only to 'weights', "
                "'float16' or 'bfloat16'; remove it"
            ),
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    quantize: {mode: float16, bits: 4}\n",
            "6:31 targets.p.quantize.bits: 'bits' applies only to 'weights'; remove it",
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    quantize: {mode: nodes, granularity: tensor}\n",
            (
                "6:29 targets.p.quantize.granularity: 'granularity' applies only to 'weights'; "
                "remove it"
            ),
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    quantize: {mode: none, num_steps: 3}\n",
            "6:28 targets.p.quantize.num_steps: 'num_steps' applies only to 'round'; remove it",
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    abis: [x86]\n",
            (
                "6:5 targets.p.abis: 'abis' applies only to the platforms 'android', 'ios', "
                "'raspberry-pi'; remove it"
            ),
        ),
        (
            HEAD + SOURCE + "targets:\n  p: {platform: ios, abis: [arm64, x86]}\n",
            "5:36 targets.p.abis[1]: ios has no 'x86'; choose of arm64, x86_64",
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    budget: {model_bytes: 60 KBB}\n",
            (
                "6:27 targets.p.budget.model_bytes: '60 KBB' is not a size; write a number with "
                "B, KB, MB, KiB or MiB: '60 KB'"
            ),
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    budget: {compressed_bytes: 0 KB}\n",
            "6:32 targets.p.budget.compressed_bytes: must be at least one byte",
        ),
        (
            HEAD + SOURCE + "targets:\n  pi: {}\n  PI: {}\n",
            (
                "6:3 targets.PI: 'PI' and 'pi' would share a folder on some systems; "
                "use names that differ in more than case"
            ),
        ),
        (
            HEAD + SOURCE + TARGETS + "models:\n  a: {}\n  A: {}\n",
            (
                "7:3 models.A: 'A' and 'a' would share a folder on some systems; "
                "use names that differ in more than case"
            ),
        ),
        (
            HEAD + "models:\n  a: {source: {frozen: m}}\n",
            (
                "4:3 models.a: the model 'a' has no targets; add one: 'targets: {phone: "
                "{platform: android}}'"
            ),
        ),
        (
            HEAD + TARGETS + "models:\n  a: {}\n",
            (
                "5:3 models.a: the model 'a' has no source; add 'source: {graph: ..., "
                "checkpoint: ...}' or another kind of source"
            ),
        ),
        (
            HEAD + SOURCE + TARGETS + "transforms: [fold_constant]\n",
            (
                "5:14 transforms[0]: unknown transform 'fold_constant'; "
                "did you mean 'fold_constants'?"
            ),
        ),
        (
            HEAD + SOURCE + "targets:\n  p:\n    then:\n      - xyzzy\n",
            "7:9 targets.p.then[0]: unknown transform 'xyzzy'",
        ),
    ],
)
def test_problem_is_reported_with_its_location(problems, text, expected):
    assert expected in problems(text)


@pytest.mark.parametrize(
    "name", [PAGE, "Report.HTML", provenance_path(Path("out/digits/phone")).name]
)
def test_target_named_like_a_file_of_builds_is_refused(problems, name):
    (problem,) = problems(HEAD + SOURCE + f"targets:\n  {name}: {{}}\n")
    assert problem == (
        f"5:3 targets[{name!r}]: {name!r} is the name of a file that builds write next to target "
        "directories; give the target another name"
    )


def test_problem_of_a_shared_section_is_reported_once(problems):
    targets = "targets: {a: {}, b: {}, c: {}}\n"
    assert len(problems(HEAD + "source: {graph: g}\ntransforms: [nope]\n" + targets)) == 2


def test_target_is_checked_with_its_overrides(load):
    # The source of the recipe is incomplete, but no target uses it.
    recipe = load(HEAD + "source: {graph: g}\ntargets: {p: {source: {frozen: f}}}\n")
    assert recipe.targets[0].source.kind == "frozen"


def test_pins_of_files_of_a_prefix_or_directory(load):
    pins = f"{{g: {'a' * 64}, c.index: {'b' * 64}, c.data-00000-of-00001: {'c' * 64}}}"
    load(HEAD + TARGETS + f"source: {{graph: g, checkpoint: c, sha256: {pins}}}\n")
    pins = f"{{m/saved_model.pb: {'a' * 64}}}"
    load(HEAD + TARGETS + f"source: {{saved_model: m, sha256: {pins}}}\n")


def test_schema_errors_and_other_problems_are_reported_together(problems):
    lines = problems(HEAD + "source: {graph: g}\ntransforms: [nope]\ntargets: {p: {sort: 1}}\n")
    assert [line.split(" ")[0] for line in lines] == ["3:1", "4:14", "5:21"]


def test_number_of_models_times_targets_is_limited(problems):
    models = "".join(f"  m{i}: {{}}\n" for i in range(50))
    targets = "".join(f"  t{i}: {{}}\n" for i in range(21))
    (problem,) = problems(HEAD + SOURCE + "models:\n" + models + "targets:\n" + targets)
    assert problem == "5:3 models: models times targets come to more than 1,000; split the recipe"


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        (
            "[a/mine.py, fold_constants.py]",
            (
                "4:22 plugins[1]: mobileprep has a transform 'fold_constants' of its own, which "
                "would run; give the file another name"
            ),
        ),
        (
            "[a/mine.py, b/mine.py]",
            (
                "4:22 plugins[1]: 'a/mine.py' is the transform 'mine' already; "
                "give one of them another name"
            ),
        ),
    ],
)
def test_plugin_needs_a_unique_name(problems, plugins, expected):
    assert problems(f"{HEAD}{SOURCE}plugins: {plugins}\n{TARGETS}") == [expected]


def test_plugin_may_be_listed_twice(load):
    load(f"{HEAD}{SOURCE}plugins: [mine.py, ./mine.py]\n{TARGETS}")


LITE = HEAD + SOURCE + "calibration: {data: d.npz}\ntargets:\n  p:\n    artifact: tflite\n"


@pytest.mark.parametrize(
    ("quantize", "expected"),
    [
        ("{mode: int4, block_size: 48}", "expected one of 32, 64, 128, 256, found the number 48"),
        ("{mode: weights, block_size: 32}", "'block_size' applies only to 'int4'; remove it"),
        (
            "{mode: weights, rules: [{nodes: a, block_size: 32}]}",
            ("LiteRT has no kernels for blocks of 8-bit weights; write 'bits: 4' as well, or "
            "remove it"),
        ),
        (
            "{mode: int4, rules: [{nodes: a, block_size: 32, granularity: channel}]}",
            "'block_size' and 'granularity' exclude each other; remove one of them",
        ),
        (
            "{mode: int4, rules: [{nodes: a, mode: nodes}]}",
            ("'int4' only stores weights, so a rule cannot compute in 8 bits; write 'weights' or "
            "'float'"),
        ),
        (
            "{mode: int8, rules: [{nodes: a, bits: 4, block_size: 32}]}",
            ("LiteRT has kernels for blocks of weights only with float activations; write 'mode: "
            "weights' as well, or remove it"),
        ),
        (
            "{mode: int4, rules: [{ops: [DepthwiseConv2dNative], block_size: 32}]}",
            ("LiteRT has no kernels for blocks of weights of DepthwiseConv2dNative; choose MatMul, "
            "Conv2D with 1x1 filters, or GatherV2, or remove it"),
        ),
    ],
)  # fmt: skip
def test_few_bits_without_kernels(problems, quantize, expected):
    (problem,) = problems(f"{LITE}    quantize: {quantize}\n")
    assert expected in problem


@pytest.mark.parametrize(
    "quantize",
    [
        "{mode: int4, block_size: 32}",
        "{mode: weights, bits: 6, granularity: tensor}",
        "{mode: weights, rules: [{ops: [MatMul], bits: 4, block_size: 64}]}",
        "{mode: int4, rules: [{nodes: ^a, mode: float}, {nodes: b, block_size: 256}]}",
        "{mode: int8, rules: [{nodes: ^a, bits: 4}]}",
        "{mode: int8, rules: [{nodes: a, mode: weights, bits: 4, block_size: 32}]}",
    ],
)
def test_few_bits_that_litert_has(load, quantize):
    load(f"{LITE}    quantize: {quantize}\n")


@pytest.mark.parametrize(
    ("quantize", "expected"),
    [
        (
            "{mode: weights, rules: [{nodes: a, bits: 4}]}",
            ("rules for 'weights' require 'artifact: tflite'; add 'artifact: tflite' to the target "
            "'p', or remove them"),
        ),
        (
            "{mode: nodes, rules: [{nodes: a, bits: 4, block_size: 32}]}",
            "'block_size' requires 'artifact: tflite'; remove it",
        ),
    ],
)  # fmt: skip
def test_few_bits_that_only_litert_has(problems, quantize, expected):
    (problem,) = problems(f"{HEAD}{SOURCE}targets: {{p: {{quantize: {quantize}}}}}\n")
    assert expected in problem
