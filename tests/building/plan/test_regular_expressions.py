"""The regular expression engine of stages."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.engines import (
    COMPUTING,
    PYTHON,
    RunningStage,
    regex_engine,
    step_regex_engine,
)
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan
from mobileprep.building.stages.freeze.spec import FreezeStage
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.strings import strings as regex
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Plugin, Step
from mobileprep.recipe.settings import InputFile
from mobileprep.transforms.base import Context, make_transform, transform_names
from tests.transforms.busy import OPTIONS
from tests.transforms.graphs import node, placeholder

RECIPE = """
version: 1
name: texts
source: {source}
inputs: {{x: {{}}}}
outputs: [y]
transforms: [strip_unused_nodes, fold_constants, fold_batch_norms]
check: {{data: data.npz}}
validation: {{data: data.npz}}
targets: {{phone: {{}}}}
"""
GRAPH = "{graph: model.pb, checkpoint: model.ckpt}"


@pytest.fixture(autouse=True)
def _clear_cache() -> Any:
    regex_engine.cache_clear()
    yield
    regex_engine.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package directory at the front of the path with a fake RE2."""
    packages = tmp_path / "packages"
    (packages / "re2").mkdir(parents=True)
    (packages / "re2/__init__.py").touch()
    (packages / "google_re2-7.8.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "re2", raising=False)
    return packages


def planned(folder: Path, source: str) -> Plan:
    for name in ("model.pb", "model.ckpt", "data.npz"):
        (folder / name).touch()
    (folder / "recipe.yaml").write_text(RECIPE.format(source=source))
    return plan_recipes([load_recipe(folder / "recipe.yaml", environ={})])


def test_re2_has_its_version(installed: Path) -> None:
    assert regex_engine() == "RE2 (google-re2 7.8)"


def test_python_is_used_without_re2(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(installed / "elsewhere")])
    assert regex_engine() == PYTHON


def test_directory_with_the_name_is_not_re2(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(installed)])
    (installed / "re2/__init__.py").unlink()
    assert regex_engine() == PYTHON


def test_version_from_other_metadata(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "google_re2-7.8.dist-info").rename(installed / "google.dist-info")
    monkeypatch.setattr(metadata, "version", {"google-re2": "9"}.__getitem__)
    assert regex_engine() == "RE2 (google-re2 9)"


def test_re2_without_metadata_has_an_unknown_version(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "google_re2-7.8.dist-info").rmdir()
    monkeypatch.setattr(sys, "path", [str(installed)])
    assert regex_engine() == "RE2 (google-re2 unknown)"


def test_engine_matches_the_installed_re2() -> None:
    pytest.importorskip("re2")
    assert regex_engine() == f"RE2 (google-re2 {metadata.version('google-re2')})"


def test_new_re2_makes_affected_stages_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {s.task: s.stage.parameters for s in planned(tmp_path, GRAPH).stages}
    (installed / "google_re2-7.8.dist-info").rename(installed / "google_re2-7.9.dist-info")
    regex_engine.cache_clear()
    after = {s.task: s.stage.parameters for s in planned(tmp_path, GRAPH).stages}
    assert {task for task in before if before[task] != after[task]} == {
        "texts/freeze",
        "texts/samples",
        "texts/02-fold_constants",
        "texts/01-strip_unused_nodes-check",
        "texts/02-fold_constants-check",
        "texts/03-fold_batch_norms-check",
        "texts/phone/check",
        "texts/evaluate-source",
        "texts/phone/evaluate",
    }


def test_engine_is_not_detected_if_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> None:
        raise AssertionError(name)

    (tmp_path / "model.pb").touch()
    text = "version: 1\nname: plain\nsource: {frozen: model.pb}\ntransforms: [remove_device]\n"
    (tmp_path / "recipe.yaml").write_text(f"{text}targets: {{phone: {{}}}}\n")
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    plan = plan_recipes([load_recipe(tmp_path / "recipe.yaml", environ={})])
    stages = [s.stage for s in plan.stages if isinstance(s.stage, FreezeStage | TransformStage)]
    assert [stage.regular_expressions for stage in stages] == ["", ""]
    assert not [s for s in plan.stages if isinstance(s.stage, RunningStage)]


def test_custom_transforms_may_use_regular_expressions(tmp_path: Path) -> None:
    file = InputFile("own.py", tmp_path / "own.py")
    assert step_regex_engine(Step("own")) == ""
    assert step_regex_engine(Step("quantize_nodes", (("ranges", "dynamic"),))) == ""
    assert step_regex_engine(Step("quantize_nodes", (("rule", ("bits=4",)),))) == regex_engine()
    assert step_regex_engine(Step("own", plugin=Plugin("own", file, file))) == regex_engine()


def _uses_regular_expressions(name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a transform applies a regular expression to constants."""
    patterns = []

    def refuse(pattern: bytes) -> None:
        patterns.append(pattern)
        raise UnsupportedError

    monkeypatch.setattr(regex, "compiled", refuse)
    graph = Graph(
        [
            placeholder(),
            node("relu", "Relu", "x"),
            constant("strings", Tensor.of(np.array([b"a"], object), DType.STRING)),
            node("rewritten", "StaticRegexReplace", "strings", T=None, pattern="a", rewrite="b"),
            node("text", "Identity", "rewritten", T=DType.STRING),
        ]
    )
    options = dict(OPTIONS.get(name, {}))
    if "fused_nodes" in options:
        options |= {"fused_nodes": "relu", "input_types": "float", "input_shapes": "1,2"}
    with contextlib.suppress(MobileprepError):
        make_transform(name, options).apply(graph, Context(("x",), ("relu", "text")))
    return bool(patterns)


def test_transforms_that_compute_nodes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {n for n in transform_names() if _uses_regular_expressions(n, monkeypatch)} == COMPUTING


def test_engine_is_not_imported() -> None:
    code = (
        "import sys; from mobileprep.building.plan.engines import regex_engine;"
        "regex_engine();"
        "assert not {'numpy', 're2', 'importlib.metadata'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
