"""Selection of an engine."""

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
        self.requests: list[Sequence[str]] = []

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
    numpy = choose.ENGINES["numpy"]
    registry = {"absent": Absent, "picky": Picky, "numpy": numpy}
    monkeypatch.setattr(choose, "ENGINES", registry)
    monkeypatch.setattr(choose, "installed_engines", lambda: list(registry))


def test_numpy_is_always_available() -> None:
    engine = open_engine("numpy", GRAPH, None)
    assert engine.name == "numpy"
    np.testing.assert_array_equal(engine.run(["out"], {"x": X})[0], np.maximum(X, 0))
    assert installed_engines()[-1] == "numpy"


def test_engine_names() -> None:
    assert ENGINE_NAMES == ("auto", "litert", "numpy", "openvino", "tensorflow")


def test_unknown_engine_suggests_closest_name() -> None:
    with pytest.raises(UsageError) as error:
        open_engine("numpi", GRAPH, None)
    assert error.value.hint == "did you mean 'numpy'?"


def test_auto_uses_the_first_engine_that_opens(engines: None) -> None:
    messages: list[str] = []
    engine = open_engine("auto", GRAPH, None, tell=messages.append)
    assert engine.name == "auto"
    engine.run(["out"], {"x": X})
    assert engine.name == "picky"
    assert messages == ["absent is not taken: it is broken"]


def test_auto_skips_engine_that_refuses_the_graph(engines: None) -> None:
    graph = Graph([placeholder(), node("odd", "Relu", "x")])
    messages: list[str] = []
    engine = open_engine("auto", graph, None, tell=messages.append)
    np.testing.assert_array_equal(engine.run(["odd"], {"x": X})[0], np.maximum(X, 0))
    assert engine.name == "numpy"
    assert messages[-1] == "picky is not taken: odd things"


def test_auto_can_be_restricted(engines: None) -> None:
    for among, name in (((), "numpy"), (["picky"], "picky"), (["absent"], "numpy")):
        engine = open_engine("auto", GRAPH, None, among=among)
        engine.run(["out"], {"x": X})
        assert engine.name == name


def test_directory_named_like_an_engine_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openvino", "ai_edge_litert", "tensorflow"):
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_engines() == ["numpy"]


def test_auto_reports_the_error_of_the_last_engine(engines: None) -> None:
    graph = Graph([placeholder(), node("odd", "Frobnicate", "x")])
    with pytest.raises(UnsupportedError, match="'Frobnicate'"):
        open_engine("auto", graph, Path("g.pb")).run(["odd"], {"x": X})


def test_threads_are_limited() -> None:
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
def test_missing_engine_is_reported(
    name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match="not installed") as error:
        open_engine(name, GRAPH, None, convert=tflite_in_memory)
    assert error.value.exit_code == 6
    assert error.value.hint == f"pip install {package}"


def test_litert_needs_a_conversion_for_graphs() -> None:
    with pytest.raises(UnsupportedError, match="LiteRT runs") as error:
        open_engine("litert", GRAPH, None)
    assert "mobileprep tflite" in error.value.hint


class Doubling(Picky):
    """An engine with wrong results from the second run on."""

    name = "doubling"

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        self.requests.append(fetches)
        return [np.maximum(feeds["x"], 0) * (1 if len(self.requests) < 2 else 2) for _ in fetches]


@pytest.mark.parametrize(("verify", "name"), [(False, "doubling"), (True, "numpy")])
def test_auto_drops_engine_with_wrong_results(
    monkeypatch: pytest.MonkeyPatch, name: str, *, verify: bool
) -> None:
    registry = {"doubling": Doubling, "numpy": choose.ENGINES["numpy"]}
    monkeypatch.setattr(choose, "ENGINES", registry)
    monkeypatch.setattr(choose, "installed_engines", lambda: list(registry))
    reasons: list[str] = []
    engine = open_engine("auto", GRAPH, None, tell=reasons.append, verify=verify)
    engine.run(["out"], {"x": X})
    assert engine.name == "doubling"
    engine.run(["out"], {"x": X})
    assert engine.name == name
    assert bool(reasons) is verify
