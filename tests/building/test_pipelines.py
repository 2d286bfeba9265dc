"""Pipelines: the cost of several models for one input, with numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mobileprep import build
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.page.render import data_of_page
from mobileprep.building.report.text import report_text
from mobileprep.building.report_files import stored_reports
from mobileprep.errors import AccuracyError, RecipeError
from mobileprep.graph.files import write_graph
from mobileprep.recipe.schemas import OUTPUT_SCHEMAS
from tests.building.cascades import scanner, write_models

DEVICE = "title: a board\ngflops: 1e-6\nsource: a test\n"  # 1,000 operations take a second
RECIPE = """\
version: 1
name: faces
device: board.yaml
models:
  scan: {source: {frozen: scan.pb}, outputs: [map], inputs: {x: {}}}
  check: {source: {frozen: check.pb}, outputs: [y], inputs: {x: {}}}
  last: {source: {frozen: last.pb}, outputs: [y], inputs: {x: {}}}
targets: {phone: {}}
pipeline:
  steps:
    - model: scan
      windows: {image: [8, 10], window: [4, 4], stride: [2, 2]SCALES}
    - {model: check, pass_rate: RATE}
    - {model: last, pass_rate: 0.1}
"""
SCALES = ", scales: {min_size: 4, factor: 0.5}"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_models()
    Path("board.yaml").write_text(DEVICE)


def built(more: str = "", *, rate: str = "0.5", scales: str = SCALES, **changes: str) -> Any:
    """Build and return the pipeline of the last model's report."""
    text = RECIPE.replace("SCALES", scales).replace("RATE", rate) + more
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    Path("recipe.yaml").write_text(text)
    build("recipe.yaml", out="out", warn=lambda _: None)
    return json.loads(Path("out/faces/last/phone/report.json").read_text())["pipeline"]


def amounts(expected: float, p95: float, worst: float) -> dict[str, float]:
    return {"expected": expected, "p95": p95, "worst": worst}


def test_costs_of_a_cascade() -> None:
    pipeline = built()
    scan, check, last = pipeline["steps"]
    # The map has 3 x 4 positions at the first scale and 1 x 1 at 4 x 5 pixels, 64 operations each.
    assert scan["runs"] == amounts(2, 2, 2)
    assert scan["flops"] == amounts(832, 832, 832)
    assert scan["basis"] == "fully convolutional, 13 windows of 4 x 4 at 2 scales"
    # Of 13 windows, at most 9 pass with a probability of 1 - 378 / 8192 = 0.954, at most 8 with
    # one of 0.867. A run takes 16 operations.
    assert check["runs"] == amounts(6.5, 9, 13)
    assert check["flops"] == amounts(104, 144, 208)
    # At a rate of 0.05, at most 2 pass with 0.975, at most 1 with 0.865. A run takes 24 operations.
    assert last["runs"] == amounts(0.65, 2, 13)
    assert last["flops"] == amounts(16, 48, 312)
    assert pipeline["flops"] == amounts(952, 1024, 1352)
    assert pipeline["latency_ms"] == pytest.approx(amounts(952, 1024, 1352))
    assert pipeline["device"] == "a board: 1e-06 GFLOP/s, what its profile says"


def test_memory_of_models() -> None:
    pipeline = built()
    sizes = [Path(f"out/faces/{m}/phone/{m}.pb").stat().st_size for m in ("scan", "check", "last")]
    assert [step["model_bytes"] for step in pipeline["steps"]] == sizes
    # The largest image has 8 x 10 floats, and its map 3 x 4 x 2; the others 4 floats and 2 or 3.
    assert [step["activation_bytes"] for step in pipeline["steps"]] == [416, 24, 28]
    assert pipeline["ram_bytes"] == sum(sizes) + 416
    alone = built("  keep_loaded: false\n")
    assert alone["ram_bytes"] == max(sizes[0] + 416, sizes[1] + 24, sizes[2] + 28)


def test_one_scale_and_windows_one_by_one() -> None:
    assert built(scales="")["steps"][0]["flops"] == amounts(768, 768, 768)
    # With a declared size of the window, the model runs 12 times with one position.
    fixed = "outputs: [map], inputs: {x: {shape: [-1, 4, 4, 1]}}"
    scan = built(scales="", **{"outputs: [map], inputs: {x: {}}": fixed})["steps"][0]
    assert scan["runs"] == amounts(12, 12, 12)
    assert scan["flops"] == amounts(768, 768, 768)
    assert scan["basis"] == "12 windows of 4 x 4"


