"""What stages read of earlier ones, and the graphs that they leave, against the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

import numpy as np
import pytest

from mobileprep.building.pipeline import exchange as exchanging
from mobileprep.building.pipeline.exchange import StoreExchange
from mobileprep.building.pipeline.execute import Handover
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.store import Store, is_mapped
from mobileprep.building.plan.spec import Plan, Stage, StageSpec, Upstream
from mobileprep.errors import ArtifactError
from mobileprep.graph.files import APART
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor

GRAPH = Upstream("r/a", "graph.pb")
Exchanges = Callable[..., StoreExchange]


class ReadStage(Stage, frozen=True, kw_only=True):
    """Reads a graph."""

    stage_name: ClassVar[str] = "read"
    stage_version: ClassVar[int] = 1

    graph: Upstream | None = None


def model(scale: float = 1.0) -> Graph:
    """Two large tensors, one of them twice, and a small one."""
    large = np.arange(APART // 4, dtype=np.float32) * np.float32(scale)
    arrays = {"a": large, "b": large.copy(), "c": large + 1, "small": np.ones(3, np.float32)}
    return Graph([constant(name, Tensor.of(array)) for name, array in arrays.items()])


@pytest.fixture
def exchange(store: Store) -> Exchanges:
    """One run of the stage ``r/b``; what it leaves, ``r/c`` reads."""

    def exchange(**inputs: Output) -> StoreExchange:
        handover = Handover(
            Plan(
                (
                    StageSpec("r/b", ReadStage(graph=GRAPH)),
                    StageSpec("r/c", ReadStage(graph=Upstream("r/b", "graph.pb"))),
                ),
                (),
            )
        )
        named = {Upstream("r/a", name.replace("_", ".")): out for name, out in inputs.items()}
        return StoreExchange("r/b", store, named, handover, store.workspace() / "read")

    return exchange


def left(exchange: StoreExchange, name: str, graph: Graph) -> Output:
    exchange.leave_graph(name, graph)
    return exchange.left[name]


def objects_of(store: Store) -> dict[Path, int]:
    """The store's objects with their lengths."""
    return {p: p.stat().st_size for p in (store.folder / "cas").rglob("*") if p.is_file()}


def test_a_graph_for_later_stages_is_an_index_and_an_object_for_each_large_tensor(
    exchange: Exchanges, store: Store
) -> None:
    run = exchange()
    size = run.leave_graph("graph.pb", model())
    output = run.left["graph.pb"]
    assert output.index is not None
    assert (output.sha256, output.size) == (output.index.sha256, output.index.size)
    sizes = sorted(objects_of(store).values())
    assert sizes == [output.size, APART, APART]
    assert size == len(graph_to_bytes(model()))


def test_equal_graphs_are_one_output(exchange: Exchanges) -> None:
    assert left(exchange(), "graph.pb", model()) == left(exchange(), "graph.pb", model())
    assert left(exchange(), "graph.pb", model()) != left(exchange(), "graph.pb", model(2))


def test_stored_graph_is_read_back(exchange: Exchanges) -> None:
    output = left(exchange(), "graph.pb", model())
    graph = exchange(graph_pb=output).graph(GRAPH)
    assert graph_to_bytes(graph) == graph_to_bytes(model())


def test_cached_graph_stays_in_memory_for_the_next_reader(exchange: Exchanges) -> None:
    run = exchange(graph_pb=left(exchange(), "graph.pb", model()))
    assert run.graph(GRAPH) is run.graph(GRAPH)


def test_graph_in_memory_is_reused(exchange: Exchanges, store: Store) -> None:
    run = exchange()
    graph = model()
    run.leave_graph("graph.pb", graph)
    reader = StoreExchange(
        "r/c",
        store,
        {Upstream("r/b", "graph.pb"): run.left["graph.pb"]},
        run._handover,
        store.workspace() / "read",
    )
    assert reader.graph(Upstream("r/b", "graph.pb")) is graph


def test_large_tensors_are_mapped_after_storing(exchange: Exchanges) -> None:
    graph = model()
    exchange().leave_graph("graph.pb", graph)
    contents = {node.name: node.attrs["value"].value.content for node in graph}
    assert is_mapped(memoryview(contents["a"]))
    assert is_mapped(memoryview(contents["c"]))


