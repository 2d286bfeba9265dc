"""What OpenVINO is asked for, and what is made of its refusals; it need not be installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines import graph_engines as openvino_engine
from mobileprep.runtime.engines.graph_engines import OpenVinoEngine
from tests.transforms.graphs import node, normal, placeholder

GRAPH = Graph([placeholder(), node("out", "Relu", "x")])


def refused(monkeypatch: pytest.MonkeyPatch, why: str, threads: int = 0) -> tuple[Any, str]:
    """The settings with which a graph is compiled, and the message where that fails."""
    asked: list[Any] = []

    def compile_model(_model: object, _device: str, settings: dict[str, str]) -> None:
        asked.append(settings)
        raise RuntimeError(why)

    core = SimpleNamespace(read_model=lambda _path: None, compile_model=compile_model)
    library = SimpleNamespace(Core=lambda: core)
    monkeypatch.setattr(openvino_engine, "import_library", lambda *_: library)
    engine = OpenVinoEngine(GRAPH, "m.pb", threads)
    with pytest.raises(UnsupportedError) as caught:
        engine.run(["out"], {"x": normal(2)})
    return asked[0], caught.value.message


@pytest.mark.parametrize(("threads", "told"), [(-1, None), (0, None), (1, "1"), (4, "4")])
def test_threads_are_told_where_some_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, threads: int, told: str | None
) -> None:
    settings, _ = refused(monkeypatch, "no", threads)
    assert settings.get("INFERENCE_NUM_THREADS") == told
    assert settings["INFERENCE_PRECISION_HINT"] == "f32"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("Exception from src/core.cpp:1:\n\n - no op Frob\n", "no op Frob"),
        ("no op Frob\nTo facilitate the conversion, write one\n", "no op Frob"),
        ("", "it does not say why"),
    ],
)
def test_a_refusal_is_told_without_places_and_advice(
    monkeypatch: pytest.MonkeyPatch, why: str, told: str
) -> None:
    _, message = refused(monkeypatch, why)
    assert message == f"OpenVINO cannot run the graph: {told}"
