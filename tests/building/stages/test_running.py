"""Running with the recipe's engine, and comparing it with the interpreter."""

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
    """The interpreter under another name, its results off by a part of themselves."""

    name = "openvino"
    part = 0.0

    def __init__(self, graph: Graph, where: str, threads: int) -> None:
        self._engine = NumpyEngine(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [x * np.float32(1 + self.part) for x in self._engine.run(fetches, feeds)]


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> type[Off]:
    """An engine beside numpy, fresh for each test."""
    engine = type("Off", (Off,), {})
    numpy = choose._ENGINES["numpy"]
    monkeypatch.setattr(choose, "_ENGINES", {"openvino": engine, "numpy": numpy})
    monkeypatch.setattr(choose, "installed_engines", lambda: ["openvino", "numpy"])
    return engine


def told(folder: Path, engine: str = "auto", **versions: str) -> Job[RunningStage]:
    choice = EngineChoice(engine, versions or {"openvino": "2026.4"})
    inputs = slots("graph", "interface", "assets", "samples", "expected")
    return job(folder, CheckStage(step="s", engine=choice, **inputs))


def compared(done: Job[RunningStage], graph: Graph, fetch: str = "y") -> EngineRecord:
    engine = stage_engine(done, graph, "data/test.npz")
    engine.run([fetch], {"x": X})
    return compared_with_reference(
        done, engine, graph, [fetch], {"x": X}, samples=2, where="data/test.npz"
    )


def test_the_interpreter_is_compared_with_nothing(tmp_path: Path) -> None:
    assert compared(told(tmp_path, "numpy"), classifier()) == EngineRecord("numpy", TOLERANCE)


@pytest.mark.parametrize(
    ("part", "within"), [(0.0, 1e-7), (2e-6, 1e-5), (5e-7, 1e-6), (9e-5, 1e-4)]
)
def test_another_engine_is_compared(part: float, within: float, off: Any, tmp_path: Path) -> None:
    off.part = part
    record = compared(told(tmp_path), classifier())
    assert record == EngineRecord("openvino", TOLERANCE, "2026.4", 2, within)


def test_an_engine_too_far_from_the_interpreter_ends_the_build(off: Any, tmp_path: Path) -> None:
    off.part = 3e-4
    with pytest.raises(AccuracyError) as caught:
        compared(told(tmp_path, "openvino"), classifier())
    assert caught.value.exit_code == 8
    assert caught.value.message == (
        "data/test.npz: openvino does not agree with numpy: apart by 3.0e-04 of the largest value "
        "(in y); at most 1e-04 is allowed"
    )


def test_auto_replaces_an_engine_too_far_from_the_interpreter(off: Any, tmp_path: Path) -> None:
    off.part = 3e-4
    assert compared(told(tmp_path), classifier()) == EngineRecord("numpy", TOLERANCE)


def test_auto_takes_only_what_the_fingerprint_knows(off: Any, tmp_path: Path) -> None:
    assert compared(told(tmp_path, tensorflow="2.21"), classifier()).name == "numpy"


def test_what_the_interpreter_cannot_run_is_not_compared(off: Any, tmp_path: Path) -> None:
    class Able(off):
        def run(self, fetches: Sequence[str], feeds: Mapping[str, Any]) -> list[np.ndarray]:
            return [feeds["x"]]

    choose._ENGINES["openvino"] = Able
    graph = Graph([placeholder((-1, 3)), op("y", "NoSuchOp", "x")])
    record = compared(told(tmp_path), graph)
    assert (record.name, record.within, record.samples) == ("openvino", None, 0)
    assert "NoSuchOp" in record.unlike


def test_an_engine_asked_for_by_name_refuses_at_its_place(off: Any, tmp_path: Path) -> None:
    class Refusing(off):
        def run(self, fetches: Sequence[str], feeds: Mapping[str, Any]) -> list[np.ndarray]:
            message = "OpenVINO cannot run the graph: no rule for Odd"
            raise UnsupportedError(message, "", "data/test.npz")

    choose._ENGINES["openvino"] = Refusing
    with pytest.raises(UnsupportedError, match=r"recipe.yaml:10:1: data/test.npz: OpenVINO") as c:
        compared(told(tmp_path, "openvino"), classifier())
    assert "engine: auto" in c.value.hint
    assert compared(told(tmp_path), classifier()).name == "numpy"


class Shipped:
    """A .tflite file whose outputs are off."""

    name = "litert"

    def __init__(self, off: float) -> None:
        self._off = off

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        outputs = NumpyEngine(classifier(), "g").run(fetches, feeds)
        return [x + np.float32(self._off) for x in outputs]


def test_how_far_a_file_is_from_its_graph_is_told_and_no_fault(tmp_path: Path) -> None:
    done = told(tmp_path, "litert", litert="2.1.0")
    file = structs.replace(done.asked, lite=done.asked.graph)
    done = structs.replace(done, asked=file)
    given = {"samples": 2, "where": "d"}
    found = compared_with_reference(done, Shipped(1), classifier(), ["y"], {"x": X}, **given)
    assert found.within is not None
    assert found.within > TOLERANCE
    assert (found.name, found.version, found.samples) == ("litert", "2.1.0", 2)
    lost = Shipped(float("nan"))
    found = compared_with_reference(done, lost, classifier(), ["y"], {"x": X}, **given)
    assert found.within is None
    assert "NaN" in found.unlike
