"""The transform stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.spec import file_slot
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.transform.run import run
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.errors import InvalidGraphError, TransformError
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import (
    FileExchange,
    classifier,
    files,
    interface,
    job,
    json_output,
    op,
    slots,
)


def step(
    folder: Path,
    name: str,
    graph: Graph,
    *,
    options: dict[str, Any] | None = None,
    ignore: bool = False,
    log_files: dict[str, Path] | None = None,
) -> Job[TransformStage]:
    inputs = {"graph": graph, "interface": interface("y")}
    stage = TransformStage(
        transform=name,
        options=options or {},
        ignore_errors=ignore,
        named={
            slot: files(path, f"recorded/{path.name}") for slot, path in (log_files or {}).items()
        },
        **slots(*inputs),
    )
    return job(folder, stage, **inputs)


def test_graph_and_record_are_written(tmp_path: Path) -> None:
    graph = classifier()
    more = graph.with_nodes([*graph.nodes, op("unused", "Relu", "y")])
    done = step(tmp_path, "strip_unused_nodes", more)
    run(done)
    assert [n.name for n in read_graph(done.folder / "graph.pb")] == [n.name for n in graph]
    record = json_output(done, "step.json")
    assert (record["name"], record["removed"], record["nodes"]) == ("strip_unused_nodes", 1, 5)
    assert record["bytes"] == (done.folder / "graph.pb").stat().st_size
    assert record["ops"]["BiasAdd"] == 1
    page = json_output(done, "page.json")
    assert page["step"]["changes"] == [["removed", "unused", "", "Relu", "", None]]
    assert page["compressed"] > 0


def test_skips_and_their_reasons_are_recorded(tmp_path: Path) -> None:
    done = step(tmp_path, "quantize_weights", classifier())
    run(done)
    assert sum(json_output(done, "step.json")["skipped"].values()) > 0


@pytest.mark.parametrize(
    ("name", "op"), [("round_weights", "Const"), ("quantize_weights", "Dequantize")]
)
def test_large_constants_are_offloaded_during_the_step(tmp_path: Path, name: str, op: str) -> None:
    weights = np.linspace(-1, 1, 5000, dtype=np.float32)
    graph = Graph([constant(name, Tensor.of(weights + k)) for k, name in enumerate("yz")])
    done = step(tmp_path, name, graph)
    run(done)
    output = read_graph(done.folder / "graph.pb")
    assert output["y"].op == op
    large = [
        n.attr_tensor("value") for n in output if n.op == "Const" and n.attr_tensor("value").shape
    ]
    assert isinstance(done.exchange, FileExchange)
    offloaded = sorted(tensor.digest() for tensor in done.exchange.offloaded)
    assert offloaded == sorted(tensor.digest() for tensor in large)
    assert len(offloaded) == 2


def test_output_names_do_not_change(tmp_path: Path) -> None:
    done = step(tmp_path, "obfuscate_names", classifier())
    run(done)
    assert {"x", "y"} <= set(read_graph(done.folder / "graph.pb").by_name)


def failing_step(folder: Path, *, ignore: bool = False) -> Job[TransformStage]:
    """A step whose log file has no ranges."""
    log = folder / "empty.log"
    log.write_text("nothing of interest\n")
    return step(
        folder,
        "freeze_requantization_ranges",
        classifier(),
        options={"min_max_log_file": "recorded/empty.log"},
        log_files={file_slot("min_max_log_file", None): log},
        ignore=ignore,
    )


def test_failure_is_reported_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(TransformError, match="holds no range") as caught:
        run(failing_step(tmp_path))
    assert caught.value.where == "recipe.yaml:7:1"


def test_ignored_failure_is_a_warning(tmp_path: Path) -> None:
    done = failing_step(tmp_path, ignore=True)
    run(done)
    assert "ignored" in json_output(done, "step.json")["warnings"][0]
    assert len(read_graph(done.folder / "graph.pb")) == 5


def test_message_names_the_step_that_broke_the_graph(tmp_path: Path) -> None:
    broken = Graph([*classifier().nodes[:-1], op("y", "BiasAdd", "product", "gone")])
    with pytest.raises(InvalidGraphError, match="gone") as caught:
        run(step(tmp_path, "remove_device", broken))
    assert "after remove_device" in caught.value.message
    assert caught.value.where == "recipe.yaml:7:1"
