"""The check stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import AccuracyError, InvalidGraphError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import constant
from mobileprep.ir.tensor import Tensor
from mobileprep.stages.base import Job
from mobileprep.stages.check import run
from tests.stages.jobs import NUMPY, assets, classifier, interface, job, left


def checked(folder: Path, graph: Graph) -> Job:
    inputs = {
        "source": classifier(),
        "graph": graph,
        "interface": interface("y"),
        "assets": assets(folder),
    }
    return job(folder, {"step": "some_step", **NUMPY}, inputs=inputs)


def test_the_largest_difference_is_left(tmp_path: Path) -> None:
    done = checked(tmp_path, classifier(shift=0.25))
    run(done)
    told = left(done, "check.json")
    assert (told["step"], told["largest_difference"]) == ("some_step", 0.25)
    assert told["engine"]["name"] == "numpy"


def test_a_step_that_breaks_the_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="after some_step") as caught:
        run(checked(tmp_path, classifier(shift=np.nan)))
    assert caught.value.where == "recipe.yaml:7:1"


def test_a_step_after_which_the_graph_does_not_run_is_named(tmp_path: Path) -> None:
    nodes = [constant("w", Tensor.of(np.eye(2, dtype=np.float32))) if n.name == "w" else n
             for n in classifier()]  # fmt: skip
    with pytest.raises(
        InvalidGraphError, match="after some_step the graph does not run: node 'pr"
    ) as c:
        run(checked(tmp_path, Graph(nodes)))
    assert c.value.where == "recipe.yaml:7:1"
    with pytest.raises(
        InvalidGraphError, match="after some_step the graph does not run: the fetch 'y'"
    ):
        run(checked(tmp_path, Graph(nodes[:-1])))
