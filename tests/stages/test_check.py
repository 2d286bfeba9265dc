"""The check stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.ir.graph import Graph
from mobileprep.stages.base import Job
from mobileprep.stages.check import run
from tests.stages.jobs import classifier, interface, job, left


def checked(folder: Path, graph: Graph) -> Job:
    inputs = {"source": classifier(), "graph": graph, "interface": interface("y")}
    return job(folder, {"step": "some_step"}, inputs=inputs)


def test_the_largest_difference_is_left(tmp_path: Path) -> None:
    done = checked(tmp_path, classifier(shift=0.25))
    run(done)
    assert left(done, "check.json") == {"step": "some_step", "largest_difference": 0.25}


def test_a_step_that_breaks_the_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="after some_step") as caught:
        run(checked(tmp_path, classifier(shift=np.nan)))
    assert caught.value.where == "recipe.yaml:7:1"
