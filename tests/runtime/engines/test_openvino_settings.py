"""OpenVINO settings and error messages, without OpenVINO."""

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


def failed_compilation(
    monkeypatch: pytest.MonkeyPatch, reason: str, threads: int = 0
) -> tuple[Any, str]:
    """The compile settings, and the message of a failed compilation."""
    calls: list[Any] = []

    def compile_model(_model: object, _device: str, settings: dict[str, str]) -> None:
        calls.append(settings)
        raise RuntimeError(reason)

    core = SimpleNamespace(read_model=lambda _path: None, compile_model=compile_model)
    library = SimpleNamespace(Core=lambda: core)
    monkeypatch.setattr(openvino_engine, "import_library", lambda *_: library)
    engine = OpenVinoEngine(GRAPH, "m.pb", threads)
    with pytest.raises(UnsupportedError) as error:
        engine.run(["out"], {"x": normal(2)})
    return calls[0], error.value.message


@pytest.mark.parametrize(("threads", "expected"), [(-1, None), (0, None), (1, "1"), (4, "4")])
def test_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, expected: str | None
) -> None:
    settings, _ = failed_compilation(monkeypatch, "no", threads)
    assert settings.get("INFERENCE_NUM_THREADS") == expected
    assert settings["INFERENCE_PRECISION_HINT"] == "f32"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Exception from src/core.cpp:1:\n\n - no op Frob\n", "no op Frob"),
        ("no op Frob\nTo facilitate the conversion, write one\n", "no op Frob"),
        ("", "it does not say why"),
    ],
)
def test_error_message_is_shortened(
    monkeypatch: pytest.MonkeyPatch, reason: str, expected: str
) -> None:
    _, message = failed_compilation(monkeypatch, reason)
    assert message == f"OpenVINO cannot run the graph: {expected}"
