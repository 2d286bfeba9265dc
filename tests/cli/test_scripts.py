"""Command lines from TensorFlow guides, on a small network with the same structure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobileprep.cli._shared.originals import ORIGINALS
from mobileprep.cli.main import main, verb_names
from mobileprep.cli.verb import Parser, bool_flag, flag
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.cli.inception import EIGHT_BIT, SIDE, inception
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.saved import MODEL, W
from tests.ops.pictures import encoded
from tests.transforms.graphs import const, node

IN = "--in_graph=tensorflow_inception_graph.pb"
REQUANT = 'insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:")'


@pytest.fixture(autouse=True)
def _folder(workdir: Path) -> None:
    write_graph(Path("tensorflow_inception_graph.pb"), inception())
    Path("imagenet_comp_graph_label_strings.txt").write_text("".join(f"l{i}\n" for i in range(7)))
    data = Path("tensorflow/examples/label_image/data")
    data.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    (data / "grace_hopper.jpg").write_bytes(encoded(pixels, "JPEG"))


def ops(path: str) -> list[str]:
    return [n.op for n in read_graph(Path(path))]


def run_transform(run: Run, chain: str, *more: str, name: str = "transform_graph") -> str:
    result = run(name, *more, "--out_graph=out.pb", f"--transforms={chain}")
    assert result.code == 0, result.err
    return result.err


LABEL = (
    *("label_image", "--input_mean=128", "--input_std=128", "--input_layer=Mul"),
    *("--output_layer=softmax", "--labels=imagenet_comp_graph_label_strings.txt"),
    *(f"--input_width={SIDE}", f"--input_height={SIDE}"),
)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--input_node_names=x",),
        ("--input_binary=false", "--input_graph=my_graph.pbtxt"),
        ("--logtostderr", "--noclear_devices", "--v", "2"),
    ],
)
def test_freeze_graph(run: Run, more: tuple[str, ...]) -> None:
    write_graph(Path("my_graph.pb"), MODEL.graph)
    write_graph(Path("my_graph.pbtxt"), MODEL.graph, as_text=True)
    write_bundle(Path("model.ckpt-1000"), {"w": W})
    result = run(
        *("freeze_graph", "--input_graph=my_graph.pb", "--input_checkpoint=model.ckpt-1000"),
        *("--output_graph=frozen_graph.pb", "--output_node_names=y", *more),
    )
    assert result.code == 0, result.err
    assert "Converted 1 variables to const ops." in result.out
    assert ops("frozen_graph.pb") == ["Placeholder", "Const", "Identity", "Add"]
    assert ("--input_node_names has no effect" in result.err) is ("--input_node_names=x" in more)


def test_transform_graph_for_deployment(run: Run) -> None:
    chain = (
        f'strip_unused_nodes(type=float, shape="1,{SIDE},{SIDE},3") '
        "fold_constants(ignore_errors=true) fold_batch_norms fold_old_batch_norms"
    )
    run_transform(run, chain, "--", IN, "--inputs=Mul", "--outputs=softmax")
    assert "BatchNormWithGlobalNormalization" not in ops("out.pb")
    assert read_graph(Path("out.pb"))["Mul"].op == "Placeholder"


@pytest.mark.parametrize("chain", ["quantize_weights", "round_weights(num_steps=256)"])
def test_transform_graph_for_size(run: Run, chain: str) -> None:
    run_transform(run, chain, IN, "--inputs=Mul:0", "--outputs=softmax:0")
    assert "Softmax" in ops("out.pb")


def test_transform_graph_for_quantization_with_a_typo(run: Run) -> None:
    command = ("transform_graph", IN, "--out_graph=out.pb", "--inputs=Mul:0", "--outputs=softmax:0")
    result = run(*command, f"--transforms={EIGHT_BIT} Strip_unused_nodes")
    assert result.code == 2
    assert "unknown transform 'Strip_unused_nodes'" in result.err
    assert "did you mean 'strip_unused_nodes'?" in result.err
    assert run(*command, f"--transforms={EIGHT_BIT} strip_unused_nodes").code == 0
    assert "QuantizedConv2D" in ops("out.pb")


@pytest.mark.parametrize(
    "chain", ['strip_unused_nodes(type=float, shape="1,784")', "fold_constants"]
)
def test_transform_graph_for_digits(run: Run, chain: str) -> None:
    placeholder = node("input", "Placeholder", T=None, dtype=DType.FLOAT)
    write_graph(Path("digits.pb"), Graph([placeholder, node("output", "Softmax", "input")]))
    run_transform(run, chain, "--in_graph=digits.pb", "--inputs=input", "--outputs=output")
    assert sorted(ops("out.pb")) == ["Placeholder", "Softmax"]


def test_observed_ranges_from_a_log(run: Run) -> None:
    run_transform(run, EIGHT_BIT, IN, "--inputs=Mul", "--outputs=softmax")
    Path("out.pb").rename("quantized_graph.pb")
    ends = ("--in_graph=quantized_graph.pb", "--inputs=Mul", "--outputs=softmax")
    run_transform(run, REQUANT, *ends)
    Path("out.pb").rename("logged_quantized_graph.pb")
    code = "import sys; from mobileprep.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *LABEL, "--graph=logged_quantized_graph.pb"]
    with Path("logged_ranges.txt").open("wb") as log:  # 2> logged_ranges.txt
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=True)
    assert len(done.stdout.splitlines()) == 5
    number = r"-?[0-9.]+(e[+-][0-9]+)?"
    lines = Path("logged_ranges.txt").read_text().splitlines()
    shape = rf";(.*)__print__;__requant_min_max:\[{number}\]\[{number}\]\Z"
    matches = [re.match(shape, line) for line in lines]
    assert matches
    assert all(matches)
    assert lines[0].startswith(";conv/Conv2D/eightbit/requant_range__print__;__requant_min_max:[")
    chain = "freeze_requantization_ranges (min_max_log_file=logged_ranges.txt)"
    result = run_transform(run, chain, *ends)
    assert "white space before '('" in result
    assert "RequantizationRange" in ops("quantized_graph.pb")
    assert "RequantizationRange" not in ops("out.pb")
    assert "frozen_min" in "".join(n.name for n in read_graph(Path("out.pb")))
    before, after = (run(*LABEL, f"--graph={g}.pb").out for g in ("quantized_graph", "out"))
    assert before == after


@pytest.mark.parametrize("verb", ["label_image", "run"])
def test_label_image(run: Run, verb: str) -> None:
    result = run(verb, *LABEL[1:], "--graph=tensorflow_inception_graph.pb", "--logtostderr")
    assert result.code == 0, result.err
    assert re.fullmatch(r"(l\d \(\d\): \S+\n){5}", result.out)


def test_label_image_has_the_original_defaults(run: Run) -> None:
    result = run("label_image")
    assert result.code == 2
    assert "inception_v3_2016_08_28_frozen.pb, does not exist" in result.err
    x = Node("input", "Placeholder", attrs={"dtype": attr.dtype(DType.FLOAT)})
    axes = const("axes", [1, 2], np.int32)
    name = "InceptionV3/Predictions/Reshape_1"
    mean = node(name, "Mean", "input axes", Tidx=DType.INT32, keep_dims=False)
    data = Path("tensorflow/examples/label_image/data")
    write_graph(data / "inception_v3_2016_08_28_frozen.pb", Graph([x, axes, mean]))
    assert run("label_image").out.count("\n") == 3
    (data / "imagenet_slim_labels.txt").write_text("red\ngreen\nblue\n")
    assert "blue (2): 0." in run("label_image").out
    (data / "grace_hopper.jpg").unlink()
    result = run("label_image")
    assert result.code == 2
    assert "--image names no file, and the original's" in result.err


def test_benchmark_model(run: Run) -> None:
    result = run(
        *("benchmark_model", "--graph=tensorflow_inception_graph.pb", "--input_layer=Mul:0"),
        *(f"--input_layer_shape=1,{SIDE},{SIDE},3", "--input_layer_type=float"),
        *("--output_layer=softmax:0", "--show_run_order=false", "--show_time=false"),
        *("--show_memory=false", "--show_summary=true", "--show_flops=true", "--logtostderr"),
        "--max_num_runs=2",
    )
    assert result.code == 0, result.err
    assert "FLOPs estimate: " in result.out


def test_benchmark_suppresses_output_of_the_graph(run: Run) -> None:
    run_transform(run, 'insert_logging(op=Relu, message="loud")', IN, "--outputs=softmax")
    result = run(
        *("benchmark_model", "--graph=out.pb", "--input_layer=Mul", "--max_num_runs=2"),
        *(f"--input_layer_shape=1,{SIDE},{SIDE},3", "--output_layer=softmax"),
    )
    assert result.code == 0
    assert "loud" not in result.out + result.err


def test_print_selective_registration_header(run: Run) -> None:
    chain = f'strip_unused_nodes(type=float, shape="1,{SIDE},{SIDE},3") fold_old_batch_norms'
    run_transform(run, chain, IN, "--inputs=Mul", "--outputs=softmax")
    result = run("print_selective_registration_header", "--", "--graphs=out.pb")
    assert result.code == 0, result.err
    assert "#ifndef OPS_TO_REGISTER" in result.out
    assert "Conv2D" in result.out


def test_compare_graphs(run: Run) -> None:
    result = run("compare_graphs", *["tensorflow_inception_graph.pb"] * 2)
    assert (result.code, result.out) == (0, "")


def test_summarize_graph(run: Run) -> None:
    result = run("summarize_graph", "--", IN)
    assert result.code == 0, result.err
    assert result.out.startswith("Found 1 possible inputs: (name=DecodeJpeg/contents, type=string(")
    assert result.out.splitlines()[-1].startswith("bazel run tensorflow/tools/benchmark:")


def test_graph_to_dot(run: Run) -> None:
    result = run("graph_to_dot", "--graph=tensorflow_inception_graph.pb", "--dot_output=g.dot")
    assert (result.code, result.out) == (0, "Created DOT file 'g.dot'.\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["-in_graph=tensorflow_inception_graph.pb"],
        ["-in_graph", "tensorflow_inception_graph.pb"],
        [IN, "--alsologtostderr", "--stderrthreshold=0", "--minloglevel", "1"],
        [IN, "--nologtostderr", "--log_dir=/none", "-v=1", "-logtostderr=true"],
        [IN, "--vmodule=transform*=2", "--log-dir", "/none", "--nologo"],
        [IN, "--", "--verbosity", "-1"],
        ["--", IN, "--nooutput_as_text"],
        [IN, "--output_as_text=f"],
    ],
)
def test_gflags_and_absl_flags_are_accepted(run: Run, flags: list[str]) -> None:
    run_transform(run, "sort_by_execution_order", "--outputs=softmax", *flags, name="transform")
    assert len(ops("out.pb")) == len(inception())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nolabels"], "unrecognized arguments: --nolabels"),
        (["--nograph=x"], "unrecognized arguments: --nograph=x"),
        (["--self_test=maybe"], "'maybe' is neither true nor false"),
        (["--logtostder"], "unrecognized arguments: --logtostder"),
    ],
)
def test_unknown_flags_are_refused(run: Run, flags: list[str], message: str) -> None:
    refused = run("label_image", *flags)
    assert (refused.code, message in refused.err) == (2, True)


def test_flag_values_are_not_changed() -> None:
    parser = Parser(prog="x")
    flag(parser, "message")
    bool_flag(parser, "loud", default=False, help_line="")
    for plain in (["--message", "--"], ["--message", "-v"], ["--message=--v=1"]):
        assert parser.plain([*plain, "-loud", "--v", "3"]) == [*plain, "--loud"]
    assert parser.plain(["-message=a b", "--noloud", "-5", "c"]) == [
        "--message=a b",
        "--loud=false",
        "-5",
        "c",
    ]


@pytest.mark.parametrize("tool", [t for t, verb in ORIGINALS.items() if verb in verb_names()])
def test_original_tool_names_have_help(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([tool, "--help"])
    assert ended.value.code == 0
    assert f"mobileprep {ORIGINALS[tool]}" in capsys.readouterr().out
