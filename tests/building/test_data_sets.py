"""Validations on several data sets, and the limit of the gap between them.

The scores of the model are its inputs, so that the accuracy is the share of samples whose largest
feature is their label.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from mobileprep import build
from mobileprep.building.builder import Build
from mobileprep.building.comparing_reports import compare_reports
from mobileprep.building.fit import check_models
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import StageSpec
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import report_text
from mobileprep.building.report_files import stored_reports
from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.schemas import OUTPUT_SCHEMAS
from tests.building.stages.jobs import op, placeholder

HEAD = """\
version: 1
name: r
source: {frozen: m.pb}
inputs: {x: {}}
outputs: [y]
targets: {p: {}}
"""
RECIPE = f"""{HEAD}\
validation:
  - {{name: studio, data: studio.npz, metric: top1}}
  - {{name: phone, data: phone.npz, metric: top1, max_gap: GAP}}
"""


def write_samples(name: str, wrong: Sequence[int]) -> None:
    """Write ten samples of four classes, with another label for some of them."""
    classes = np.arange(10) % 4
    labels = classes.copy()
    labels[list(wrong)] = (labels[list(wrong)] + 1) % 4
    x = np.eye(4, dtype=np.float32)[classes] * np.arange(1, 11, dtype=np.float32)[:, None]
    write_arrays(Path(name), {"x": x, "label": labels})


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    identity = constant("w", Tensor.of(np.eye(4, dtype=np.float32)))
    product = op("y", "MatMul", "x", "w")
    write_graph(Path("m.pb"), Graph([placeholder((-1, 4)), identity, product]))
    write_samples("studio.npz", [])
    write_samples("phone.npz", [3, 7])


def built(text: str) -> Any:
    """Build, and return the report of the target."""
    Path("recipe.yaml").write_text(text)
    build("recipe.yaml", out="out", warn=lambda _: None)
    return json.loads(Path("out/r/p/report.json").read_text())


def ran(text: str) -> list[str]:
    """Build, and return the tasks of the stages that ran."""
    Path("recipe.yaml").write_text(text)
    tasks = Build(["recipe.yaml"], out="out").run().ran
    return sorted(ran.task.removeprefix("r/") for ran in tasks)


def test_gap_within_the_limit() -> None:
    report = built(RECIPE.replace("GAP", "0.2"))
    studio, phone = report["validations"]["data_sets"]
    assert (studio["name"], studio["metrics"][0]["after"]) == ("studio", 1.0)
    assert (phone["name"], phone["metrics"][0]["after"]) == ("phone", 0.8)
    assert report["validations"]["gaps"] == [
        {
            "metric": "top1",
            "output": "y",
            "name": "phone",
            "value": 0.8,
            "first_name": "studio",
            "first_value": 1.0,
            "gap": 0.2,
            "source_gap": 0.2,
            "max_gap": 0.2,
        }
    ]
    assert report["accuracy"] == {key: value for key, value in studio.items() if key != "name"}
    assert report["settings"]["validation"][1]["name"] == "phone"
    schema = json.loads((OUTPUT_SCHEMAS / "report.json").read_text())
    Draft202012Validator(schema).validate([report])


def test_gap_over_the_limit_names_both_data_sets() -> None:
    with pytest.raises(AccuracyError) as caught:
        built(RECIPE.replace("GAP", "0.15"))
    error = caught.value
    assert error.exit_code == 8
    assert str(error.message) == (
        "top-1 is 1.0000 on 'studio' and 0.8000 on 'phone': the gap of 0.2 exceeds the limit of "
        "0.15, and the source's is 0.2; measured on r.pb (numpy)"
    )
    assert error.where == "recipe.yaml:9:59"
    assert not Path("out/r/p/r.pb").exists()


def test_reports_name_each_data_set() -> None:
    built(RECIPE.replace("GAP", "0.25"))
    (stored,) = stored_reports(Path("out"))
    text = report_text(stored.report)
    assert "accuracy top-1 1.0000 before, 1.0000 after (10 samples of studio)" in text
    assert "accuracy top-1 0.8000 before, 0.8000 after (10 samples of phone)" in text
    assert "gap      top1 of 'y': 0.8 on phone, 1 on studio; 0.2 apart, at most 0.25" in text
    markdown = reports_markdown([stored.report])
    assert "Validated on 10 samples of phone, measured on r.pb (numpy):" in markdown
    assert "| top1 | y | phone | 0.8 | studio | 1 | 0.2 | 0.25 |" in markdown


def test_comparison_of_reports_names_the_data_set() -> None:
    built(RECIPE.replace("GAP", "0.25"))
    old = stored_reports(Path("out"))[0].report
    write_samples("phone.npz", [3])
    built(RECIPE.replace("GAP", "0.25"))
    new = stored_reports(Path("out"))[0].report
    figures = {
        f.name: (f.before, f.after) for f in compare_reports(old, new, lambda _: "").accuracies
    }
    assert figures == {"top-1 on phone": (0.8, 0.9), "top-1 on phone of the source": (0.8, 0.9)}


def test_another_limit_runs_no_model() -> None:
    built(RECIPE.replace("GAP", "0.2"))
    assert ran(RECIPE.replace("GAP", "0.3")) == ["p/gaps"]
    write_samples("phone.npz", [3])
    tasks = ["evaluate-source/phone", "p/evaluate/phone", "p/gaps", "p/validate/phone"]
    assert ran(RECIPE.replace("GAP", "0.3")) == tasks


def test_list_uses_the_cached_evaluations_of_a_mapping() -> None:
    first = "{data: studio.npz, metric: top1}"
    built(f"{HEAD}validation: {first}\n")
    tasks = ["evaluate-source/phone", "p/evaluate/phone", "p/gaps", "p/validate/phone"]
    assert ran(RECIPE.replace("GAP", "0.3")) == tasks


def planned(text: str) -> list[StageSpec]:
    recipe = load_recipe("recipe.yaml", text=text, environ={})
    return list(plan_recipes([recipe]).stages)


def test_other_sections_use_the_first_data_set() -> None:
    more = "calibration: {data: studio.npz}\ncheck: true\n"
    target = "{p: {quantize: {mode: auto, trials: 2}}}"
    text = RECIPE.replace("GAP", "0.2").replace("{p: {}}", target) + more
    data = {
        spec.task: files.name
        for spec in planned(text)
        for slot, files in spec.stage.files.items()
        if slot == "data"
    }
    of_phone = {task for task, name in data.items() if name == "phone.npz"}
    assert of_phone == {"r/evaluate-source/phone", "r/p/evaluate/phone"}
    assert {"r/samples", "r/01-quantize_nodes-evaluate-1", "r/01-quantize_nodes-rank"} <= set(data)


def test_auto_metrics_of_different_data_are_not_compared() -> None:
    studio = "{name: studio, data: studio.npz}"
    phone = "{name: phone, data: bare.npz, max_gap: 0.5}"
    write_arrays(Path("bare.npz"), {"x": np.eye(4, dtype=np.float32)})
    with pytest.raises(AccuracyError) as caught:
        built(f"{HEAD}validation: [{studio}, {phone}]\n")
    assert caught.value.message == (
        "'max_gap' of 'phone' compares agreement of 'y' with top1 of 'y' of 'studio'"
    )


def test_metrics_after_an_agreement_of_several_outputs() -> None:
    """The agreement has a value for each output, and ``top5`` is after them."""
    metrics = "metrics: [{metric: agreement}, {metric: top2}, {metric: top1MORE}]"
    items = [
        f"{{name: {name}, data: {name}.npz, {metrics.replace('MORE', more)}}}"
        for name, more in (("studio", ""), ("phone", ", max_gap: 0.3"))
    ]
    head = HEAD.replace("[y]", "[y, z]")
    both = op("z", "Identity", "y")
    identity = constant("w", Tensor.of(np.eye(4, dtype=np.float32)))
    product = op("y", "MatMul", "x", "w")
    write_graph(Path("m.pb"), Graph([placeholder((-1, 4)), identity, product, both]))
    report = built(f"{head}validation: [{', '.join(items)}]\n")
    (gap,) = report["validations"]["gaps"]
    assert (gap["metric"], gap["output"], gap["gap"]) == ("top1", "y", 0.2)


def test_validate_opens_the_data_of_every_data_set() -> None:
    write_arrays(Path("phone.npz"), {"x": np.eye(5, dtype=np.float32), "label": np.arange(5)})
    Path("recipe.yaml").write_text(RECIPE.replace("GAP", "0.2"))
    with pytest.raises(AccuracyError) as caught:
        check_models([load_recipe("recipe.yaml", environ={})])
    assert "recipe.yaml:9:25: validation[1].data: " in caught.value.message
    assert "recipe.yaml:8:" not in caught.value.message


def test_gap_that_quantization_causes() -> None:
    """With steps of 1 / 255, weights of 0.001 become 0, and the first class wins the tie."""
    weights = constant("w", Tensor.of(np.diag([1, 1, 0.001, 0.001]).astype(np.float32)))
    product = op("y", "MatMul", "x", "w")
    write_graph(Path("m.pb"), Graph([placeholder((-1, 4)), weights, product]))
    x = np.eye(4, dtype=np.float32)
    for name, rows in (("studio", [0, 1]), ("phone", [0, 2])):
        write_arrays(Path(f"{name}.npz"), {"x": x[rows], "label": np.array(rows)})
    quantize = "{p: {quantize: {mode: weights, minimum_size: 1}}}"
    text = RECIPE.replace("GAP", "0.2, max_drop: 1").replace("{p: {}}", quantize)
    with pytest.raises(AccuracyError) as caught:
        built(text)
    assert "the gap of 0.5 exceeds the limit of 0.2, and the source's is 0;" in caught.value.message
    assert caught.value.hint == "use a gentler quantization, or raise max_gap"
