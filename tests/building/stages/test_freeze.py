"""The freeze stage: what the recipe says of inputs and outputs is checked at its place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.plan.spec import Files, StageFile
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.run import run
from mobileprep.building.stages.freeze.spec import FreezeStage
from mobileprep.errors import CorruptFileError, InvalidGraphError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.settings import Freeze
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.settings import InputSpec
from tests.building.stages.hostile import HOSTILE
from tests.building.stages.jobs import classifier, files, job, left, op, placeholder

# An empty shape means a scalar from here on.
NEW = Versions(producer=22)
DIGITS = Path(__file__).resolve().parents[3] / "recipes" / "digits" / "model"
CHECKPOINT = "model.ckpt-1000"


def frozen(
    folder: Path,
    graph: Graph,
    *,
    outputs: tuple[str, ...] = ("y",),
    inputs: Any = (),
    assets: Files | None = None,
) -> Job[FreezeStage]:
    """The stage's job for a graph that is frozen already."""
    write_graph(folder / "model.pb", graph)
    asked = FreezeStage(
        kind="frozen",
        graph=files(folder / "model.pb"),
        freeze=Freeze(),
        inputs=tuple(InputSpec(**{"name": "x", **declared}) for declared in inputs),
        outputs=outputs,
        assets=assets,
    )
    return job(folder, asked)


def shape_after(
    folder: Path,
    known: TensorShape,
    declared: list[int],
    versions: Versions = NEW,
) -> TensorShape:
    nodes = (placeholder(known), op("y", "Relu", "x"))
    graph = Graph(nodes, versions=versions)
    done = frozen(folder, graph, inputs=[{"shape": tuple(declared)}])
    run(done)
    return read_graph(done.folder / "graph.pb")["x"].attr_shape("shape")


def test_graph_interface_and_facts_are_left(tmp_path: Path) -> None:
    graph = classifier()
    more = op("unused", "Relu", "y")
    done = frozen(tmp_path, graph.with_nodes([*graph.nodes, more]), inputs=[{}])
    run(done)
    assert [n.name for n in read_graph(done.folder / "graph.pb")] == ["x", "w", "b", "product", "y"]
    assert left(done, "interface.json") == {"inputs": ["x"], "outputs": ["y"], "init_ops": []}
    facts = left(done, "freeze.json")
    assert (facts["nodes"], facts["parameters"], facts["variables"]) == (5, 12, 0)
    assert facts["bytes"] == (done.folder / "graph.pb").stat().st_size
    assert facts["warnings"] == []
    assert left(done, "page.json").keys() == {"compressed"}


@pytest.mark.parametrize(
    ("known", "declared", "expected"),
    [
        ((-1, 3), [-1, 3], (-1, 3)),
        ((-1, 3), [1, 3], (1, 3)),
        ((1, 3), [-1, 3], (1, 3)),
        ((-1, 3), [2, -1], (2, 3)),
        (None, [1, 3], (1, 3)),
        ((), [], ()),
    ],
)
def test_the_recipe_s_shape_is_added_to_the_graph_s(
    tmp_path: Path, known: TensorShape, declared: list[int], expected: TensorShape
) -> None:
    assert shape_after(tmp_path, known, declared) == expected


@pytest.mark.parametrize(
    ("known", "declared"), [((-1, 3), [-1, 4]), ((-1, 3), [3]), ((2, 3), [1, 3]), ((), [1])]
)
def test_shapes_that_contradict_each_other_are_refused(
    tmp_path: Path, known: TensorShape, declared: list[int]
) -> None:
    with pytest.raises(InvalidGraphError, match="does not fit") as caught:
        shape_after(tmp_path, known, declared)
    assert str(list(known or ())) in caught.value.message
    assert str(declared) in caught.value.message
    assert caught.value.where == "recipe.yaml:4:1"


def test_an_empty_shape_in_an_old_graph_means_that_it_is_unknown(tmp_path: Path) -> None:
    """As TensorFlow's shape function of Placeholder reads them, up to producer 21."""
    assert shape_after(tmp_path, (), [4000], Versions(producer=21)) == (4000,)


