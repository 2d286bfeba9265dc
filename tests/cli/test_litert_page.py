"""The page about LiteRT: its command and its target, tried on the digits recipe."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from mobileprep.core.files import map_file
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.reader import read_model
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.litert.quantizing.kernels import KERNELS
from tests.cli.conftest import Run
from tests.cli.pages import DOCS, examples
from tests.ops.lookup.test_tables import from_file
from tests.transforms.graphs import node, placeholder
from tests.transforms.test_raise_control_flow import doubling
from tests.transforms.test_replace_detection_postprocess import EXAMPLE_NODES

PAGE = DOCS / "how-to/convert-to-litert.md"
FILE_IDENTIFIER = slice(4, 8)


def test_the_command_writes_a_file(digits: Path, run: Run) -> None:
    assert run("build", digits, "--target", "download").code == 0
    shutil.copy("out/digits/download/digits.pb", "frozen.pb")
    Path("assets").mkdir()
    Path("assets/words.txt").write_text("yes\nno\n")
    words = from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64)
    Path("words.pb").write_bytes(graph_to_bytes(words))
    Path("ssd.pb").write_bytes(graph_to_bytes(detector()))
    quantize = "transform --in_graph=frozen.pb --out_graph=quantized.pb --transforms=quantize_nodes"
    ends = ("--inputs=image", "--outputs=probabilities")
    assert run(*quantize.split(), *ends).code == 0
    commands = [(c, a) for c, a in examples(PAGE) if c.startswith("mobileprep tflite")]
    for command, answer in commands:
        told = run(*shlex.split(command)[1:])
        assert told.code == 0, told.err
        assert answer in ("", told.err)
    for name in ("model.tflite", "eight.tflite", "floats.tflite", "words.tflite", "ssd.tflite"):
        assert Path(name).read_bytes()[FILE_IDENTIFIER] == b"TFL3"


def test_the_detector_of_the_page_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    monkeypatch.chdir(tmp_path)
    Path("ssd.pb").write_bytes(graph_to_bytes(detector()))
    (target,) = re.findall(r"```yaml\n(targets:\n  detector:.*?)```", PAGE.read_text("utf-8"), re.S)
    outputs = [*detector_names().values()][1:]
    source = f"version: 1\nname: ssd\nsource: {{frozen: ssd.pb}}\noutputs: [{', '.join(outputs)}]\n"
    Path("recipe.yaml").write_text(f"{source}inputs: {{image_tensor: }}\n{target}", "utf-8")
    told = run("build", "recipe.yaml")
    assert told.code == 0, told.err
    record = read_model(map_file(Path("out/ssd/detector/ssd.tflite")), "ssd.tflite")
    custom = [o.code.custom for o in record.subgraphs[0].operators if o.code.custom]
    assert custom == ["TFLite_Detection_PostProcess"]
    without = re.sub(r"outputs: .*", "outputs: [ssd/decoded]", source)
    Path("recipe.yaml").write_text(f"{without}inputs: {{image_tensor: }}\n{target}", "utf-8")
    told = run("build", "recipe.yaml")
    assert told.code == 7
    assert "the outputs do not depend on a NonMaxSuppression" in told.err


def test_detections_of_the_command_need_a_suppression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ssd.pb").write_bytes(graph_to_bytes(detector()))
    given = ["--in_graph=ssd.pb", "--out_file=ssd.tflite", "--detection_postprocess=auto"]
    told = run("tflite", *given, "--inputs=image_tensor", "--outputs=ssd/decoded")
    assert told.code == 7
    assert "the outputs do not depend on a NonMaxSuppression" in told.err


def detector_names() -> dict[str, str]:
    """The names of the object detection API by those of a small graph's inputs and outputs."""
    names = ("boxes", "scores", "classes")
    return {
        "ssd/image": "image_tensor",
        **{f"ssd/{name}": f"detection_{name}" for name in names},
        "ssd/count": "num_detections",
    }


def detector() -> Graph:
    """A small SSD model with the names that the object detection API gives."""
    names = detector_names()

    def renamed(made: Node) -> Node:
        inputs = tuple(r.renamed(names.get(r.node, r.node)) for r in made.inputs)
        return replace(made, name=names.get(made.name, made.name), inputs=inputs)

    return Graph(map(renamed, EXAMPLE_NODES))


def test_the_operators_in_integers_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| int8( and int16x8| alone) \| (.*) \|$", PAGE.read_text("utf-8"), re.M)
    told = {which: set(names.split(", ")) for which, names in rows}
    sixteen = {code for code, kernel in KERNELS.items() if DType.INT16 in kernel.types}
    assert told[" and int16x8"] == sixteen
    assert told[" alone"] == set(KERNELS) - sixteen


