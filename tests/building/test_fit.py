"""Whether models and data are what recipes say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.fit import check_models
from mobileprep.errors import AccuracyError, CorruptFileError, RecipeError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import write_graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import classifier

TEXT = """\
version: 1
name: r
source: {frozen: model.pb}
inputs:
  x: {DECLARED}
outputs: [y]
transforms: [remove_device]
check: {data: data.npz}
targets: {phone: {}, pi: {}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("model.pb"), classifier())
    samples(3)


def samples(features: int) -> None:
    write_arrays(Path("data.npz"), {"x": np.zeros((2, features), np.float32)})


def check(declared: str = "") -> tuple[str, ...]:
    Path("recipe.yaml").write_text(TEXT.replace("DECLARED", declared))
    return check_models([load_recipe("recipe.yaml")])


def test_a_model_and_data_that_fit_leave_nothing_to_say() -> None:
    assert check() == ()


def test_budget_for_unknown_ops_is_reported_with_its_line() -> None:
    told_of = "phone: {budget: {ops: {forbid: [Conv2D, Cosnt]}}}"
    text = TEXT.replace("DECLARED", "").replace("phone: {}", told_of)
    Path("recipe.yaml").write_text(text)
    (told,) = check_models([load_recipe("recipe.yaml")])
    assert told == "recipe.yaml:9:51: no TensorFlow has an op 'Cosnt'; did you mean 'Const'?"


def test_a_budget_may_name_ops_of_the_model_that_no_tensorflow_has() -> None:
    graph = classifier()
    custom = Node("z", "Custom", (parse_ref("y"),))
    write_graph(Path("model.pb"), graph.with_nodes([*graph, custom]))
    told_of = "phone: {budget: {ops: {forbid: [Custom]}}}"
    text = TEXT.replace("DECLARED", "").replace("outputs: [y]", "outputs: [z]")
    text = text.replace("check: {data: data.npz}", "ops: {Custom: {kernel: CustomOp}}")
    Path("recipe.yaml").write_text(text.replace("phone: {}", told_of))
    assert check_models([load_recipe("recipe.yaml")]) == ()


def test_unsuitable_data_is_reported_once() -> None:
    samples(5)
    with pytest.raises(AccuracyError) as caught:
        check()
    assert caught.value.message.count("recipe.yaml:8:") == 1


def test_of_a_model_that_does_not_fit_its_data_is_not_looked_at() -> None:
    samples(5)
    with pytest.raises(RecipeError) as caught:
        check("dtype: int8")
    assert "recipe.yaml:5:" in caught.value.message
    assert "recipe.yaml:8:" not in caught.value.message


def test_unreadable_model_is_reported_with_its_line() -> None:
    Path("model.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(CorruptFileError) as caught:
        check()
    assert caught.value.where.startswith("recipe.yaml:3:")