def test_given_runs() -> None:
    steps = [
        "    - {model: check, runs: {expected: 2.5, p95: 6, worst: 9}}",
        "    - {model: last, pass_rate: 0.5}",
        "    - {model: check}",
        "    - {model: last, runs: 4}",
    ]
    text = RECIPE[: RECIPE.index("    - model")] + "\n".join(steps)
    Path("recipe.yaml").write_text(text)
    build("recipe.yaml", out="out", warn=lambda _: None)
    report = json.loads(Path("out/faces/last/phone/report.json").read_text())
    pipeline = report["pipeline"]
    # Of six, at most 5 pass with 63 / 64, at most 4 with 57 / 64 = 0.89.
    expected = [(2.5, 6, 9), (1.25, 5, 9), (1, 1, 1), (4, 4, 4)]
    assert [s["runs"] for s in pipeline["steps"]] == [amounts(*e) for e in expected]
    # A model in several steps is loaded once.
    sizes = {s["model"]: s["model_bytes"] for s in pipeline["steps"]}
    assert pipeline["ram_bytes"] == sum(sizes.values()) + 28


def test_measured_pass_rate() -> None:
    measured = "{data: images.npz, threshold: 0.5, class_index: 1}"
    check = built(rate=measured, scales="")["steps"][1]
    assert check["basis"] == (
        "50 % of the previous step (2 of 4 values, measured on 2 samples of images.npz, numpy)"
    )
    assert check["runs"]["expected"] == 6
    check = built(rate=measured.replace("0.5", "0.6"), scales="")["steps"][1]
    assert check["runs"]["expected"] == 3
    # All values of the map count without a class: half of them are 0.
    check = built(rate="{data: images.npz, threshold: 0.6, output: map}", scales="")["steps"][1]
    assert check["basis"].startswith("12.5 % of the previous step (1 of 8 values")
    manifest = json.loads(Path("out/faces/last/phone/manifest.json").read_text())
    assert "images.npz" in manifest["sources"]


def test_exceeded_budget_names_the_most_expensive_step() -> None:
    budget = "  budget: {latency_ms: {p95: 1000, worst: 1100}, flops: {expected: 1 KFLOP}}\n"
    with pytest.raises(AccuracyError) as caught:
        built(budget)
    error = caught.value
    assert error.exit_code == 8
    assert error.where == "recipe.yaml:15:3"
    assert error.message == (
        "the pipeline takes 1,024 ms at the 95th percentile, 24 over the budget of 1,000; the "
        "pipeline takes 1,352 ms at worst, 252 over the budget of 1,100 (a board: 1e-06 GFLOP/s, "
        "what its profile says)"
    )
    assert error.hint == (
        "run 'scan' less often, or make it smaller: 62 % of the operations are in its 2 runs, or "
        "raise the budget"
    )
    assert not Path("out/faces/scan/phone/report.json").exists()
    report = built(budget.replace("1000", "1030").replace("1100", "1400"))
    assert [(b["name"], b["found"], b["limit"]) for b in report["budget"]] == [
        ("pipeline latency_ms p95", pytest.approx(1024), 1030),
        ("pipeline latency_ms worst", pytest.approx(1352), 1400),
        ("pipeline flops expected", 952, 1000),
    ]


def test_exceeded_memory() -> None:
    with pytest.raises(AccuracyError) as caught:
        built("  budget: {ram: 100}\n")
    assert caught.value.message.startswith("the models of the pipeline take ")
    assert caught.value.hint.startswith(
        "write 'keep_loaded: false' if the app loads one model at a time, or make 'scan' smaller ("
    )


def test_edits_run_only_their_stages() -> None:
    measured = "{data: images.npz, threshold: 0.5, class_index: 1}"
    built("  budget: {ram: 10 KB}\n", rate=measured)
    costs, rate = "faces/pipeline/phone/costs", "faces/pipeline/phone/02-pass-rate"

    def edited(old: str, new: str) -> tuple[str, ...]:
        text = Path("recipe.yaml").read_text()
        assert old in text
        Path("recipe.yaml").write_text(text.replace(old, new))
        return build("recipe.yaml", warn=lambda _: None).ran

    assert edited("pass_rate: 0.1", "pass_rate: 0.2") == (costs,)
    assert edited("10 KB", "20 KB") == (costs,)
    assert edited("threshold: 0.5", "threshold: 0.6") == (rate, costs)
    assert edited("image: [8, 10]", "image: [8, 12]") == (costs,)
    assert edited("name: faces", "name: faces\ndescription: none") == ()


def test_target_chosen_alone_has_its_pipeline() -> None:
    whole = built()
    files = {path: path.read_bytes() for path in Path("out").rglob("*.json")}
    build("recipe.yaml", "alone", targets=["last/phone"], warn=lambda _: None)
    assert [path.parent.name for path in Path("alone").rglob("report.json")] == ["phone"]
    report = json.loads(Path("alone/faces/last/phone/report.json").read_text())
    assert report["pipeline"] == whole
    build("recipe.yaml", targets=["last/phone"], warn=lambda _: None)
    assert files == {path: path.read_bytes() for path in Path("out").rglob("*.json")}


