"""``mobileprep init``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.pipeline.locks import alone
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.preprocessing import StatedPreprocessing
from mobileprep.runtime.interpreter import Interpreter
from tests.building.stages.jobs import classifier
from tests.building.test_preprocessing import COLORS, SCALINGS, images
from tests.building.test_preprocessing import classifier as colors
from tests.cli.conftest import Run
from tests.data.made import write
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import FLOAT, const, node, placeholder, ref_variable
from tests.freezing.saved import MODEL, W, meta, write_meta, write_saved_model
from tests.freezing.test_convert import reader, updating, with_branch
from tests.ops.pictures import encoded


@pytest.fixture
def model(workdir: Path) -> Path:
    """A frozen graph in a subdirectory."""
    write_graph(workdir / "models" / "net.pb", classifier())
    return Path("models/net.pb")


@pytest.fixture
def training(model: Path) -> Path:
    """A directory with a graph of variables and two matching checkpoints."""
    folder = Path("train")
    variable = ref_variable("w", 3)
    nodes = [placeholder("x", -1, 3), *variable, node("y", "Mul", "x", "w/read", T=FLOAT)]
    write_graph(folder / "net.pb", Graph(nodes))
    for name in ("first", "second"):
        write_bundle(folder / name, {"w": np.arange(3, dtype=np.float32)})
    return folder


def test_written_recipe_builds(model: Path, run: Run) -> None:
    result = run("init", model, "--inputs", "x", "--outputs", "y")
    assert result.code == 0
    assert "recipe.yaml: written" in result.err
    assert run("validate", "recipe.yaml").code == 0
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err
    assert "y" in read_graph(Path("out/net/phone/net.pb"))
    header = Path("out/net/phone/ops_to_register.h").read_text()
    assert "#define SHOULD_REGISTER_OP" in header


@pytest.mark.parametrize("recipe", ["models/recipe.yaml", "recipes/net/recipe.yaml", "r.yaml"])
def test_paths_are_relative_to_the_recipe(model: Path, run: Run, recipe: str) -> None:
    result = run("init", model, "--inputs", "x", "--outputs", "y", "--recipe", recipe)
    assert result.code == 0
    assert run("build", recipe).code == 0
    assert str(Path.cwd()) not in Path(recipe).read_text()


@pytest.mark.parametrize("name", ["123", "true", "1e5", "null", "a b", "~", "#", ".hidden"])
def test_unusual_file_names_give_valid_recipes(model: Path, run: Run, name: str) -> None:
    other = model.with_name(f"{name}.pb")
    model.rename(other)
    assert run("init", other, "--inputs", "x", "--outputs", "y").code == 0
    recipe = load_recipe(Path("recipe.yaml"), environ={})
    assert recipe.targets[0].source.file.path.resolve() == other.resolve()


def test_input_and_output_names_are_split_and_quoted(model: Path, run: Run) -> None:
    run("init", model, "--no-try", "--inputs", "a, b:0", "--outputs", "y,z:1")
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert [i.name for i in target.inputs] == ["a", "b:0"]
    assert target.outputs == ("y", "z:1")


def test_checkpoint_option_selects_the_checkpoint(training: Path, run: Run) -> None:
    result = run("init", training / "net.pb", "--checkpoint", training / "second")
    assert result.code == 0, result.err
    source = load_recipe(Path("recipe.yaml"), environ={}).targets[0].source
    assert (source.kind, source.file.name) == ("graph", "train/net.pb")
    assert source.checkpoint is not None
    assert source.checkpoint.name == "train/second"


@pytest.mark.parametrize("name", ["train", "train/net.pb", "train/first", "train/first.index"])
def test_graph_and_checkpoint_are_paired(training: Path, run: Run, name: str) -> None:
    (training / "second.index").unlink()
    assert run("init", name).code == 0
    source = load_recipe(Path("recipe.yaml"), environ={}).targets[0].source
    assert source.checkpoint is not None
    assert (source.file.name, source.checkpoint.name) == ("train/net.pb", "train/first")
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err


def test_inputs_and_outputs_are_detected(model: Path, run: Run) -> None:
    assert run("init", model).code == 0
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert [(i.name, i.dtype, i.shape) for i in target.inputs] == [("x", "float32", (-1, 3))]
    assert target.outputs == ("y",)
    assert run("build", "recipe.yaml").code == 0


def test_invalid_model_writes_no_recipe(model: Path, run: Run) -> None:
    for content, code in ((b"\xff" * 100, 4), (b"\xff\xd8\xff\xe0", 6)):
        model.write_bytes(content)
        result = run("init", model, "--recipe", "new/recipe.yaml")
        assert (result.code, str(model) in result.err) == (code, True)
        assert "help: " in result.err
        assert not Path("new").exists()


def test_meta_graph_without_variables_needs_no_checkpoint(model: Path, run: Run) -> None:
    meta_graph = pb.MetaGraphDef()
    meta_graph.meta_info_def.tags.append("train")
    meta_graph.graph_def.ParseFromString(model.read_bytes())
    Path("net.meta").write_bytes(meta_graph.SerializeToString())
    result = run("init", "net.meta", "--inputs", "x", "--outputs", "y")
    assert result.code == 0, result.err
    assert run("build", "recipe.yaml").code == 0


def test_quantization_and_check_are_enabled(model: Path, run: Run) -> None:
    assert run("init", model).code == 0
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert target.check
    assert target.quantize.mode == "weights"
    assert Path("recipe.yaml").read_text().startswith("# yaml-language-server: $schema=")


def test_channels_of_different_ranges_get_separate_scales(model: Path, run: Run) -> None:
    values = np.random.default_rng(0).normal(0, 0.3, (32, 64)).astype(np.float32)
    values[:, 0] *= 1e4
    nodes = [
        placeholder("x", -1, 32),
        const("w", values),
        node("product", "MatMul", "x", "w", T=FLOAT),
        node("y", "Tanh", "product", T=FLOAT),
    ]
    write_graph(model, Graph(nodes))
    text = quantized(model, run)
    assert "quantize: {mode: weights, granularity: channel}" in text
    assert "Rejected 'quantize: weights': after quantize_weights the output 'y' differs" in text
    assert load_recipe(Path("recipe.yaml")).targets[0].quantize.granularity == "channel"


def quantized(model: Path, run: Run) -> str:
    """The recipe that ``init`` writes, in one line; its build prints no warnings."""
    assert run("init", model).code == 0
    built = run("build", "recipe.yaml")
    assert (built.code, "warning" in built.err) == (0, False)
    return " ".join(Path("recipe.yaml").read_text().replace("#", "").split())


def test_layers_are_equalized_if_needed(model: Path, run: Run) -> None:
    draw = np.random.default_rng(0)
    first = draw.normal(0, 1, (32, 64)).astype(np.float32)
    second = draw.normal(0, 1, (64, 32)).astype(np.float32)
    spread = np.geomspace(1, 3e4, 64).astype(np.float32)
    nodes = [
        placeholder("x", -1, 32),
        const("w", first * spread),
        node("first", "MatMul", "x", "w", T=FLOAT),
        node("relu", "Relu", "first", T=FLOAT),
        const("v", second / spread[:, None]),
        node("y", "MatMul", "relu", "v", T=FLOAT),
    ]
    write_graph(model, Graph(nodes))
    text = quantized(model, run)
    assert "then: [equalize_ranges] quantize: weights" in text
    assert text.count("Rejected 'quantize: ") == 2


def test_float16_is_the_fallback_with_next_steps(model: Path, run: Run) -> None:
    weights = np.random.default_rng(0).normal(0, 1, (1024, 4)).astype(np.float32)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0].astype(np.float32)
    spread = np.array([60, 1, 1, 1], np.float32)
    nodes = [
        placeholder("x", -1, 1024),
        const("w", weights * spread @ rotation),
        node("mixed", "MatMul", "x", "w", T=FLOAT),
        const("back", (rotation.T * [0, 1, 1, 1]).astype(np.float32)),
        node("y", "MatMul", "mixed", "back", T=FLOAT),
    ]
    write_graph(model, Graph(nodes))
    text = quantized(model, run)
    assert "quantize: float16" in text
    assert text.count("Rejected '") == 3
    assert "Next steps towards 8 bits: check on samples of your own" in text


def test_unchecked_model_stays_float(model: Path, run: Run) -> None:
    nodes = [
        placeholder("text", -1, dtype=DType.STRING),
        node("y", "StringLower", "text", encoding=""),
    ]
    write_graph(model, Graph(nodes))
    assert run("init", model).code == 0
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert (bool(target.check), target.quantize.mode) == (False, "none")
    text = Path("recipe.yaml").read_text()
    assert "# Not checked: " in text
    assert "# The weights stay float" in text
    assert run("build", "recipe.yaml").code == 0


def test_inconclusive_check_keeps_float(model: Path, run: Run) -> None:
    values = np.random.default_rng(0).normal(0, 1e-9, (32, 64)).astype(np.float32)
    nodes = [
        placeholder("x", 1, 32),
        const("w", values),
        node("product", "MatMul", "x", "w", T=FLOAT),
        const("far", np.ones(64, np.float32)),
        node("y", "AddV2", "product", "far", T=FLOAT),
    ]
    write_graph(model, Graph(nodes))
    assert run("init", model).code == 0
    target = load_recipe(Path("recipe.yaml")).targets[0]
    assert (bool(target.check), target.quantize.mode) == (True, "none")
    text = " ".join(Path("recipe.yaml").read_text().replace("#", "").split())
    assert "The weights stay float: outputs hardly move from sample to sample" in text


def test_labeled_samples_become_a_validation(model: Path, run: Run) -> None:
    x = np.eye(3, dtype=np.float32)
    np.savez("data.npz", x=x, digit=np.arange(3))
    result = run("init", model, "--data", "data.npz", "--labels", "digit")
    assert result.code == 0, result.err
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert target.validation is not None
    assert target.validation.metrics[0].labels == "digit"
    assert run("build", "recipe.yaml").code == 0
    wrong = run("init", model, "--data", "data.npz", "--labels", "none", "--recipe", "b.yaml")
    assert wrong.code == 8
    assert not Path("b.yaml").exists()


def test_unlabeled_samples_validate_agreement(model: Path, run: Run) -> None:
    np.savez("data.npz", x=np.eye(3, dtype=np.float32))
    result = run("init", model, "--data", "data.npz")
    assert result.code == 0, result.err
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert target.validation is not None
    assert target.validation.metrics[0].metric == "agreement"
    assert run("build", "recipe.yaml").code == 0


def test_dash_writes_to_stdout(model: Path, run: Run) -> None:
    result = run("init", model, "--recipe", "-")
    assert result.code == 0
    assert not Path("-").exists()
    assert not Path("recipe.yaml").exists()
    Path("recipe.yaml").write_text(result.out)
    assert run("build", "recipe.yaml").code == 0


def test_no_try_skips_build_and_check(model: Path, run: Run) -> None:
    result = run("init", model, "--no-try")
    assert (result.code, "not built yet" in result.err) == (0, True)
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert (bool(target.check), target.quantize.mode) == (False, "none")
    assert not Path("store").exists()


def test_recipe_names_are_unique(model: Path, run: Run) -> None:
    for folder in ("a", "b", "c/model"):
        write_graph(Path(folder) / "frozen.pb", classifier())
        recipe = Path("recipes") / folder.replace("/", "-") / "recipe.yaml"
        assert run("init", Path(folder) / "frozen.pb", "--recipe", recipe).code == 0
    for number in range(3):
        assert run("init", model, "--recipe", f"recipes/a/{number}.yaml").code == 0
    names = [load_recipe(p, environ={}).name for p in sorted(Path("recipes").rglob("*.yaml"))]
    assert sorted(names) == ["a", "b", "c", "net", "net-2", "net-3"]
    assert run("init", model, "--name", "mine", "--recipe", "m.yaml").code == 0
    assert load_recipe("m.yaml", environ={}).name == "mine"


@pytest.mark.parametrize(
    ("newer", "line"),
    [
        (node("y", "BatchMatMulV3", "x", "x", Ta=FLOAT, Tb=FLOAT, Tout=FLOAT), "  - downgrade"),
        (node("y", "Xlog1py", "x", "x", T=FLOAT), '    registration: {tensorflow: ["2.21"]}'),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--no-try"]])
def test_model_of_a_newer_release_gets_a_loadable_recipe(
    newer: Node, line: str, flags: list[str], model: Path, run: Run
) -> None:
    write_graph(model, Graph([placeholder("x", -1, 2, 2), newer]))
    assert run("init", model, *flags).code == 0
    lines = Path("recipe.yaml").read_text().splitlines()
    above = " ".join(text.strip(" #") for text in lines[: lines.index(line)])
    assert f"TensorFlow 1.15 does not have the op `{newer.op}` (node `y`)" in above
    assert run("validate", "recipe.yaml").code == 0
    assert run("build", "recipe.yaml").code == 0
    assert run("check-target", "out/net/phone/net.pb").code == 0


def test_tensorflow_option_sets_the_release(model: Path, run: Run) -> None:
    assert run("init", model, "--tensorflow=2.21").code == 0
    assert 'registration: {tensorflow: ["2.21"]}' in Path("recipe.yaml").read_text()
    write_graph(model, Graph([placeholder("x", -1), node("y", "Xlog1py", "x", "x", T=FLOAT)]))
    refused = run("init", model, "--tensorflow=1.15", "--recipe=other.yaml")
    assert refused.code == 6
    assert "TensorFlow 1.15 does not have the op `Xlog1py`" in refused.err


def test_control_flow_with_variable_updates_is_lowered(workdir: Path, run: Run) -> None:
    (workdir / "model").mkdir()
    source = with_branch(workdir / "model", updating("f"), reader("g"), other="g")
    write_graph(workdir / "model" / "net.pb", source.graph)
    result = run("init", "model/net.pb")
    assert result.code == 0, result.err
    assert load_recipe(Path("recipe.yaml"), environ={}).targets[0].freeze.control_flow == "lower"
    text = " ".join(Path("recipe.yaml").read_text().replace("#", "").split())
    assert "the function 'f' changes a variable (AssignSubVariableOp). freeze: {" in text
    assert run("build", "recipe.yaml").code == 0


def test_error_after_failed_lowering_is_the_original(workdir: Path, run: Run) -> None:
    nodes = [*ref_variable("w", 3), placeholder("x", 3)]
    nodes += [node("y", "AssignAdd", "w", "x", T=FLOAT)]
    write_graph(workdir / "model" / "net.pb", Graph(nodes))
    write_bundle(workdir / "model" / "ckpt", {"w": np.arange(3, dtype=np.float32)})
    result = run("init", "model/net.pb", "--outputs", "y")
    assert (result.code, Path("recipe.yaml").exists()) == (6, False)
    assert "takes the result of 'y' (AssignAdd)" in result.err


def test_broken_graph_is_reported(model: Path, run: Run) -> None:
    dangling = node("z", "AddV2", "x", "gone", T=FLOAT)
    split = node("z", "Split", "axis", "x", T=FLOAT, num_split=1 << 62)
    for nodes, message in (
        ([placeholder("x", 2), dangling], "takes 'gone', which does not exist"),
        ([placeholder("x", 2), const("axis", np.int32(0)), split], "declares 4611686018427387904"),
    ):
        write_graph(model, Graph(nodes))
        result = run("init", model)
        assert (result.code, message in result.err, str(model) in result.err) == (5, True, True)
        assert not Path("recipe.yaml").exists()


def test_likeliest_output_of_a_training_graph_is_used(
    built_once: Path, run: Run, workdir: Path
) -> None:
    model = built_once / "digits" / "model"
    result = run("init", model / "graph.pbtxt", "--checkpoint", model / "model.ckpt-1000")
    assert result.code == 0
    assert load_recipe(Path("recipe.yaml"), environ={}).targets[0].outputs == ("probabilities",)
    text = Path("recipe.yaml").read_text()
    assert "# Outputs: used by no other node." in text


def test_existing_recipe_is_not_overwritten(model: Path, run: Run) -> None:
    Path("recipe.yaml").write_text("mine")
    result = run("init", model)
    assert (result.code, Path("recipe.yaml").read_text()) == (2, "mine")
    assert "--recipe" in result.err


def test_missing_model_is_reported(model: Path, run: Run) -> None:
    result = run("init", "models/none.pb")
    assert result.code == 4
    assert "models/none.pb: does not exist" in result.err
    assert not Path("recipe.yaml").exists()


def test_cache_lock_is_released(model: Path, run: Run) -> None:
    assert run("init", model, "--inputs", "x", "--outputs", "y").code == 0
    (store,) = Path("store").glob("v*")
    with alone(store, wait=False, tell=lambda _: None):
        pass


def test_cache_lock_is_released_after_failed_builds(model: Path, run: Run) -> None:
    write_graph(model, Graph([placeholder("x", -1, 3), node("y", "NoSuchOp", "x")]))
    assert run("init", model, "--inputs", "x", "--outputs", "y").code != 0
    for store in Path("store").glob("v*"):
        with alone(store, wait=False, tell=lambda _: None):
            pass


def retraining() -> Graph:
    """A graph as in TensorFlow for Poets: the bottleneck defaults to features of the image."""
    rng = np.random.default_rng(3)
    weights = rng.normal(0, 0.2, (3, 3, 3, 64)).astype(np.float32)
    bottleneck = node("bottleneck", "PlaceholderWithDefault", "features", dtype=FLOAT)
    strides: dict[str, Any] = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    return Graph(
        [
            placeholder("image", -1, 16, 16, 3),
            const("filters", weights),
            node("conv", "Conv2D", "image", "filters", T=FLOAT, **strides),
            node("relu", "Relu", "conv", T=FLOAT),
            const("axes", np.array([1, 2], np.int32)),
            node("features", "Mean", "relu", "axes", T=FLOAT, Tidx=DType.INT32, keep_dims=False),
            bottleneck.with_attrs(shape=attr.shape((-1, 64))),
            const("w", rng.normal(0, 1, (64, 5)).astype(np.float32)),
            node("logits", "MatMul", "bottleneck", "w", T=FLOAT),
            node("final_result", "Softmax", "logits", T=FLOAT),
        ]
    )


def test_retrained_model_includes_its_network(model: Path, run: Run) -> None:
    write_graph(model, retraining())
    result = run("init", model)
    assert result.code == 0, result.err
    assert [i.name for i in load_recipe(Path("recipe.yaml")).targets[0].inputs] == ["image"]
    assert run("build", "recipe.yaml").code == 0
    shipped = read_graph(Path("out/net/phone/net.pb"))
    assert "conv" in shipped
    image = np.ones((1, 16, 16, 3), np.float32)
    assert Interpreter(shipped).run(["final_result"], {"image": image})[0].shape == (1, 5)


def test_build_reports_parameters_cut_off_by_inputs(model: Path, run: Run) -> None:
    write_graph(model, retraining())
    assert run("init", model, "--inputs", "bottleneck", "--recipe", "part.yaml").code == 0
    built = run("build", "part.yaml")
    assert built.code == 0, built.err
    assert "the inputs cut off 1,730 of the 2,050 parameters" in built.out
    both = Path("part.yaml").read_text().replace("inputs:\n", "inputs:\n  image: {}\n")
    Path("both.yaml").write_text(both)
    for command in ("validate", "build"):
        refused = run(command, "both.yaml")
        assert refused.code == (3 if command == "validate" else 5), refused.err
        assert "the input 'image' has no effect" in refused.err


def test_output_that_needs_another_placeholder_fails_the_build(model: Path, run: Run) -> None:
    nodes = [placeholder("x", -1, 3), placeholder("scale", 3)]
    write_graph(model, Graph([*nodes, node("y", "Mul", "x", "scale", T=FLOAT)]))
    assert run("init", model, "--no-try", "--inputs", "x").code == 0
    built = run("build", "recipe.yaml")
    assert built.code == 5
    assert "the output 'y' needs the placeholder 'scale' (float32)" in built.err
    assert not Path("out/net").exists()


def test_dropout_probability_input_is_fed_one(model: Path, run: Run) -> None:
    weights = np.random.default_rng(0).normal(0, 1, (8, 4)).astype(np.float32)
    nodes = [
        placeholder("x", -1, 8),
        node("dropout", "Placeholder", dtype=FLOAT),
        node("shape", "Shape", "x", T=FLOAT, out_type=DType.INT32),
        node("random", "RandomUniform", "shape", T=DType.INT32, dtype=FLOAT, seed=3),
        node("sum", "Add", "dropout", "random", T=FLOAT),
        node("mask", "Floor", "sum", T=FLOAT),
        node("div", "RealDiv", "x", "dropout", T=FLOAT),
        node("kept", "Mul", "div", "mask", T=FLOAT),
        const("w", weights),
        node("y", "MatMul", "kept", "w", T=FLOAT),
    ]
    write_graph(model, Graph(nodes))
    assert run("init", model).code == 0
    text = Path("recipe.yaml").read_text()
    assert "The app feeds 1: the dropout keeps everything." in text
    assert load_recipe(Path("recipe.yaml")).targets[0].check
    built = run("build", "recipe.yaml")
    assert built.code == 0
    assert "NaN" not in built.out + built.err


def test_log_hides_failed_trials_and_recipe_has_no_absolute_path(model: Path, run: Run) -> None:
    values = np.random.default_rng(0).normal(0, 1, (64, 4)).astype(np.float32) * np.float32(1e3)
    nodes = [placeholder("x", 1, 64), const("w", values)]
    nodes += [node("z", "MatMul", "x", "w", T=FLOAT), node("y", "Softmax", "z", T=FLOAT)]
    write_graph(model, Graph(nodes))
    result = run("init", model)
    assert result.code == 0
    assert "fail" not in result.err
    assert "error" not in result.err
    text = Path("recipe.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert "file://" not in text


def test_unknown_shape_is_commented_with_the_checked_shape(model: Path, run: Run) -> None:
    weights = np.random.default_rng(0).normal(0, 1, (8, 4)).astype(np.float32)
    nodes = [node("x", "Placeholder", dtype=FLOAT), const("w", weights)]
    write_graph(model, Graph([*nodes, node("y", "MatMul", "x", "w", T=FLOAT)]))
    assert run("init", model).code == 0
    text = " ".join(Path("recipe.yaml").read_text().replace("#", "").split())
    assert "the check feeds [1, 8]: add 'shape:' with the shape that the app feeds." in text


def test_comments_preserve_file_name_case(training: Path, run: Run) -> None:
    (training / "net.pb").rename(training / "graph.pb")
    variable = ref_variable("w", 3)
    more = [placeholder("x", -1, 3), *variable, node("z", "Add", "x", "w/read", T=FLOAT)]
    write_graph(training / "again.pb", Graph(more))
    (training / "second.index").unlink()
    assert run("init", training).code == 0
    text = Path("recipe.yaml").read_text()
    assert "# Other files of the model in the directory: graph.pb.\n" in text


def test_preprocessing_of_images_is_found(workdir: Path, run: Run) -> None:
    write_graph(Path("net.pb"), colors(SCALINGS[1].applied(COLORS[:, ::-1], is_reversed=True)))
    for number, (pixels, label) in enumerate(zip(*images(60), strict=True)):
        image = encoded(pixels.round().astype(np.uint8), "PNG")
        write(Path(f"photos/class{label:02}/{number}.png"), image)
    result = run("init", "net.pb", "--data", "photos")
    assert result.code == 0, result.err
    assert "-1 to 1                bgr        label    1.000       60\n" in result.err
    text = Path("recipe.yaml").read_text()
    assert "# Pixels scaled to -1 to 1, channels bgr: top-1 accuracy 1.000 on 60 samples.\n" in text
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert target.validation is not None
    assert target.validation.data is not None
    reading = target.validation.data.reading
    assert (reading.mean, reading.std, reading.channels) == ((127.5,), (127.5,), "bgr")
    assert target.preprocessing == StatedPreprocessing(channels="bgr", mean=(127.5,), std=(127.5,))
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err
    assert "top-1 1.0000 before" in built.err + built.out


def test_images_without_labels_validate_agreement(workdir: Path, run: Run) -> None:
    write_graph(Path("net.pb"), colors(COLORS))
    for number, pixels in enumerate(images(4)[0]):
        write(Path(f"photos/{number}.png"), encoded(pixels.round().astype(np.uint8), "PNG"))
    result = run("init", "net.pb", "--data", "photos")
    assert result.code == 0, result.err
    target = load_recipe(Path("recipe.yaml"), environ={}).targets[0]
    assert target.validation is not None
    assert target.validation.metrics[0].metric == "agreement"


def test_preprocessing_of_arrays_is_a_comment(workdir: Path, run: Run) -> None:
    write_graph(Path("net.pb"), colors(SCALINGS[0].applied(COLORS, is_reversed=False)))
    pixels, labels = images()
    np.savez("data.npz", image=pixels, label=labels)
    result = run("init", "net.pb", "--data", "data.npz")
    assert result.code == 0, result.err
    text = Path("recipe.yaml").read_text()
    assert "# The arrays contain 0 to 255: scale pixels of 0 to 255 as (pixel - 0) / 255.\n" in text
    assert "\npreprocessing: {mean: 0, std: 255, channels: rgb}\n" in text
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err
    assert "preprocessing: rgb; bilinear 8 x 8; mean 0; std 255; input image" in built.out


def test_unclear_preprocessing_is_not_guessed(workdir: Path, run: Run) -> None:
    write_graph(Path("net.pb"), colors(SCALINGS[0].applied(COLORS, is_reversed=False)))
    pixels, labels = images()
    np.savez("data.npz", image=pixels / 255, label=labels[::-1].copy())
    result = run("init", "net.pb", "--data", "data.npz")
    assert result.code == 0, result.err
    text = " ".join(Path("recipe.yaml").read_text().replace("#", "").split())
    assert "The preprocessing is not clear: no preprocessing is clearly better than chance" in text


FED = "--feed=x=[10, 20, 30]"
SUM = "y: float32[3] [10.0, 21.0, 32.0]\n"


@pytest.mark.parametrize("name", ["", "saved_model.pb"])
def test_saved_model_runs_by_its_signature(run: Run, tmp_path: Path, name: str) -> None:
    model = write_saved_model(tmp_path) / name
    result = run("run", "--graph", model, "--feed=in=[10, 20, 30]")
    assert (result.code, result.out) == (0, SUM.replace("y", "y:0"))
    result = run("run", "--graph", model, "--signature=serving_default", FED, "--fetch=out")
    assert result.out == SUM.replace("y", "y:0")
    assert run("run", "--graph", model, FED, "--fetch=y").out == SUM


def test_meta_graph_runs_with_its_default_or_another_checkpoint(run: Run, tmp_path: Path) -> None:
    path = write_meta(tmp_path)
    write_bundle(tmp_path / "other", {"w": W + 1})
    result = run("run", "--graph", path, FED, f"--checkpoint={tmp_path / 'other'}", "--fetch=y")
    assert result.out == "y: float32[3] [11.0, 22.0, 33.0]\n"
    write_bundle(tmp_path / "model", {"w": W})
    assert run("run", "--graph", path, FED, "--fetch=y").out == SUM


def test_graph_with_variables_runs_with_its_checkpoint(run: Run, tmp_path: Path) -> None:
    write_graph(tmp_path / "g.pb", MODEL.graph)
    write_bundle(tmp_path / "ckpt", {"w": W})
    command = ("run", "--graph", tmp_path / "g.pb", FED, "--fetch=y")
    assert run(*command).code == 6
    assert run(*command, "--checkpoint", tmp_path / "ckpt").out == SUM


def test_outputs_are_required_without_a_signature(run: Run, tmp_path: Path) -> None:
    meta_graph = meta()
    meta_graph.signature_def.clear()
    path = write_meta(tmp_path, meta_graph)
    write_bundle(tmp_path / "model", {"w": W})
    result = run("run", "--graph", path, FED)
    assert result.code == 2
    assert "no outputs are named" in result.err
    assert "likely outputs: y" in result.err


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--signature=a", "the signature 'a' is named, and a GraphDef has none"),
        ("--saved_model_tags=a", "the tags 'a' choose within a SavedModel"),
    ],
)
def test_flags_of_other_model_kinds_are_refused(
    run: Run, tmp_path: Path, flag: str, message: str
) -> None:
    write_graph(tmp_path / "g.pb", MODEL.graph)
    result = run("run", "--graph", tmp_path / "g.pb", FED, flag)
    assert (result.code, message in result.err) == (2, True)


def test_directory_without_a_model_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("run", "--graph", tmp_path, FED)
    assert result.code == 4
    assert "has no saved_model.pb" in result.err


def test_saved_model_is_benchmarked(run: Run, tmp_path: Path) -> None:
    result = run("benchmark", "--graph", write_saved_model(tmp_path), "--num_runs=2", "--json")
    assert result.code == 0
    assert [n["name"] for n in json.loads(result.out)["nodes"]] == ["y"]
