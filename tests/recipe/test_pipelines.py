"""Pipelines of models in recipes: keys, windows, and problems with their locations."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import RecipeError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.pipeline_settings import (
    FlopsLimits,
    LatencyLimits,
    PassRate,
    Pipeline,
    PipelineBudget,
    PipelineStep,
    RunCounts,
    Scales,
    Windows,
)

HEAD = """\
version: 1
name: faces
device: smartphone
models:
  pnet: {source: {frozen: p.pb}}
  rnet: {source: {frozen: r.pb}}
targets: {phone: {}, pi: {}}
"""
WINDOWS = "{image: [480, 640], window: [12, 12], stride: [2, 2]}"


def loaded(folder: Path, pipeline: str, head: str = HEAD) -> Recipe:
    (folder / "r.yaml").write_text(f"{head}pipeline: {pipeline}\n")
    return load_recipe(folder / "r.yaml", environ={})


def problems(folder: Path, pipeline: str, head: str = HEAD) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        loaded(folder, pipeline, head)
    return [
        line.partition("r.yaml:")[2]
        for line in caught.value.message.splitlines()
        if "r.yaml:" in line
    ]


def test_all_keys(tmp_path: Path) -> None:
    text = """
  steps:
    - model: pnet
      windows:
        image: [480, 640]
        window: [12, 12]
        stride: [2, 2]
        scales: {min_size: 20, factor: 0.7}
    - {model: rnet, pass_rate: 0.25}
    - model: rnet
      pass_rate: {data: d.npz, output: prob, threshold: 0.6, class_index: 1, samples: 9}
    - {model: pnet, runs: {expected: 2.5, p95: 6, worst: 9}}
    - {model: pnet, runs: 3}
  keep_loaded: false
  budget:
    latency_ms: {expected: 1, p95: 2.5, worst: 3}
    flops: {expected: 1 MFLOP, worst: 20}
    ram: 2 MB"""
    recipe = loaded(tmp_path, text)
    (pipeline,) = {target.pipeline for target in recipe.targets}
    assert pipeline is not None
    rate = pipeline.steps[2].pass_rate
    assert isinstance(rate, PassRate)
    assert rate.data.file.name == "d.npz"
    assert (rate.threshold, rate.output, rate.class_index, rate.samples) == (0.6, "prob", 1, 9)
    windows = Windows((480, 640), (12, 12), (2, 2), Scales(20, 0.7))
    assert pipeline == Pipeline(
        (
            PipelineStep("pnet", windows=windows),
            PipelineStep("rnet", pass_rate=0.25),
            PipelineStep("rnet", pass_rate=rate),
            PipelineStep("pnet", runs=RunCounts(2.5, 6, 9)),
            PipelineStep("pnet", runs=3),
        ),
        keep_loaded=False,
        budget=PipelineBudget(
            LatencyLimits(1, 2.5, 3), FlopsLimits(1_000_000, None, 20), 2_000_000
        ),
    )
    assert pipeline.steps[1].place.endswith("r.yaml:16:7")


def test_windows_in_an_image() -> None:
    # Floor of (8 - 4) / 2 + 1 rows, and of (11 - 4) / 3 + 1 columns.
    windows = Windows((8, 11), (4, 4), (2, 3))
    assert windows.sizes() == ((8, 11),)
    assert windows.count((8, 11)) == 3 * 3
    assert Windows((4, 4), (4, 4), (1, 1)).count((4, 4)) == 1


def test_scales_as_in_mtcnn() -> None:
    # 12 / 20 = 0.6 of 480 x 640, then 0.709 of it each time, while the height is at least 12.
    windows = Windows((480, 640), (12, 12), (2, 2), Scales(20))
    assert windows.sizes() == (
        *((288, 384), (205, 273), (145, 194), (103, 137), (73, 98)),
        *((52, 69), (37, 49), (26, 35), (19, 25), (14, 18)),
    )
    assert windows.count((288, 384)) == 139 * 187
    # The decimal fraction: 0.1 of 120 is exactly 12, so the window fits.
    assert Windows((120, 120), (12, 12), (2, 2), Scales(12, 0.1)).sizes() == ((120, 120), (12, 12))


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        ("{steps: []}", "8:12: pipeline.steps: needs at least 1 item"),
        ("{}", "8:1: pipeline: a pipeline needs steps; add 'steps: [{model: NAME}]'"),
        (
            "{steps: [{model: pnett}]}",
            "8:28: pipeline.steps[0].model: there is no model 'pnett'; did you mean 'pnet'?",
        ),
        (
            "{steps: [{model: pnet, windws: 1}]}",
            "8:34: pipeline.steps[0].windws: unknown key 'windws'; did you mean 'windows'?",
        ),
        (
            "{steps: [{model: pnet, pass_rate: 0.5}]}",
            (
                "8:34: pipeline.steps[0].pass_rate: the first step has no previous step to pass "
                "its "
                "windows or runs on; write 'runs' or 'windows', or move it down"
            ),
        ),
        (
            "{steps: [{model: pnet}, {model: rnet, pass_rate: 1.5}]}",
            "8:60: pipeline.steps[1].pass_rate: must be at most 1",
        ),
        (
            "{steps: [{model: pnet}, {model: rnet, pass_rate: -0.1}]}",
            "8:60: pipeline.steps[1].pass_rate: must be at least 0",
        ),
        (
            "{steps: [{model: pnet}, {model: rnet, runs: 2, pass_rate: 1}]}",
            (
                "8:58: pipeline.steps[1].pass_rate: 'runs' already determines the number of "
                "runs; keep "
                "one of them"
            ),
        ),
        ("{steps: [{model: pnet, runs: 0}]}", "8:40: pipeline.steps[0].runs: must be at least 1"),
        (
            "{steps: [{model: pnet, runs: {expected: 2, p95: 4, worst: 3}}]}",
            (
                "8:34: pipeline.steps[0].runs: the worst case of 3 runs is below the expected or "
                "95th "
                "percentile; write the largest number of runs as 'worst'"
            ),
        ),
        (
            "{steps: [{model: pnet, windows: {image: [4, 4], window: [2, 2], stride: [0, 1]}}]}",
            "8:84: pipeline.steps[0].windows.stride[0]: must be at least 1",
        ),
        (
            "{steps: [{model: pnet, windows: {image: [4, 9], window: [5, 5], stride: [1, 1]}}]}",
            (
                "8:59: pipeline.steps[0].windows.window: a window of 5 x 5 pixels does not fit "
                "in an "
                "image of 4 x 9; write the height and width of both in pixels"
            ),
        ),
        (
            (
                "{steps: [{model: pnet, windows: {image: [9, 9], window: [5, 5], stride: [1, 1], "
                "scales: {min_size: 10}}}]}"
            ),
            (
                "8:110: pipeline.steps[0].windows.scales.min_size: no object of 10 pixels fits "
                "in an "
                "image of 9 x 9, for a window of 5 x 5; choose a smaller 'min_size', or a larger "
                "image"
            ),
        ),
        (
            (
                "{steps: [{model: pnet, windows: {image: [9, 9], window: [5, 5], stride: [1, 1], "
                "scales: {min_size: 5, factor: 1}}}]}"
            ),
            "8:121: pipeline.steps[0].windows.scales.factor: must be at most 0.95",
        ),
        (
            (
                "{steps: [{model: pnet, windows: {image: [9, 9], window: [5, 5], stride: [1, 1], "
                "scales: {min_size: 0}}}]}"
            ),
            "8:110: pipeline.steps[0].windows.scales.min_size: must be at least 1",
        ),
        (
            "{steps: [{model: pnet}], budget: {flops: {worst: 20 MB}}}",
            (
                "8:60: pipeline.budget.flops.worst: '20 MB' is not a number of operations; write a "
                "number with KFLOP, MFLOP or GFLOP: '20 MFLOP'"
            ),
        ),
    ],
)
def test_problems(tmp_path: Path, pipeline: str, problem: str) -> None:
    assert problems(tmp_path, pipeline) == [problem]


def test_latency_needs_a_device(tmp_path: Path) -> None:
    head = HEAD.replace("device: smartphone\n", "")
    pipeline = "{steps: [{model: pnet}], budget: {latency_ms: {worst: 20}}}"
    (problem,) = problems(tmp_path, pipeline, head)
    assert problem.startswith("7:45: pipeline.budget.latency_ms: a latency needs the device")


def test_models_have_one_device_and_one_pipeline(tmp_path: Path) -> None:
    steps = "{steps: [{model: pnet}, {model: rnet}]}"
    head = HEAD.replace("r.pb}}", "r.pb}, targets: {phone: {device: raspberry-pi-3}}}")
    (problem,) = problems(tmp_path, steps, head)
    assert problem == (
        "6:60: models.rnet.targets.phone.device: the models of a pipeline run on one device, not "
        "raspberry-pi-3 and smartphone; write 'device' at the top level or in the shared 'targets'"
    )
    head = HEAD.replace("r.pb}}", "r.pb}, targets: {pi: {pipeline: {keep_loaded: false}}}}")
    (problem,) = problems(tmp_path, steps, head)
    assert "the models of 'pi' have different pipelines" in problem
    recipe = loaded(tmp_path, steps, HEAD.replace("pi: {}", "pi: {pipeline: {keep_loaded: false}}"))
    assert [t.pipeline.keep_loaded for t in recipe.targets if t.pipeline] == [True, False] * 2


def test_models_and_targets_that_a_pipeline_needs(tmp_path: Path) -> None:
    head = "version: 1\nname: a\nsource: {frozen: a.pb}\ntargets: {phone: {}}\n"
    (problem,) = problems(tmp_path, "{steps: [{model: a}]}", head)
    assert problem.startswith("5:1: pipeline: a pipeline needs the names of its models; list them")
    head = HEAD.replace("p.pb}}", "p.pb}, targets: {phone: null, pi: null, tv: {}}}")
    (problem,) = problems(tmp_path, "{steps: [{model: pnet}, {model: rnet}]}", head)
    assert "no target has all models of the pipeline" in problem