def test_targets_without_a_model_have_no_pipeline() -> None:
    text = {"targets: {phone: {}}": "targets: {phone: {}, gate: {pipeline: null}}"}
    built(**text)
    built(**{"outputs: [map]": "outputs: [map], targets: {watch: {}}"})
    for target in ("check/gate", "scan/watch"):
        report = json.loads(Path(f"out/faces/{target}/report.json").read_text())
        assert "pipeline" not in report


def test_text_and_markdown() -> None:
    built("  budget: {latency_ms: {worst: 2000}}\n", rate="1")
    (stored,) = stored_reports(Path("out/faces/last/phone"))
    text = report_text(stored.report)
    assert "budget   pipeline latency_ms worst: 1,352 of 2,000, 648 left\n" in text
    assert TEXT in text
    markdown = reports_markdown([stored.report])
    assert "| pipeline latency&#95;ms worst | 1,352 | 2,000 | 648 |" in markdown
    assert MARKDOWN in markdown


TEXT = """\
pipeline of 3 steps for one input, at best on a board: 1e-06 GFLOP/s, what its profile says
  step     runs  runs p95  runs worst  FLOPs  FLOPs p95  FLOPs worst
  1 scan      2         2           2    832        832          832
  2 check    13        13          13    208        208          208
  3 last    1.3         3          13     31         72          312
  total                                1,071      1,112        1,352
  1 scan: fully convolutional, 13 windows of 4 x 4 at 2 scales
  2 check: 100 % of the previous step
  3 last: 10 % of the previous step
  latency: 1,071 ms on average, 1,112 ms p95, 1,352 ms worst
  RAM: 1,129 bytes of model files and tensors, all models loaded
"""
MARKDOWN = """\
| 1 scan | 2 | 2 | 2 | 832 | 832 | 832 | fully convolutional, 13 windows of 4 x 4 at 2 scales |
| 2 check | 13 | 13 | 13 | 208 | 208 | 208 | 100 % of the previous step |
| 3 last | 1.3 | 3 | 13 | 31 | 72 | 312 | 10 % of the previous step |
| total |  |  |  | 1,071 | 1,112 | 1,352 |  |

latency: 1,071 ms on average, 1,112 ms p95, 1,352 ms worst.

RAM: 1,129 bytes of model files and tensors, all models loaded.
"""


def test_without_a_device_there_is_no_latency() -> None:
    pipeline = built(**{"device: board.yaml\n": ""})
    assert pipeline["latency_ms"] is None
    assert pipeline["flops"] == amounts(952, 1024, 1352)


def test_size_of_an_input_that_is_not_the_window() -> None:
    write_graph(Path("scan.pb"), scanner((-1, 6, 6, 1)))
    with pytest.raises(RecipeError) as caught:
        built()
    assert caught.value.where == "recipe.yaml:11:7"
    assert caught.value.message == (
        "the input 'x' of 'scan' has a height and width of 6 x 6, and the window has 4 x 4"
    )


def test_windows_of_a_model_without_images() -> None:
    with pytest.raises(RecipeError, match="with height, width, and channels, and 'check' has 0"):
        built(**{"model: scan": "model: check"})


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("output: maps", "the previous model has no output 'maps'; it has map"),
        (
            "class_index: 2",
            "the last axis of the output 'map' has 2 classes, so none has the index",
        ),
    ],
)
def test_pass_rates_that_cannot_be_measured(rate: str, message: str) -> None:
    with pytest.raises(AccuracyError) as caught:
        built(rate=f"{{data: images.npz, threshold: 0.5, {rate}}}")
    assert message in caught.value.message
    assert caught.value.where == "recipe.yaml:13:22"


def test_converted_models_are_counted_before_conversion() -> None:
    pipeline = built(**{"targets: {phone: {}}": "targets: {phone: {artifact: tflite}}"})
    assert pipeline["basis"] == "counted on the graph before conversion"
    assert pipeline["flops"] == amounts(952, 1024, 1352)
    sizes = [Path(f"out/faces/{m}/phone/{m}.tflite").stat().st_size for m in ("scan", "last")]
    assert [pipeline["steps"][at]["model_bytes"] for at in (0, 2)] == sizes


def test_json_and_page_have_the_pipeline() -> None:
    built()
    report = json.loads(Path("out/faces/last/phone/report.json").read_text())
    schema = json.loads((OUTPUT_SCHEMAS / "report.json").read_text())
    Draft202012Validator(schema).validate([report])
    data = data_of_page(Path("out/faces/report.html").read_bytes())
    reports = {target["name"]: target["report"] for target in data["targets"]}
    assert [name for name, report in reports.items() if "pipeline" in report] == ["last/phone"]
