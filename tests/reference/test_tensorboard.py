"""TensorBoard shows the graphs that ``dot --format=tensorboard`` writes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import mobileprep
from tests.transforms.graphs import const, conv, node, placeholder

pytestmark = pytest.mark.reference
pytest.importorskip("tensorboard", reason="needs tensorboard")

NODES = ("x", "scope/w", "scope/layer", "scope/relu", "out")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    graph = mobileprep.Graph(
        [
            placeholder(),
            const("scope/w", np.ones((3, 3, 2, 64))),
            conv("scope/layer", "x scope/w"),
            node("scope/relu", "Relu", "scope/layer"),
            node("out", "Identity", "scope/relu ^x"),
        ]
    )
    mobileprep.draw(graph, tmp_path / "logs", format="tensorboard", warn=print)
    return tmp_path / "logs"


def test_the_server_shows_all_nodes(logs: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", f"--logdir={logs}", f"--port={port}"]
    command += ["--host=127.0.0.1", "--load_fast=false"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}/data/plugin/graphs/graph?run=.&conceptual=false"
        text = answer(address)
    finally:
        server.terminate()
        server.wait(timeout=30)
    for name in NODES:
        assert f'name: "{name}"' in text
    assert 'op: "Conv2D"' in text
    assert "_output_shapes" in text


def answer(address: str) -> str:
    """Return the body of a page, once the server has loaded the events."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                return page.read().decode()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    message = "TensorBoard did not answer"
    raise TimeoutError(message)


def test_the_event_accumulator_reads_the_graph(logs: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logs))
    events.Reload()
    assert events.Tags()["graph"]
    read = events.Graph()
    assert [n.name for n in read.node] == list(NODES)
    assert list(read.node[4].input) == ["scope/relu", "^x"]
