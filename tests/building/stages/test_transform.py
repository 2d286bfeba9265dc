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
from mobileprep.errors import InvalidGraphError, MobileprepError, TransformError
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
    left,
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
    named: dict[str, Path] | None = None,
) -> Job[TransformStage]:
    inputs = {"graph": graph, "interface": interface("y")}
    asked = TransformStage(
        transform=name,
        options=options or {},
        ignore_errors=ignore,
        named={slot: files(path, f"recorded/{path.name}") for slot, path in (named or {}).items()},
        **slots(*inputs),
    )
    return job(folder, asked, **inputs)


def test_graph_and_record_are_left(tmp_path: Path) -> None:
    graph = classifier()
    more = graph.with_nodes([*graph.nodes, op("unused", "Relu", "y")])
    done = step(tmp_path, "strip_unused_nodes", more)
    run(done)
    assert [n.name for n in read_graph(done.folder / "graph.pb")] == [n.name for n in graph]
    record = left(done, "step.json")
    assert (record["name"], record["removed"], record["nodes"]) == ("strip_unused_nodes", 1, 5)
    assert record["bytes"] == (done.folder / "graph.pb").stat().st_size
    assert record["ops"]["BiasAdd"] == 1
    page = left(done, "page.json")
    assert page["step"]["changes"] == [["removed", "unused", "", "Relu", "", None]]
    assert page["compressed"] > 0


def test_skips_and_their_reasons_are_recorded(tmp_path: Path) -> None:
    done = step(tmp_path, "quantize_weights", classifier())
    run(done)
    assert sum(left(done, "step.json")["skipped"].values()) > 0


@pytest.mark.parametrize(
    ("name", "op"), [("round_weights", "Const"), ("quantize_weights", "Dequantize")]
)
def test_large_constants_may_leave_memory_before_the_step_has_ended(
    tmp_path: Path, name: str, op: str
) -> None:
    weights = np.linspace(-1, 1, 5000, dtype=np.float32)
    graph = Graph([constant(name, Tensor.of(weights + k)) for k, name in enumerate("yz")])
    done = step(tmp_path, name, graph)
    run(done)
    made = read_graph(done.folder / "graph.pb")
    assert made["y"].op == op
    large = [
        n.attr_tensor("value") for n in made if n.op == "Const" and n.attr_tensor("value").shape
    ]
    assert isinstance(done.exchange, FileExchange)
    offloaded = sorted(tensor.digest() for tensor in done.exchange.offloaded)
    assert offloaded == sorted(tensor.digest() for tensor in large)
    assert len(offloaded) == 2


def test_outputs_are_kept(tmp_path: Path) -> None:
    done = step(tmp_path, "obfuscate_names", classifier())
    run(done)
    assert {"x", "y"} <= set(read_graph(done.folder / "graph.pb").by_name)


def test_a_failure_is_told_at_its_place_in_the_recipe(tmp_path: Path) -> None:
    log = tmp_path / "empty.log"
    log.write_text("nothing of interest\n")
    options = {"min_max_log_file": "recorded/empty.log"}
    failing = step(
        tmp_path,
        "freeze_requantization_ranges",
        classifier(),
        options=options,
        named={file_slot("min_max_log_file", None): log},
    )
    with pytest.raises(MobileprepError, match="holds no range") as caught:
        run(failing)
    assert isinstance(caught.value, TransformError)
    assert caught.value.where == "recipe.yaml:7:1"


def test_a_failure_can_be_ignored_and_is_told(tmp_path: Path) -> None:
    log = tmp_path / "empty.log"
    log.write_text("")
    done = step(
        tmp_path,
        "freeze_requantization_ranges",
        classifier(),
        options={"min_max_log_file": "recorded/empty.log"},
        named={file_slot("min_max_log_file", None): log},
        ignore=True,
    )
    run(done)
    assert "ignored" in left(done, "step.json")["warnings"][0]
    assert len(read_graph(done.folder / "graph.pb")) == 5


def test_where_in_the_graph_it_failed_is_part_of_the_message(tmp_path: Path) -> None:
    broken = Graph([*classifier().nodes[:-1], op("y", "BiasAdd", "product", "gone")])
    with pytest.raises(InvalidGraphError, match="gone") as caught:
        run(step(tmp_path, "remove_device", broken))
    assert "after remove_device" in caught.value.message
    assert caught.value.where == "recipe.yaml:7:1"
