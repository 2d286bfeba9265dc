"""Runs with the engine of the recipe, compared with the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.plan.engines import EngineChoice, EngineRecord, RunningStage
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.check.spec import CheckStage
from mobileprep.building.stages.running import compared_with_reference, stage_engine
from mobileprep.errors import AccuracyError, UnsupportedError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines import choose
from mobileprep.runtime.engines.agreement import TOLERANCE
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.building.stages.jobs import classifier, job, op, placeholder, slots

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Off:
    """The interpreter under another name with a relative error in its results."""

    name = "openvino"
    part = 0.0

    def __init__(self, graph: Graph, where: str, threads: int) -> None:
        self._engine = NumpyEngine(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [x * np.float32(1 + self.part) for x in self._engine.run(fetches, feeds)]


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> type[Off]:
    """An engine next to numpy, new for each test."""
    engine = type("Off", (Off,), {})
    numpy = choose.ENGINES["numpy"]
    monkeypatch.setattr(choose, "ENGINES", {"openvino": engine, "numpy": numpy})
    monkeypatch.setattr(choose, "installed_engines", lambda: ["openvino", "numpy"])
    return engine


def engine_job(folder: Path, engine: str = "auto", **versions: str) -> Job[RunningStage]:
    choice = EngineChoice(engine, versions or {"openvino": "2026.4"})
    inputs = slots("graph", "interface", "assets", "samples", "expected")
    return job(folder, CheckStage(step="s", engine=choice, **inputs))


def compared(done: Job[RunningStage], graph: Graph, fetch: str = "y") -> EngineRecord:
    engine = stage_engine(done, graph, "data/test.npz")
    engine.run([fetch], {"x": X})
    return compared_with_reference(
        done, engine, graph, [fetch], {"x": X}, samples=2, where="data/test.npz"
    )


def test_interpreter_is_not_compared(tmp_path: Path) -> None:
    assert compared(engine_job(tmp_path, "numpy"), classifier()) == EngineRecord("numpy", TOLERANCE)


@pytest.mark.parametrize(
    ("part", "within"), [(0.0, 1e-7), (2e-6, 1e-5), (5e-7, 1e-6), (9e-5, 1e-4)]
)
def test_other_engines_are_compared(part: float, within: float, off: Any, tmp_path: Path) -> None:
    off.part = part
    record = compared(engine_job(tmp_path), classifier())
    assert record == EngineRecord("openvino", TOLERANCE, "2026.4", 2, within)


def test_inaccurate_engine_fails_the_build(off: Any, tmp_path: Path) -> None:
    off.part = 3e-4
    with pytest.raises(AccuracyError) as caught:
        compared(engine_job(tmp_path, "openvino"), classifier())
    assert caught.value.exit_code == 8
    assert caught.value.message == (
        "data/test.npz: openvino does not agree with numpy: apart by 3.0e-04 of the largest value "
        "(in y); at most 1e-04 is allowed"
    )


def test_auto_replaces_an_inaccurate_engine(off: Any, tmp_path: Path) -> None:
    off.part = 3e-4
    assert compared(engine_job(tmp_path), classifier()) == EngineRecord("numpy", TOLERANCE)


def test_auto_uses_only_engines_in_the_fingerprint(off: Any, tmp_path: Path) -> None:
    assert compared(engine_job(tmp_path, tensorflow="2.21"), classifier()).name == "numpy"


def test_unsupported_graphs_are_not_compared(off: Any, tmp_path: Path) -> None:
    class Able(off):
        def run(self, fetches: Sequence[str], feeds: Mapping[str, Any]) -> list[np.ndarray]:
            return [feeds["x"]]

    choose.ENGINES["openvino"] = Able
    graph = Graph([placeholder((-1, 3)), op("y", "NoSuchOp", "x")])
    record = compared(engine_job(tmp_path), graph)
    assert (record.name, record.within, record.samples) == ("openvino", None, 0)
    assert "NoSuchOp" in record.unlike


def test_error_of_a_named_engine_has_its_position(off: Any, tmp_path: Path) -> None:
    class Refusing(off):
        def run(self, fetches: Sequence[str], feeds: Mapping[str, Any]) -> list[np.ndarray]:
            message = "OpenVINO cannot run the graph: no rule for Odd"
            raise UnsupportedError(message, "", "data/test.npz")

    choose.ENGINES["openvino"] = Refusing
    with pytest.raises(UnsupportedError, match=r"recipe.yaml:10:1: data/test.npz: OpenVINO") as c:
        compared(engine_job(tmp_path, "openvino"), classifier())
    assert "engine: auto" in c.value.hint
    assert compared(engine_job(tmp_path), classifier()).name == "numpy"


class Shipped:
    """A .tflite file with an error in its outputs."""

    name = "litert"

    def __init__(self, off: float) -> None:
        self._off = off

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        outputs = NumpyEngine(classifier(), "g").run(fetches, feeds)
        return [x + np.float32(self._off) for x in outputs]


def test_difference_of_a_tflite_file_is_recorded(tmp_path: Path) -> None:
    done = engine_job(tmp_path, "litert", litert="2.1.0")
    file = structs.replace(done.asked, lite=done.asked.graph)
    done = structs.replace(done, asked=file)
    options = {"samples": 2, "where": "d"}
    record = compared_with_reference(done, Shipped(1), classifier(), ["y"], {"x": X}, **options)
    assert record.within is not None
    assert record.within > TOLERANCE
    assert (record.name, record.version, record.samples) == ("litert", "2.1.0", 2)
    broken = Shipped(float("nan"))
    record = compared_with_reference(done, broken, classifier(), ["y"], {"x": X}, **options)
    assert record.within is None
    assert "NaN" in record.unlike
