"""A graph's ways to TensorFlow Mobile and to LiteRT."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.targets.migration.records import Migration
from mobileprep.targets.migration.survey import surveyed
from mobileprep.transforms.base import Context
from tests.building.stages.jobs import classifier, op
from tests.targets.migration.graphs import picture, speech


def survey(graph: object, feed: str, fetch: str, platform: str = "android") -> Migration:
    return surveyed(graph, Context((feed,), (fetch,)), platform)  # type: ignore[arg-type]


def verdicts(found: Migration) -> list[str]:
    return [route.verdict for route in found.routes]


def test_what_runs_everywhere_runs_as_it_is() -> None:
    found = survey(classifier(), "x", "y")
    assert verdicts(found) == ["as it is"] * 3
    assert not found.advice
    for route in found.routes:
        assert [size.form for size in route.sizes] == ["float", "float16", "weights"]
        assert all(size.share == round(size.bytes / found.bytes, 4) for size in route.sizes)


def test_sounds_are_fed_to_litert_as_samples() -> None:
    found = survey(speech(), "wav", "probabilities")
    assert verdicts(found) == ["as it is", "as it is", "after changes"]
    lite = found.routes[-1]
    assert lite.inputs == ("sound",)
    assert [lack.op for lack in lite.lacks] == ["Placeholder", "DecodeWav"]
    assert not lite.left
    (advice,) = found.advice
    assert (advice.kind, advice.inputs) == ("audio", ("sound",))


def test_pictures_are_fed_to_both_runtimes_as_pixels() -> None:
    found = survey(picture(), "jpeg", "mean")
    assert verdicts(found) == ["after changes"] * 3
    for route in found.routes:
        assert route.inputs == ("pixels",)
        assert "DecodeJpeg" in {lack.op for lack in route.lacks}
    assert [a.kind for a in found.advice] == ["images"]


def test_what_is_printed_on_the_way_runs_on_litert() -> None:
    told = op("told", "Print", "y", "y", U=AttrValue("list(type)", (DType.FLOAT,)))
    found = survey(
        classifier().with_nodes([*classifier(), told, op("z", "Relu", "told")]), "x", "z"
    )
    assert verdicts(found)[-1] == "as it is"


def test_what_no_change_mends_stays() -> None:
    odd = op("z", "Erfinv", "y")
    found = survey(classifier().with_nodes([*classifier(), odd]), "x", "z")
    lite = found.routes[-1]
    assert lite.verdict == "no"
    assert lite.lacks == lite.left
    assert [lack.op for lack in lite.left] == ["Erfinv"]
    assert not lite.sizes


def test_newer_attributes_are_dropped_for_mobile() -> None:
    changed = [
        replace(n, attrs={**n.attrs, "grad_a": attr.boolean(value=False)})
        if n.op == "MatMul"
        else n
        for n in classifier()
    ]
    found = survey(classifier().with_nodes(changed), "x", "y")
    assert found.routes[0].transforms == ("strip_unused_nodes", "downgrade")
    assert verdicts(found) == ["after changes", "after changes", "as it is"]


def test_a_platform_that_is_none_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="symbian"):
        survey(classifier(), "x", "y", "symbian")


def test_an_input_of_unknown_rank_is_to_be_given_its_shape() -> None:
    nodes = [op("x", "Placeholder", dtype=attr.dtype(DType.FLOAT)), op("y", "Erfinv", "x")]
    (advice,) = survey(Graph(nodes), "x", "y").advice
    assert (advice.kind, advice.node) == ("shapes", "x")
    assert "--input_shapes" in advice.text
