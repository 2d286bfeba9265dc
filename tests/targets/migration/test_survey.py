"""Migration routes to TensorFlow Mobile and LiteRT."""

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


def verdicts(migration: Migration) -> list[str]:
    return [route.verdict for route in migration.routes]


def test_supported_graph_needs_no_changes() -> None:
    migration = survey(classifier(), "x", "y")
    assert verdicts(migration) == ["as it is"] * 3
    assert not migration.advice
    for route in migration.routes:
        assert [size.form for size in route.sizes] == ["float", "float16", "weights"]
        assert all(size.share == round(size.bytes / migration.bytes, 4) for size in route.sizes)


def test_litert_gets_decoded_audio() -> None:
    migration = survey(speech(), "wav", "probabilities")
    assert verdicts(migration) == ["as it is", "as it is", "after changes"]
    lite = migration.routes[-1]
    assert lite.inputs == ("sound",)
    assert [lack.op for lack in lite.lacks] == ["Placeholder", "DecodeWav"]
    assert not lite.left
    (advice,) = migration.advice
    assert (advice.kind, advice.inputs) == ("audio", ("sound",))


def test_both_runtimes_get_decoded_images() -> None:
    migration = survey(picture(), "jpeg", "mean")
    assert verdicts(migration) == ["after changes"] * 3
    for route in migration.routes:
        assert route.inputs == ("pixels",)
        assert "DecodeJpeg" in {lack.op for lack in route.lacks}
    assert [a.kind for a in migration.advice] == ["images"]


def test_print_nodes_are_removed_for_litert() -> None:
    printed = op("printed", "Print", "y", "y", U=AttrValue("list(type)", (DType.FLOAT,)))
    graph = classifier().with_nodes([*classifier(), printed, op("z", "Relu", "printed")])
    assert verdicts(survey(graph, "x", "z"))[-1] == "as it is"


def test_unsupported_ops_are_reported() -> None:
    odd = op("z", "Erfinv", "y")
    migration = survey(classifier().with_nodes([*classifier(), odd]), "x", "z")
    lite = migration.routes[-1]
    assert lite.verdict == "no"
    assert lite.lacks == lite.left
    assert [lack.op for lack in lite.left] == ["Erfinv"]
    assert not lite.sizes


def test_newer_attributes_are_removed_for_mobile() -> None:
    changed = [
        replace(n, attrs={**n.attrs, "grad_a": attr.boolean(value=False)})
        if n.op == "MatMul"
        else n
        for n in classifier()
    ]
    migration = survey(classifier().with_nodes(changed), "x", "y")
    assert migration.routes[0].transforms == ("strip_unused_nodes", "downgrade")
    assert verdicts(migration) == ["after changes", "after changes", "as it is"]


def test_unknown_platform_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="symbian"):
        survey(classifier(), "x", "y", "symbian")


def test_input_of_unknown_rank_needs_a_shape() -> None:
    nodes = [op("x", "Placeholder", dtype=attr.dtype(DType.FLOAT)), op("y", "Erfinv", "x")]
    (advice,) = survey(Graph(nodes), "x", "y").advice
    assert (advice.kind, advice.node) == ("shapes", "x")
    assert "--input_shapes" in advice.text