def test_offloaded_tensor_is_stored_immediately(exchange: Exchanges, store: Store) -> None:
    expected, graph = left(exchange(), "graph.pb", model()), model(3)
    run = exchange()
    for node in graph:
        run.offload(node.attrs["value"].value)
    contents = {node.name: node.attrs["value"].value.content for node in graph}
    assert is_mapped(memoryview(contents["a"]))
    assert is_mapped(memoryview(contents["c"]))
    assert contents["small"] is None
    before = objects_of(store)
    output = left(run, "graph.pb", graph)
    assert output == left(exchange(), "graph.pb", model(3)) != expected
    assert set(objects_of(store)) - set(before) == {store.objects.path(output.sha256)}


def test_unwritable_cache_is_reported_when_a_graph_is_written(
    exchange: Exchanges, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        message = "the store cannot be written: No space left on device"
        raise ArtifactError(message, "free some", "store")

    monkeypatch.setattr(store.objects, "_write", full)
    graph, run = model(), exchange()
    for node in graph:
        run.offload(node.attrs["value"].value)
    assert graph_to_bytes(graph) == graph_to_bytes(model())
    with pytest.raises(ArtifactError, match="No space left"):
        run.leave_graph("graph.pb", graph)


def test_a_graph_that_a_stage_did_not_change_is_the_output_that_it_read(
    exchange: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = left(exchange(), "graph.pb", model())
    run = exchange(graph_pb=output)
    graph = run.graph(GRAPH)
    monkeypatch.setattr(
        exchanging, "graph_index", lambda *_: pytest.fail("what is known was written again")
    )
    assert run.leave_graph("graph.pb", graph) == len(graph_to_bytes(model()))
    assert run.left["graph.pb"] == output


def test_input_file_is_not_reused_as_a_graph_output(exchange: Exchanges, store: Store) -> None:
    """A published file and a GraphDef in the store have other digests than a graph's index."""
    file = left(exchange(), "files/m.pb", model())
    (store.workspace() / "left" / "graph.pb").write_bytes(graph_to_bytes(model()))
    path = next((store.folder / "tmp").rglob("graph.pb"))
    for output in (file, store.take(path)):
        run = exchange(graph_pb=output)
        graph = run.graph(GRAPH)
        assert graph_to_bytes(graph) == graph_to_bytes(model())
        assert left(run, "graph.pb", graph) == left(exchange(), "graph.pb", model())


def test_a_published_file_has_the_bytes_of_the_serialized_graph(
    exchange: Exchanges, store: Store, tmp_path: Path
) -> None:
    run = exchange()
    data = graph_to_bytes(model())
    assert run.leave_graph("files/m.pb", model()) == len(data)
    output = run.left["files/m.pb"]
    assert (output.sha256, output.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert b"".join(store.pieces(output)) == data
    store.publish(output, tmp_path / "m.pb")
    assert (tmp_path / "m.pb").read_bytes() == data
    assert max(objects_of(store).values()) == APART


def test_a_file_of_pieces_is_put_together_once_for_who_reads_a_path(exchange: Exchanges) -> None:
    run = exchange(m_pb=left(exchange(), "files/m.pb", model()))
    path = run.path(Upstream("r/a", "m.pb"))
    before = path.stat()
    assert path.read_bytes() == graph_to_bytes(model())
    assert run.path(Upstream("r/a", "m.pb")) == path
    # Reading it changes the time of access.
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_plain_file_is_read_from_the_cache(exchange: Exchanges, store: Store) -> None:
    file = store.workspace() / "left" / "file"
    file.write_bytes(b"abc")
    output = store.take(file)
    run = exchange(file=output)
    assert run.path(Upstream("r/a", "file")) == store.objects.path(output.sha256)
    assert b"".join(run.data(Upstream("r/a", "file"))) == b"abc"


def test_inline_output_has_a_path_and_bytes(exchange: Exchanges, store: Store) -> None:
    file = store.workspace() / "left" / "facts.json"
    file.write_text('{"a": 1}')
    output = store.take(file, inline=True)
    assert output.text == '{"a": 1}'
    run = exchange(facts_json=output)
    assert b"".join(run.data(Upstream("r/a", "facts.json"))) == b'{"a": 1}'
    assert run.path(Upstream("r/a", "facts.json")).read_text() == '{"a": 1}'
    assert objects_of(store) == {}


def test_file_over_the_protobuf_limit_is_refused(
    exchange: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int, where: str) -> None:
        message = f"{size} is too much"
        raise ArtifactError(message, "", where)

    monkeypatch.setattr(exchanging, "check_serialized_size", refuse)
    run = exchange()
    with pytest.raises(ArtifactError) as caught:
        run.leave_graph("files/m.pb", model())
    assert caught.value.message == f"{len(graph_to_bytes(model()))} is too much"
    assert caught.value.where == "r/b"
    assert run.left == {}
