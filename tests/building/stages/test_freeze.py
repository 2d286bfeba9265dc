"""The freeze stage, and checks of declared inputs and outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.spec import Files, Stage, StageFile
from mobileprep.building.stages.base import Job, stage_function
from mobileprep.building.stages.check.spec import CheckStage
from mobileprep.building.stages.freeze.run import run
from mobileprep.building.stages.freeze.spec import FreezeStage, Interface
from mobileprep.errors import (
    ArtifactError,
    CorruptFileError,
    InternalError,
    InvalidGraphError,
    MobileprepError,
)
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
from tests.building.stages.jobs import (
    NUMPY,
    classifier,
    files,
    job,
    json_output,
    op,
    placeholder,
    slots,
)
from tests.building.stages.kinds import STAGES

# The first version in which an empty shape means a scalar.
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
    """A job for a graph that is already frozen."""
    write_graph(folder / "model.pb", graph)
    stage = FreezeStage(
        kind="frozen",
        graph=files(folder / "model.pb"),
        freeze=Freeze(),
        inputs=tuple(InputSpec(**{"name": "x", **declared}) for declared in inputs),
        outputs=outputs,
        assets=assets,
    )
    return job(folder, stage)


def shape_after(
    folder: Path,
    graph_shape: TensorShape,
    declared: list[int],
    versions: Versions = NEW,
) -> TensorShape:
    nodes = (placeholder(graph_shape), op("y", "Relu", "x"))
    graph = Graph(nodes, versions=versions)
    done = frozen(folder, graph, inputs=[{"shape": tuple(declared)}])
    run(done)
    return read_graph(done.folder / "graph.pb")["x"].attr_shape("shape")


def test_graph_interface_and_facts_are_written(tmp_path: Path) -> None:
    graph = classifier()
    more = op("unused", "Relu", "y")
    done = frozen(tmp_path, graph.with_nodes([*graph.nodes, more]), inputs=[{}])
    run(done)
    assert [n.name for n in read_graph(done.folder / "graph.pb")] == ["x", "w", "b", "product", "y"]
    assert json_output(done, "interface.json") == {
        "inputs": ["x"],
        "outputs": ["y"],
        "init_ops": [],
    }
    facts = json_output(done, "freeze.json")
    assert (facts["nodes"], facts["parameters"], facts["variables"]) == (5, 12, 0)
    assert facts["bytes"] == (done.folder / "graph.pb").stat().st_size
    assert facts["warnings"] == []
    assert json_output(done, "page.json").keys() == {"compressed"}


@pytest.mark.parametrize(
    ("graph_shape", "declared", "expected"),
    [
        ((-1, 3), [-1, 3], (-1, 3)),
        ((-1, 3), [1, 3], (1, 3)),
        ((1, 3), [-1, 3], (1, 3)),
        ((-1, 3), [2, -1], (2, 3)),
        (None, [1, 3], (1, 3)),
        ((), [], ()),
    ],
)
def test_declared_and_graph_shapes_are_merged(
    tmp_path: Path, graph_shape: TensorShape, declared: list[int], expected: TensorShape
) -> None:
    assert shape_after(tmp_path, graph_shape, declared) == expected


@pytest.mark.parametrize(
    ("graph_shape", "declared"), [((-1, 3), [-1, 4]), ((-1, 3), [3]), ((2, 3), [1, 3]), ((), [1])]
)
def test_contradicting_shapes_are_refused(
    tmp_path: Path, graph_shape: TensorShape, declared: list[int]
) -> None:
    with pytest.raises(InvalidGraphError, match="does not fit") as caught:
        shape_after(tmp_path, graph_shape, declared)
    assert str(list(graph_shape or ())) in caught.value.message
    assert str(declared) in caught.value.message
    assert caught.value.where == "recipe.yaml:4:1"


def test_empty_shape_in_an_old_graph_is_unknown(tmp_path: Path) -> None:
    """TensorFlow's shape function of Placeholder does the same up to producer 21."""
    assert shape_after(tmp_path, (), [4000], Versions(producer=21)) == (4000,)