def test_the_type_is_compared(tmp_path: Path) -> None:
    run(frozen(tmp_path, classifier(), inputs=[{"dtype": "float32"}]))
    with pytest.raises(InvalidGraphError, match="is float32 in the graph, not uint8") as caught:
        run(frozen(tmp_path, classifier(), inputs=[{"dtype": "uint8"}]))
    assert (caught.value.hint, caught.value.where) == ("write dtype: float32", "recipe.yaml:4:1")


def test_an_input_that_is_no_placeholder_is_taken_as_it_is(tmp_path: Path) -> None:
    done = frozen(tmp_path, classifier(), inputs=[{"name": "product", "dtype": "uint8"}])
    run(done)
    assert left(done, "interface.json")["inputs"] == ["product"]


@pytest.mark.parametrize(("kind", "what"), [("outputs", "output"), ("inputs", "input")])
def test_a_misspelt_name_gets_the_nearest_at_its_place(
    tmp_path: Path, kind: str, what: str
) -> None:
    told: dict[str, Any] = {"outputs": ("prodct",)}
    if kind == "inputs":
        told = {"inputs": [{"name": "prodct"}]}
    with pytest.raises(InvalidGraphError, match="prodct") as caught:
        run(frozen(tmp_path, classifier(), **told))
    assert "product" in caught.value.hint
    assert caught.value.where == {"inputs": "recipe.yaml:4:1", "outputs": "recipe.yaml:5:1"}[kind]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs_are_refused(tmp_path: Path, name: str) -> None:
    declared = [{"dtype": "float32", "shape": (1, 3)}]
    with pytest.raises(MobileprepError) as caught:
        run(frozen(tmp_path, HOSTILE[name], inputs=declared))
    assert caught.value.exit_code in (4, 5)
    assert caught.value.message


def digits(folder: Path, *, state: str, members: list[str]) -> Job[FreezeStage]:
    """The stage's job for the digits, whose checkpoint a state file in ``folder`` names."""
    named = folder / "checkpoint"
    named.write_text(f'model_checkpoint_path: "{state}"')
    read = [named, *(folder / name for name in members)]
    asked = FreezeStage(
        kind="graph",
        graph=files(DIGITS / "graph.pbtxt"),
        checkpoint=Files("checkpoint", named, tuple(StageFile(p.name, p) for p in read)),
        freeze=Freeze(),
        inputs=(),
        outputs=("probabilities",),
    )
    return job(folder, asked)


def test_a_checkpoint_elsewhere_is_not_read_for_the_one_beside_its_state_file(
    tmp_path: Path,
) -> None:
    names = [path.name for path in DIGITS.glob(f"{CHECKPOINT}.*")]
    for name in names:
        shutil.copy(DIGITS / name, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{CHECKPOINT}.index").write_bytes(b"of a later training")
    run(digits(tmp_path, state=str(tmp_path / "elsewhere" / CHECKPOINT), members=names))


def test_a_checkpoint_whose_changes_no_build_would_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="is not next to it") as caught:
        run(digits(tmp_path, state=str(DIGITS / CHECKPOINT), members=[]))
    assert caught.value.where == str(tmp_path / "checkpoint")


def test_files_that_the_source_names_become_constants(tmp_path: Path) -> None:
    path = Tensor.of(np.array(b"/home/trainer/words.txt", dtype=object))
    words = files(tmp_path / "words.txt")
    words.root.write_text("yes\n")
    done = frozen(
        tmp_path, Graph([constant("path", path), op("y", "ReadFile", "path")]), assets=words
    )
    run(done)
    assert read_graph(done.folder / "graph.pb")["y"].op == "Const"
    assert not left(done, "freeze.json")["warnings"]