def test_the_targets_in_integers_build(digits: Path, run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    text, page = digits.read_text("utf-8"), PAGE.read_text("utf-8")
    calibration, first = re.findall(r"```yaml\n(calibration: .*)\n(targets:\n.*)\n```", page)[0]
    ((second),) = re.findall(r"```yaml\n(targets:\n  eight:\n.*?)```", page, re.S)
    recipe = text.partition("\ntargets:")[0].strip()
    digits.write_text(f"{recipe}\n{calibration}\n{first}\n", "utf-8")
    assert run("calibrate", digits).code == 0
    told = run("build", digits)
    assert told.code == 0, told.err
    digits.write_text(f"{recipe}\n{calibration.replace('ranges', 'others')}\n{second}\n", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    record = read_model(map_file(Path("out/digits/eight/digits.tflite")), "digits.tflite")
    graph = record.subgraphs[0]
    assert [graph.tensors[i].type for i in (*graph.inputs, *graph.outputs)] == ["UINT8", "FLOAT32"]
    codes = [operator.code.builtin for operator in graph.operators]
    assert codes[-1] == "SOFTMAX"


def test_the_target_of_the_page_builds_beside_others(digits: Path, run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    lines = re.findall(r"```yaml\ntargets:\n  phone: (.*)\n```", PAGE.read_text("utf-8"))
    targets = ", ".join(f"phone{i or ''}: {line}" for i, line in enumerate(lines))
    text = digits.read_text("utf-8")
    recipe, _, _ = text.partition("\nvalidation:")
    (validation,) = re.findall(r"```yaml\n(validation:\n.*?)```", PAGE.read_text("utf-8"), re.S)
    digits.write_text(f"{recipe}\n{validation}\ntargets: {{{targets}}}\n", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    assert len(lines) == 2
    model = Path("out/digits/phone/digits.tflite").read_bytes()
    assert model[FILE_IDENTIFIER] == b"TFL3"


def test_the_line_of_the_page_is_that_of_the_report(digits: Path, run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    text = digits.read_text("utf-8").partition("\ntargets:")[0]
    digits.write_text(f"{text}\ntargets: {{phone: {{artifact: tflite}}}}\n", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    (line,) = re.findall(r"^accuracy .*; (.*) \(litert .*\)$", PAGE.read_text("utf-8"), re.M)
    assert f"; {line} (litert " in told.out


def test_the_target_that_measures_the_graph_says_so(digits: Path, run: Run) -> None:
    (block,) = re.findall(
        r"```yaml\n(targets:\n  phone:\n.*?engine: graph.*?)```", PAGE.read_text("utf-8"), re.S
    )
    digits.write_text(f"{digits.read_text('utf-8').partition('targets:')[0]}{block}", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    assert told.out.count("measured on the graph before conversion (numpy)") == 2


def test_the_report_tells_which_runtimes_run_the_graph(digits: Path, run: Run) -> None:
    page = PAGE.read_text("utf-8")
    ((recipe, shown),) = re.findall(
        r"```yaml\n(extends: [^`]*?)```\n\n```text\n\$ [^\n]*\n\.\.\.\n(.*?)\.\.\.\n```",
        page,
        re.S,
    )
    Path("ways.yaml").write_text(recipe, "utf-8")
    told = run("build", "ways.yaml")
    assert told.code == 0, told.err
    assert shown in told.out
    (report,) = json.loads(run("report", "ways.yaml", "--json").out)
    routes = report["migration"]["found"]["routes"]
    assert [route["verdict"] for route in routes] == ["as it is"] * 3
    assert "| LiteRT | as it is | 42,656 |" in run("report", "ways.yaml", "--format=markdown").out
    assert "0 of " in run("build", "ways.yaml").err


def test_the_command_about_loops_raises_and_unrolls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [placeholder(), *doubling(3), node("y", "Identity", "v/out")]
    Path("loop.pb").write_bytes(graph_to_bytes(Graph(nodes)))
    (command,) = [c for c, _ in examples(PAGE) if c.startswith("mobileprep transform ")]
    words = shlex.split(command)[1:]
    told = run(*words)
    assert told.code == 0, told.err
    assert {n.op for n in read_graph(Path("raised.pb"))} == {"Placeholder", "Add", "Identity"}
    told = run(*(w.replace("unroll=4", "unroll=2") for w in words))
    assert told.code == 0, told.err
    assert "StatelessWhile" in {n.op for n in read_graph(Path("raised.pb"))}
