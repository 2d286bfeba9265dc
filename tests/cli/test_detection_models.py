"""Conversion of detection models to LiteRT."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.core.files import map_file
from mobileprep.formats.tflite.reader import read_model
from mobileprep.graph.files import write_graph
from tests.cli.conftest import Run
from tests.docs.setups import DETECTION_NAMES, detector

OUTPUTS = ", ".join([*DETECTION_NAMES.values()][1:])
RECIPE = f"""\
version: 1
name: ssd
source: {{frozen: ssd.pb}}
outputs: [{OUTPUTS}]
inputs: {{image_tensor: }}
targets:
  detector: {{artifact: tflite, litert: {{detection_postprocess: auto}}}}
"""


@pytest.fixture(autouse=True)
def _model(workdir: Path) -> None:
    write_graph(Path("ssd.pb"), detector())


def test_recipe_replaces_the_postprocessing(run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    Path("recipe.yaml").write_text(RECIPE, "utf-8")
    built = run("build", "recipe.yaml")
    assert built.code == 0, built.err
    model = read_model(map_file(Path("out/ssd/detector/ssd.tflite")), "ssd.tflite")
    custom = [o.code.custom for o in model.subgraphs[0].operators if o.code.custom]
    assert custom == ["TFLite_Detection_PostProcess"]


def test_recipe_without_suppression_fails(run: Run) -> None:
    text = re.sub(r"outputs: .*", "outputs: [ssd/decoded]", RECIPE)
    Path("recipe.yaml").write_text(text, "utf-8")
    built = run("build", "recipe.yaml")
    assert built.code == 7
    assert "the outputs do not depend on a NonMaxSuppression" in built.err


def test_tflite_without_suppression_fails(run: Run) -> None:
    arguments = ["--in_graph=ssd.pb", "--out_file=ssd.tflite", "--detection_postprocess=auto"]
    converted = run("tflite", *arguments, "--inputs=image_tensor", "--outputs=ssd/decoded")
    assert converted.code == 7
    assert "the outputs do not depend on a NonMaxSuppression" in converted.err