def test_declared_dtype_must_match(tmp_path: Path) -> None:
    run(frozen(tmp_path, classifier(), inputs=[{"dtype": "float32"}]))
    with pytest.raises(InvalidGraphError, match="is float32 in the graph, not uint8") as caught:
        run(frozen(tmp_path, classifier(), inputs=[{"dtype": "uint8"}]))
    assert (caught.value.hint, caught.value.where) == ("write dtype: float32", "recipe.yaml:4:1")


def test_other_inputs_than_placeholders_are_accepted(tmp_path: Path) -> None:
    done = frozen(tmp_path, classifier(), inputs=[{"name": "product", "dtype": "uint8"}])
    run(done)
    assert json_output(done, "interface.json")["inputs"] == ["product"]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"inputs": [{"name": "prodct"}]}, "recipe.yaml:4:1"),
        ({"outputs": ("prodct",)}, "recipe.yaml:5:1"),
    ],
)
def test_misspelled_name_suggests_the_nearest(
    tmp_path: Path, options: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidGraphError, match="prodct") as caught:
        run(frozen(tmp_path, classifier(), **options))
    assert "product" in caught.value.hint
    assert caught.value.where == where


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs_are_refused(tmp_path: Path, name: str) -> None:
    declared = [{"dtype": "float32", "shape": (1, 3)}]
    with pytest.raises(MobileprepError) as caught:
        run(frozen(tmp_path, HOSTILE[name], inputs=declared))
    assert caught.value.exit_code in (4, 5)
    assert caught.value.message


def digits(folder: Path, *, state: str, members: list[str]) -> Job[FreezeStage]:
    """A job for the digits model with a checkpoint state file in ``folder``."""
    checkpoint = folder / "checkpoint"
    checkpoint.write_text(f'model_checkpoint_path: "{state}"')
    paths = [checkpoint, *(folder / name for name in members)]
    stage = FreezeStage(
        kind="graph",
        graph=files(DIGITS / "graph.pbtxt"),
        checkpoint=Files("checkpoint", checkpoint, tuple(StageFile(p.name, p) for p in paths)),
        freeze=Freeze(),
        inputs=(),
        outputs=("probabilities",),
    )
    return job(folder, stage)


def test_checkpoint_next_to_the_state_file_is_read(tmp_path: Path) -> None:
    names = [path.name for path in DIGITS.glob(f"{CHECKPOINT}.*")]
    for name in names:
        shutil.copy(DIGITS / name, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{CHECKPOINT}.index").write_bytes(b"from a later training run")
    run(digits(tmp_path, state=str(tmp_path / "elsewhere" / CHECKPOINT), members=names))


def test_checkpoint_that_is_not_an_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="is not next to it") as caught:
        run(digits(tmp_path, state=str(DIGITS / CHECKPOINT), members=[]))
    assert caught.value.where == str(tmp_path / "checkpoint")


def test_declared_asset_files_become_constants(tmp_path: Path) -> None:
    path = Tensor.of(np.array(b"/home/trainer/words.txt", dtype=object))
    words = files(tmp_path / "words.txt")
    words.root.write_text("yes\n")
    graph = Graph([constant("path", path), op("y", "ReadFile", "path")])
    done = frozen(tmp_path, graph, assets=words)
    run(done)
    assert read_graph(done.folder / "graph.pb")["y"].op == "Const"
    assert not json_output(done, "freeze.json")["warnings"]


@pytest.mark.parametrize("fed", [False, True])
def test_asset_file_whose_path_must_be_fed_is_reported(tmp_path: Path, *, fed: bool) -> None:
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
    warnings = json_output(done, "freeze.json")["warnings"]
    assert len(warnings) == (not fed)
    for warning in warnings:
        assert warning.startswith("'y' (MyTokenizer) reads the file 'words.txt'")
        assert "add 'path' to 'inputs'" in warning


def bottleneck_model() -> Graph:
    """A bottleneck input that defaults to features of an image."""
    weights = constant("w", Tensor.of(np.eye(64, dtype=np.float32)))
    bottleneck = op("bottleneck", "PlaceholderWithDefault", "features")
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((-1, 64))}
    last = constant("v", Tensor.of(np.ones((64, 2), np.float32)))
    return Graph(
        [
            placeholder((-1, 64), name="image"),
            weights,
            op("features", "MatMul", "image", "w"),
            structs.replace(bottleneck, attrs=attrs),
            last,
            op("y", "MatMul", "bottleneck", "v"),
        ]
    )


