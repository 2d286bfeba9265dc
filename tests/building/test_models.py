"""From a model's path to a graph that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import UsageError
from mobileprep.freezing.loading import Model, ModelOptions, load_model
from mobileprep.graph.files import write_graph
from mobileprep.graph.serde import graph_to_bytes
from tests.building.stages.jobs import classifier


def never(sentence: str) -> None:
    pytest.fail(sentence)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_graph(tmp_path / "model.pb", classifier())
    return tmp_path / "model.pb"


def test_graph_object_is_accepted(path: Path) -> None:
    found = load_model(path, ModelOptions(), never)
    assert graph_to_bytes(found.graph) == graph_to_bytes(classifier())
    assert (found.path, found.outputs, dict(found.names)) == (path, (), {})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ModelOptions(tags=("serve", "gpu")), "the tags 'serve,gpu' choose within a SavedModel"),
        (ModelOptions(signature="predict"), "the signature 'predict' is named"),
    ],
)
def test_unknown_signature_is_refused(path: Path, options: ModelOptions, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        load_model(path, options, never)
    assert caught.value.where == str(path)


def test_names_of_a_signature_lead_to_tensors_unless_the_graph_has_the_name() -> None:
    model = Model(classifier(), Path("m"), ("y", "product"), {"scores": "y:0", "x": "other"})
    assert model.tensor("scores") == "y:0"
    assert model.tensor("x") == "x"
    assert model.tensor("unknown") == "unknown"
    assert model.tensors(("scores", "product")) == ("y:0", "product")
    assert model.tensors(("signature",)) == ("y", "product")
    plain = Model(classifier(), Path("m"))
    assert plain.tensors(("signature",)) == ("signature",)