@pytest.mark.parametrize("fed", [False, True])
def test_a_file_whose_path_the_app_has_to_feed_is_named(tmp_path: Path, *, fed: bool) -> None:
    text = Tensor.of(np.array(b"/home/trainer/words.txt", dtype=object))
    graph = Graph([constant("path", text), op("y", "MyTokenizer", "path")])
    meta = pb.MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.ParseFromString(graph_to_bytes(graph))
    meta.asset_file_def.add(filename="words.txt").tensor_info.name = "path:0"
    (tmp_path / "model.meta").write_bytes(meta.SerializeToString())
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/words.txt").write_text("yes\n")
    done = job(
        tmp_path,
        FreezeStage(
            kind="meta_graph",
            graph=files(tmp_path / "model.meta"),
            freeze=Freeze(),
            inputs=(InputSpec("path"),) if fed else (),
            outputs=("y",),
        ),
    )
    run(done)
    assert (done.folder / "files/assets/words.txt").read_text() == "yes\n"
    warnings = left(done, "freeze.json")["warnings"]
    assert len(warnings) == (not fed)
    for warning in warnings:
        assert warning.startswith("'y' (MyTokenizer) reads the file 'words.txt'")
        assert "add 'path' to 'inputs'" in warning


def bottleneck() -> Graph:
    """``y`` of a bottleneck that defaults to features with many weights of an image."""
    weights = constant("w", Tensor.of(np.eye(64, dtype=np.float32)))
    made = op("bottleneck", "PlaceholderWithDefault", "features")
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((-1, 64))}
    last = constant("v", Tensor.of(np.ones((64, 2), np.float32)))
    return Graph(
        [
            placeholder((-1, 64), name="image"),
            weights,
            op("features", "MatMul", "image", "w"),
            structs.replace(made, attrs=attrs),
            last,
            op("y", "MatMul", "bottleneck", "v"),
        ]
    )


def test_an_input_that_another_one_replaces_is_refused(tmp_path: Path) -> None:
    done = frozen(tmp_path, bottleneck(), inputs=[{"name": "image"}, {"name": "bottleneck"}])
    with pytest.raises(InvalidGraphError) as caught:
        run(done)
    assert caught.value.message == (
        "the input 'image' has no effect: the input 'bottleneck' is computed from it, and feeding "
        "that replaces it"
    )
    assert "remove 'bottleneck' from inputs to ship the whole model" in caught.value.hint
    assert caught.value.where == "recipe.yaml:4:1"


def test_inputs_that_cut_off_most_of_the_model_are_warned_of(tmp_path: Path) -> None:
    messages: list[str] = []
    done = frozen(tmp_path, bottleneck(), inputs=[{"name": "bottleneck"}])
    structs.force_setattr(done, "warn", messages.append)
    run(done)
    (warning,) = left(done, "freeze.json")["warnings"]
    assert warning == (
        "the inputs cut off 4,096 of the 4,224 parameters that the outputs depend on; to ship the "
        "whole model, name its first tensors as inputs: image (float32 [-1, 64])"
    )
    assert messages == [f"recipe.yaml:4:1: {warning}"]


@pytest.mark.parametrize("name", ["image", "features"])
def test_inputs_that_cut_off_little_are_not_warned_of(tmp_path: Path, name: str) -> None:
    weights = constant("w", Tensor.of(np.eye(2, dtype=np.float32)))
    nodes = [weights if n.name == "w" else n for n in bottleneck()]
    done = frozen(tmp_path, Graph(nodes), inputs=[{"name": name}])
    run(done)
    assert left(done, "freeze.json")["warnings"] == []


def test_an_input_that_no_output_needs_is_named(tmp_path: Path) -> None:
    graph = Graph([*classifier(), placeholder((3,), name="z"), op("other", "Neg", "z")])
    with pytest.raises(InvalidGraphError, match="no output needs the input 'z'") as caught:
        run(frozen(tmp_path, graph, inputs=[{}, {"name": "z"}]))
    assert caught.value.where == "recipe.yaml:4:1"
    assert "remove it from inputs" in caught.value.hint