def test_input_that_another_input_replaces_is_refused(tmp_path: Path) -> None:
    done = frozen(tmp_path, bottleneck_model(), inputs=[{"name": "image"}, {"name": "bottleneck"}])
    with pytest.raises(InvalidGraphError) as caught:
        run(done)
    assert caught.value.message == (
        "the input 'image' has no effect: the input 'bottleneck' is computed from it, and feeding "
        "that replaces it"
    )
    assert "remove 'bottleneck' from inputs to ship the whole model" in caught.value.hint
    assert caught.value.where == "recipe.yaml:4:1"


def test_inputs_that_cut_off_most_of_the_model_are_a_warning(tmp_path: Path) -> None:
    messages: list[str] = []
    done = frozen(tmp_path, bottleneck_model(), inputs=[{"name": "bottleneck"}])
    structs.force_setattr(done, "warn", messages.append)
    run(done)
    (warning,) = json_output(done, "freeze.json")["warnings"]
    assert warning == (
        "the inputs cut off 4,096 of the 4,224 parameters that the outputs depend on; to ship the "
        "whole model, name its first tensors as inputs: image (float32 [-1, 64])"
    )
    assert messages == [f"recipe.yaml:4:1: {warning}"]


@pytest.mark.parametrize("name", ["image", "features"])
def test_inputs_that_cut_off_little_are_accepted(tmp_path: Path, name: str) -> None:
    weights = constant("w", Tensor.of(np.eye(2, dtype=np.float32)))
    nodes = [weights if n.name == "w" else n for n in bottleneck_model()]
    done = frozen(tmp_path, Graph(nodes), inputs=[{"name": name}])
    run(done)
    assert json_output(done, "freeze.json")["warnings"] == []


def test_unused_input_is_refused(tmp_path: Path) -> None:
    graph = Graph([*classifier(), placeholder((3,), name="z"), op("other", "Neg", "z")])
    with pytest.raises(InvalidGraphError, match="no output needs the input 'z'") as caught:
        run(frozen(tmp_path, graph, inputs=[{}, {"name": "z"}]))
    assert caught.value.where == "recipe.yaml:4:1"
    assert "remove it from inputs" in caught.value.hint


STAGE = CheckStage(
    step="s", engine=NUMPY, **slots("graph", "interface", "assets", "samples", "expected")
)


@pytest.mark.parametrize("kind", STAGES)
def test_every_stage_has_a_function(kind: type[Stage]) -> None:
    assert callable(stage_function(kind))


class _UnknownStage(CheckStage, frozen=True, kw_only=True):
    stage_name: ClassVar[str] = "unknown"


def test_unregistered_stage_is_an_internal_error() -> None:
    _UnknownStage.__module__ = CheckStage.__module__
    with pytest.raises(InternalError, match="has no function for the stage 'unknown'"):
        stage_function(_UnknownStage)


def test_json_is_sorted_and_finite(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    check_job.write_record("interface.json", Interface(("x",), ()))
    text = '{\n "init_ops": [],\n "inputs": [\n  "x"\n ],\n "outputs": []\n}\n'
    assert (check_job.folder / "interface.json").read_text() == text
    with pytest.raises(ValueError, match="not JSON compliant"):
        check_job.write_record("engine.json", EngineRecord("numpy", float("nan")))


def test_outputs_outside_of_the_directory_are_refused(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    assert check_job.output("files/a") == (tmp_path / "work" / "files" / "a").resolve()
    with pytest.raises(ArtifactError, match="leads out"):
        check_job.output("../a")


def test_location_defaults_to_the_task(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    assert check_job.place("outputs") == "recipe.yaml:5:1"
    assert check_job.place("artifact") == "r/task"


def test_interface_round_trip(tmp_path: Path) -> None:
    model_interface = Interface(("x",), ("y", "z:1"), ("init",))
    assert model_interface.retained == ("y", "z:1", "init")
    writer = job(tmp_path, STAGE)
    writer.write_record("interface.json", model_interface)
    reader = job(tmp_path, STAGE, interface=json_output(writer, "interface.json"))
    assert reader.record(Interface, STAGE.interface) == model_interface
