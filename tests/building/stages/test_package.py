"""The package stage."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.package.run import compressed_size, run_compress, run_package
from mobileprep.building.stages.package.spec import CompressStage, PackageStage
from mobileprep.building.stages.running import asset_folder, write_assets
from mobileprep.core.files import map_file
from mobileprep.errors import ArtifactError, InvalidGraphError, UnsupportedError
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.records import NARROW, text_bytes, unpacked
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph, read_shipped_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.statistics import (
    ChannelStatistics,
    with_statistics,
    without_statistics,
)
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.validation_settings import Quantize, QuantizeRule
from tests.building.stages.jobs import (
    assets,
    classifier,
    files,
    interface,
    job,
    json_output,
    op,
    placeholder,
    slots,
)
from tests.ops.lookup.test_tables import from_file


def package(
    folder: Path,
    graph: Graph | None = None,
    declared: dict[str, Any] | None = None,
    **changes: Any,
) -> Job[PackageStage]:
    parameters = {
        "file": "m.pb",
        "artifact": "frozen",
        "platform": "android",
        "abis": ("arm64-v8a",),
        "registration": (),
        **changes,
    }
    inputs: dict[str, Any] = {
        "graph": graph or classifier(),
        "interface": declared or interface("y"),
    }
    if parameters["artifact"] == "tflite":
        inputs["assets"] = assets(folder)
    return job(folder, PackageStage(**parameters, **slots(*inputs)), **inputs)


def packaged(folder: Path, *arguments: Any, **options: Any) -> Job[PackageStage]:
    """A job that has run."""
    done = package(folder, *arguments, **options)
    run_package(done)
    return done


def package_warnings(done: Job[PackageStage]) -> list[str]:
    """Run a job and return the warnings of its record; check that it prints them."""
    messages: list[str] = []
    run_package(structs.replace(done, warn=messages.append))
    recorded = json_output(done, "package.json")["warnings"]
    assert [message.partition(": ")[2] for message in messages] == recorded
    return messages


def output_files(done: Job[PackageStage]) -> set[str]:
    root = done.folder / "files"
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def test_model_and_its_numbers_are_written(tmp_path: Path) -> None:
    done = packaged(tmp_path)
    data = (done.folder / "files/m.pb").read_bytes()
    assert data == graph_to_bytes(classifier())
    facts = json_output(done, "package.json")
    assert facts["ops"] == {"BiasAdd": 1, "Const": 2, "MatMul": 1, "Placeholder": 1}
    assert facts["model"] == {
        "file": "m.pb",
        "bytes": len(data),
        "nodes": 5,
        "parameters": 12,
        "constants": 2,
        "basis": "",
    }


def test_text_format(tmp_path: Path) -> None:
    path = packaged(tmp_path, file="m.pbtxt", artifact="text").folder / "files/m.pbtxt"
    assert path.read_text().startswith("node {")
    assert [n.name for n in read_graph(path)] == [n.name for n in classifier()]


def test_no_header_without_registration(tmp_path: Path) -> None:
    assert output_files(packaged(tmp_path)) == {"m.pb"}


def test_single_registration_is_written_next_to_the_model(tmp_path: Path) -> None:
    done = packaged(tmp_path, registration=("1.15",))
    assert {"m.pb", "ops_to_register.h"} <= output_files(done)
    assert not any("tensorflow" in name.split("/")[0] for name in output_files(done))
    assert "BiasOp<CPUDevice, float>" in (done.folder / "files/ops_to_register.h").read_text()


def test_each_of_several_registrations_has_a_directory(tmp_path: Path) -> None:
    names = output_files(packaged(tmp_path, registration=("1.15", "2.21")))
    for release in ("1.15", "2.21"):
        assert f"tensorflow-{release}/ops_to_register.h" in names
        fragments = {n for n in names if n.startswith(f"tensorflow-{release}/")}
        assert len(fragments) > 1
    assert "ops_to_register.h" not in names


def test_op_that_the_release_lacks_is_refused(tmp_path: Path) -> None:
    graph = classifier()
    strange = graph.with_nodes([*graph.nodes, op("z", "NoSuchOp", "y")])
    with pytest.raises(UnsupportedError, match="NoSuchOp"):
        run_package(package(tmp_path, strange, registration=("1.15",)))


def test_memory_mapped_model_registers_its_op(tmp_path: Path) -> None:
    large = constant("v", Tensor.of(np.ones((3, 1000), np.float32)))
    doubled = constant("e", Tensor.of(np.ones(5000, np.float32)))
    more = [large, op("z", "MatMul", "x", "v"), doubled, op("twice", "Neg", "e")]
    graph = classifier().with_nodes([*classifier(), *more])
    done = package(tmp_path, graph, artifact="memmapped", registration=("1.15",))
    messages = package_warnings(done)
    path = done.folder / "files/m.pb"
    assert [n.name for n in read_shipped_graph(path) if n.op == "ImmutableConst"] == ["v"]
    assert read_graph(path).nodes == graph.nodes
    assert "ImmutableConstantOp" in (done.folder / "files/ops_to_register.h").read_text()
    facts = json_output(done, "package.json")
    assert facts["model"]["bytes"] == path.stat().st_size
    assert facts["model"]["parameters"] == 12 + 3000 + 5000
    (message,) = messages
    assert message.startswith(f"{done.place('artifact')}: ")
    assert "1 large constants are not mapped, such as 'e'" in message


def test_litert_model(tmp_path: Path) -> None:
    done = packaged(tmp_path, classifier(), artifact="tflite")
    path = done.folder / "files/m.pb"
    assert path.read_bytes()[4:8] == b"TFL3"
    assert json_output(done, "package.json")["model"]["bytes"] == path.stat().st_size


def test_tables_of_asset_files_are_in_the_litert_model(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"yes\nno\n")
    write_assets(tmp_path / "assets.npz", {"words.txt": tmp_path / "words.txt"})
    (tmp_path / "words.txt").unlink()
    graph = from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64)
    inputs = {
        "graph": graph,
        "interface": interface("find", inputs=("words",)),
        "assets": tmp_path / "assets.npz",
    }
    parameters: dict[str, Any] = {"artifact": "tflite", "platform": "ios"}
    stage = PackageStage(file="m.tflite", **parameters, **slots(*inputs))
    done = job(tmp_path, stage, **inputs)
    run_package(done)
    record = read_model(map_file(done.folder / "files/m.tflite"), "m.tflite")
    assert record.subgraphs[0].operators[0].code.builtin == "CALL_ONCE"
    assert text_bytes([b"yes", b"no"]) in list(map(bytes, record.buffers))


def integer_package(folder: Path, tensors: str, quantize: Quantize) -> Job[PackageStage]:
    ranges = folder / "ranges.yaml"
    ranges.write_text(f"version: 1\ntensors:\n{tensors}")
    inputs = {
        "graph": classifier(),
        "interface": interface("y"),
        "ranges": ranges,
        "assets": assets(folder),
    }
    parameters: dict[str, Any] = {"artifact": "tflite", "platform": "android"}
    stage = PackageStage(file="m.tflite", **parameters, quantize=quantize, **slots(*inputs))
    return job(folder, stage, **inputs)


def test_integer_litert_model(tmp_path: Path) -> None:
    tensors = "  x: {min: -1.0, max: 1.0}\n  y: {min: -4.0, max: 4.0}\n"
    done = integer_package(tmp_path, tensors, Quantize("int8", inference_input_type="int8"))
    run_package(done)
    record = read_model(map_file(done.folder / "files/m.tflite"), "m.tflite")
    codes = [o.code.builtin for o in record.subgraphs[0].operators]
    assert codes == ["FULLY_CONNECTED", "DEQUANTIZE"]
    assert json_output(done, "package.json")["warnings"] == []


@pytest.mark.parametrize(
    ("quantize", "kind", "sizes", "most"),
    [
        (Quantize("int4"), "INT4", (40,), 7),
        (Quantize("int4", block_size=32), "INT4", (40, 2), 7),
        (Quantize("weights", bits=3), "INT4", (40,), 3),
        (Quantize("weights", bits=6, granularity="tensor"), "INT8", (1,), 31),
        (
            Quantize("weights", rules=(QuantizeRule(ops=("MatMul",), bits=4, block_size=64),)),
            "INT4",
            (40, 1),
            7,
        ),
        (
            Quantize("int4", rules=(QuantizeRule("nope", bits=2), QuantizeRule("^y$", bits=8))),
            "INT8",
            (40,),
            127,
        ),
        (
            Quantize("int4", block_size=32, rules=(QuantizeRule("y", granularity="channel"),)),
            "INT4",
            (40,),
            7,
        ),
        (Quantize("int4", rules=(QuantizeRule(ops=("MatMul",), mode="float"),)), "FLOAT32", (), 0),
    ],
)
def test_weights_of_a_litert_model_in_few_bits(
    quantize: Quantize, kind: str, sizes: tuple[int, ...], most: int, tmp_path: Path
) -> None:
    weights = np.random.default_rng(3).standard_normal((64, 40)).astype(np.float32)
    graph = Graph(
        [
            placeholder((-1, 64)),
            constant("w", Tensor.of(weights)),
            op("y", "MatMul", "x", "w"),
        ]
    )
    done = package(tmp_path, graph, artifact="tflite", quantize=quantize)
    run_package(done)
    record = read_model(map_file(done.folder / "files/m.pb"), "m.tflite")
    stored = next(t for t in record.subgraphs[0].tensors if t.shape == (40, 64))
    assert stored.type == kind
    if most:
        assert stored.quantization is not None
        assert stored.quantization.scales.shape == sizes
        data = record.buffers[stored.buffer]
        levels = unpacked(data, NARROW.get(kind, 8), stored.shape)
        assert np.abs(levels).max() == most


def test_float_operators_of_an_integer_model_are_reported(tmp_path: Path) -> None:
    done = integer_package(tmp_path, "  y: {min: -4.0, max: 4.0}\n", Quantize("int8"))
    text = "FULLY_CONNECTED 'y' in float: the range of 'x' is not known"
    assert package_warnings(done) == [f"{done.place('quantize')}: {text}"]


def test_litert_model_has_class_names_and_build_files(tmp_path: Path) -> None:
    listed = tmp_path / "classes.txt"
    listed.write_text("zero\none\ntwo\n")
    options = {"artifact": "tflite", "file": "m.tflite", "classes": files(listed)}
    done = packaged(tmp_path, classifier(), **options)
    with zipfile.ZipFile(done.folder / "files/m.tflite") as archive:
        assert archive.read("labels.txt") == b"zero\none\ntwo\n"
    assert output_files(done) == {"m.tflite", "litert_ops.txt", "litert.BUILD", "app.gradle"}
    operators = (done.folder / "files/litert_ops.txt").read_text().splitlines()
    assert operators[2:] == ["FULLY_CONNECTED 1"]


def test_unsupported_op_for_litert_is_refused_with_its_position(tmp_path: Path) -> None:
    done = package(tmp_path, with_erfinv(), artifact="tflite")
    with pytest.raises(UnsupportedError, match="Erfinv") as caught:
        run_package(done)
    assert caught.value.where == done.place("artifact")


def with_erfinv() -> Graph:
    """A graph with an op that LiteRT does not have."""
    nodes = [op("y", "Erfinv", "x") if n.name == "y" else n for n in classifier()]
    return classifier().with_nodes(nodes)


def test_ops_of_the_flex_delegate_are_reported(tmp_path: Path) -> None:
    done = package(tmp_path, with_erfinv(), artifact="tflite", flex=True)
    text = "the app has to link the Flex delegate, for Erfinv"
    assert package_warnings(done) == [f"{done.place('artifact')}: {text}"]


def test_min_runtime_fails_a_package_with_later_operators(tmp_path: Path) -> None:
    done = package(tmp_path, classifier(), artifact="tflite", min_runtime="1.4")
    with pytest.raises(UnsupportedError, match=r"`min_runtime` is 1\.4"):
        run_package(done)
    run_package(package(tmp_path, classifier(), artifact="tflite", min_runtime="2.14"))


def with_pool() -> Graph:
    """A graph with an attribute that TensorFlow 1.15 does not know."""
    idle = {"explicit_paddings": attr.integers(), "ksize": attr.integers(1, 1, 1, 1)}
    pool = op("pool", "MaxPool", "x", padding=attr.string("SAME"), **idle)
    return classifier().with_nodes([*classifier(), pool])


def test_graph_that_a_release_cannot_load_is_refused(tmp_path: Path) -> None:
    done = package(tmp_path, with_pool(), registration=("1.15", "2.21"))
    with pytest.raises(UnsupportedError) as caught:
        run_package(done)
    assert caught.value.where == done.place("registration")
    assert caught.value.message == (
        "TensorFlow 1.15 does not know the attribute `explicit_paddings` of `MaxPool` (node `pool`)"
    )
    assert caught.value.hint.startswith("add `- downgrade` to the end of `transforms:`; ")


def test_allowed_problem_is_a_warning(tmp_path: Path) -> None:
    done = package(tmp_path, with_pool(), registration=("1.15", "2.21"), allow=("MaxPool",))
    (message,) = package_warnings(done)
    assert message.startswith(f"{done.place('registration')}: ")
    assert "`allow` lists `MaxPool`, so the model ships, but" in message
    assert "but TensorFlow 1.15 cannot load it" in message


def scaled(*inputs: str) -> dict[str, Any]:
    """A graph with a second placeholder, and an interface with the inputs."""
    nodes = [placeholder((-1, 3)), placeholder((3,), name="scale"), op("y", "Mul", "x", "scale")]
    return {"graph": Graph(nodes), "declared": interface("y", inputs=inputs)}


def test_output_that_needs_an_undeclared_placeholder_is_refused(tmp_path: Path) -> None:
    run_package(package(tmp_path, **scaled("x", "scale")))
    with pytest.raises(InvalidGraphError) as caught:
        run_package(package(tmp_path, **scaled("x")))
    assert caught.value.message == (
        "the output 'y' needs the placeholder 'scale' (float32), which is not one of the inputs"
    )
    assert caught.value.hint.startswith("add 'scale' to inputs, as the app has to feed it")
    assert caught.value.where == "recipe.yaml:4:1"
    run_package(package(tmp_path, **scaled()))  # no inputs are declared


def test_unused_input_is_a_warning(tmp_path: Path) -> None:
    nodes = [
        placeholder((-1, 3)),
        placeholder((-1, 3), name="z"),
        placeholder((), name="keep_prob"),
        placeholder((), DType.BOOL, name="is_training"),
        op("y", "Neg", "x"),
    ]
    declared = interface("y", inputs=("x", "z", "keep_prob", "is_training"))
    done = packaged(tmp_path, Graph(nodes), declared=declared)
    assert json_output(done, "package.json")["warnings"] == [
        "the prepared model does not use the input 'z'; if the app feeds it, the model ignores it"
    ]


def test_custom_op_is_registered_and_its_source_compiled(tmp_path: Path) -> None:
    source = tmp_path / "fancy.cc"
    source.write_text("// the op\n")
    graph = classifier().with_nodes([*classifier(), op("z", "FancyOp", "y")])
    done = packaged(
        tmp_path,
        graph,
        registration=("1.15",),
        ops={"FancyOp": ("FancyOp<float>", "FancyOp<int32>")},
        op_sources={"op source fancy.cc": files(source, "src/fancy.cc")},
    )
    content = {
        name: (done.folder / "files" / name).read_text() for name in output_files(done) - {"m.pb"}
    }
    assert content["custom_ops/fancy.cc"] == "// the op\n"
    assert '"FancyOp<float>",\n"FancyOp<int32>",' in content["ops_to_register.h"]
    assert 'isequal(op, "FancyOp")' in content["ops_to_register.h"]
    assert "tensorflow/core/kernels/fancy.cc\n" in content["tf_op_files.txt"]
    assert 'CUSTOM_OP_SRCS = [\n    "fancy.cc",\n]' in content["selective_registration.bzl"]
    copy = "# Copy fancy.cc from custom_ops/ to tensorflow/core/kernels/\n"
    assert copy in content["selective_registration.mk"]
    assert "GradleException" in content["app.gradle"]
    assert "tensorflow-android:1.13.1')" not in content["app.gradle"]
    assert "FancyOp" not in content["selective_registration.mk"]
    (registers, not_run) = json_output(done, "package.json")["warnings"]
    assert registers.startswith("the app has to register FancyOp")
    assert not_run.startswith("the model was not run: mobileprep has no kernel for FancyOp")


def test_source_that_would_replace_one_of_tensorflow_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "relu_op.cc"
    source.touch()
    sources = {"op source relu_op.cc": files(source)}
    ops = {"FancyOp": ("FancyOp",)}
    done = package(tmp_path, registration=("1.15",), ops=ops, op_sources=sources)
    with pytest.raises(UnsupportedError, match=r"TensorFlow has a file `relu_op\.cc` too"):
        run_package(done)


def data(size: int) -> bytes:
    return (bytes(i * i % 251 for i in range(1024)) * (size // 1024 + 1))[:size]


def test_record_has_the_size_and_the_compressor(tmp_path: Path) -> None:
    (tmp_path / "model.pb").write_bytes(data(5000))
    stage = CompressStage(compressor="deflate by X 1", **slots("model"))
    done = job(tmp_path, stage, model=tmp_path / "model.pb")
    run_compress(done)
    size = compressed_size([data(5000)])
    assert json_output(done, "compress.json") == {"bytes": size, "compressor": "deflate by X 1"}


def test_size_of_a_graph_without_its_file(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).standard_normal((40, 500)).astype(np.float32)
    node = constant("weights", Tensor.packed(weights))
    statistics = ChannelStatistics(np.zeros(3), np.ones(3))
    graph = Graph([node, with_statistics(constant("bias", Tensor.packed(weights[0])), statistics)])
    stage = CompressStage(compressor="deflate by X 1", **slots("graph"))
    done = job(tmp_path, stage, graph=graph)
    run_compress(done)
    write_graph(tmp_path / "model.pb", without_statistics(graph))
    size = compressed_size([(tmp_path / "model.pb").read_bytes()])
    assert json_output(done, "compress.json")["bytes"] == size


BLOCK = 4 << 20
SLICE = 1 << 20


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, 9 * BLOCK + 5])
def test_size_is_that_of_a_zlib_stream(size: int) -> None:
    whole = data(size)
    stream = b"\x78\x01"
    for at in range(0, size, BLOCK):
        packer = zlib.compressobj(1, wbits=-15, memLevel=9)
        block = whole[at : at + BLOCK]
        stream += b"".join(packer.compress(block[k : k + SLICE]) for k in range(0, BLOCK, SLICE))
        stream += packer.flush(zlib.Z_FULL_FLUSH)
    stream += b"\x03\x00" + zlib.adler32(whole).to_bytes(4, "big")
    assert zlib.decompress(stream) == whole
    assert compressed_size([whole]) == len(stream)


def test_blocks_add_little_to_the_size() -> None:
    whole = np.random.default_rng(3).standard_normal(3 << 20).astype(np.float32).tobytes()
    packer = zlib.compressobj(1, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    single = len(packer.compress(whole) + packer.flush())
    assert abs(compressed_size([whole]) - single) < single / 10_000


@pytest.mark.parametrize("kind", ["dense", "repeating"])
def test_size_is_near_that_of_the_best_zlib_level(kind: str) -> None:
    rng = np.random.default_rng(4)
    weights = rng.standard_normal(1 << 19).astype(np.float32)
    if kind == "repeating":
        weights = weights[:256][rng.integers(0, 256, 1 << 19)]
    whole = weights.tobytes()
    assert compressed_size([whole]) < 1.1 * len(zlib.compress(whole, 9))


def test_size_does_not_depend_on_the_pieces() -> None:
    whole = data(3 * BLOCK)
    pieces = [whole[:7], whole[7 : 2 * BLOCK + 9], whole[2 * BLOCK + 9 :]]
    assert compressed_size(pieces) == compressed_size([whole])


def test_asset_files_round_trip(tmp_path: Path) -> None:
    words, empty = tmp_path / "words.txt", tmp_path / "empty"
    words.write_bytes(b"yes\nno\n\0")
    empty.touch()
    path = tmp_path / "assets.npz"
    write_assets(path, {"more/words.txt": words, "none": empty})
    with asset_folder(path) as folder:
        paths = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
        assert sorted(paths) == ["more/words.txt", "none"]
        assert paths["more/words.txt"].read_bytes() == b"yes\nno\n\0"
    assert not folder.exists()


def test_directory_is_empty_without_assets(tmp_path: Path) -> None:
    with asset_folder(assets(tmp_path)) as folder:
        assert list(folder.iterdir()) == []


def test_asset_name_outside_of_the_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    write_arrays(path, {"../out": np.zeros(1, np.uint8)})
    with pytest.raises(ArtifactError, match="leads out"), asset_folder(path):
        pass
