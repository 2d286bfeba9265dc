"""Choosing an engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.engines import choose
from mobileprep.runtime.engines.choose import ENGINE_NAMES, installed_engines, open_engine
from tests.transforms.graphs import node, normal, placeholder

GRAPH = Graph([placeholder(), node("out", "Relu", "x")])
X = normal(2, 3)


class Picky:
    """An engine that refuses some fetches."""

    name = "picky"

    def __init__(self, graph: Graph, where: str, threads: int) -> None:
        self.asked: list[Sequence[str]] = []

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        if "odd" in fetches:
            msg = "odd things"
            raise UnsupportedError(msg)
        return [np.zeros(1) for _ in fetches]


class Absent:
    """An engine that cannot be opened."""

    def __init__(self, graph: Graph, where: str, threads: int) -> None:
        msg = "it is broken"
        raise UnsupportedError(msg)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = choose._ENGINES["numpy"]
    known = {"absent": Absent, "picky": Picky, "numpy": numpy}
    monkeypatch.setattr(choose, "_ENGINES", known)
    monkeypatch.setattr(choose, "installed_engines", lambda: list(known))


def test_numpy_is_always_there() -> None:
    engine = open_engine("numpy", GRAPH, None)
    assert engine.name == "numpy"
    np.testing.assert_array_equal(engine.run(["out"], {"x": X})[0], np.maximum(X, 0))
    assert installed_engines()[-1] == "numpy"


def test_the_names_are_those_of_the_recipe() -> None:
    assert ENGINE_NAMES == ("auto", "litert", "numpy", "openvino", "tensorflow")


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        open_engine("numpi", GRAPH, None)
    assert caught.value.hint == "did you mean 'numpy'?"


def test_auto_takes_the_first_that_opens(engines: None) -> None:
    told: list[str] = []
    engine = open_engine("auto", GRAPH, None, tell=told.append)
    assert engine.name == "auto"
    engine.run(["out"], {"x": X})
    assert engine.name == "picky"
    assert told == ["absent is not taken: it is broken"]


def test_auto_goes_on_where_an_engine_refuses_the_graph(engines: None) -> None:
    graph = Graph([placeholder(), node("odd", "Relu", "x")])
    told: list[str] = []
    engine = open_engine("auto", graph, None, tell=told.append)
    np.testing.assert_array_equal(engine.run(["odd"], {"x": X})[0], np.maximum(X, 0))
    assert engine.name == "numpy"
    assert told[-1] == "picky is not taken: odd things"


def test_auto_may_be_bound_to_some(engines: None) -> None:
    for among, name in (((), "numpy"), (["picky"], "picky"), (["absent"], "numpy")):
        engine = open_engine("auto", GRAPH, None, among=among)
        engine.run(["out"], {"x": X})
        assert engine.name == name


def test_a_folder_of_an_engine_s_name_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openvino", "ai_edge_litert", "tensorflow"):
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_engines() == ["numpy"]


def test_auto_says_what_the_last_engine_says(engines: None) -> None:
    graph = Graph([placeholder(), node("odd", "Frobnicate", "x")])
    with pytest.raises(UnsupportedError, match="'Frobnicate'"):
        open_engine("auto", graph, Path("g.pb")).run(["odd"], {"x": X})


def test_threads_may_be_limited() -> None:
    import threadpoolctl

    with threadpoolctl.threadpool_limits(None):
        engine = open_engine("numpy", GRAPH, None, threads=1)
        engine.run(["out"], {"x": X})
        blas = [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"]
        assert all(i["num_threads"] == 1 for i in blas)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("openvino", "openvino", "'mobileprep[openvino]'"),
        ("litert", "ai_edge_litert.interpreter", "'mobileprep[litert]'"),
        ("tensorflow", "tensorflow.compat.v1", "tensorflow-cpu"),
    ],
)
def test_an_engine_that_is_not_installed_says_so(
    name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match="not installed") as caught:
        open_engine(name, GRAPH, None, convert=tflite_in_memory)
    assert caught.value.exit_code == 6
    assert caught.value.hint == f"pip install {package}"


def test_litert_runs_only_files_without_a_conversion() -> None:
    with pytest.raises(UnsupportedError, match="LiteRT runs") as caught:
        open_engine("litert", GRAPH, None)
    assert "mobileprep tflite" in caught.value.hint


class Doubling(Picky):
    """An engine whose results are wrong from its second run on."""

    name = "doubling"

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        self.asked.append(fetches)
        return [np.maximum(feeds["x"], 0) * (1 if len(self.asked) < 2 else 2) for _ in fetches]


@pytest.mark.parametrize(("verify", "name"), [(False, "doubling"), (True, "numpy")])
def test_auto_drops_an_engine_that_does_not_agree(
    monkeypatch: pytest.MonkeyPatch, name: str, *, verify: bool
) -> None:
    known = {"doubling": Doubling, "numpy": choose._ENGINES["numpy"]}
    monkeypatch.setattr(choose, "_ENGINES", known)
    monkeypatch.setattr(choose, "installed_engines", lambda: list(known))
    reasons: list[str] = []
    engine = open_engine("auto", GRAPH, None, tell=reasons.append, verify=verify)
    engine.run(["out"], {"x": X})
    assert engine.name == "doubling"
    engine.run(["out"], {"x": X})
    assert engine.name == name
    assert bool(reasons) is verify
