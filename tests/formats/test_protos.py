"""Generated protobuf modules."""

from __future__ import annotations

import filecmp
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

import mobileprep.formats.protos as package
from mobileprep.formats.protos import (
    checkpoint_pb2,
    graph_pb2,
    graph_text_pb2,
    memmapped_pb2,
    saved_model_pb2,
)

FOLDER = Path(package.__file__).parent
TOOL = FOLDER.parents[2] / "tools" / "generate_protos.py"
MODULES = [checkpoint_pb2, graph_pb2, graph_text_pb2, memmapped_pb2, saved_model_pb2]


def test_every_proto_file_has_a_module() -> None:
    protos = {p.stem for p in FOLDER.glob("*.proto")}
    assert {m.__name__.rpartition(".")[2] for m in MODULES} == {f"{name}_pb2" for name in protos}
    for name in protos:
        # The type stubs declare the same messages.
        declared = re.findall(r"^message (\w+)", (FOLDER / f"{name}.proto").read_text(), re.M)
        typed = re.findall(
            r"^class (\w+)\(_message", (FOLDER / f"{name}_pb2.pyi").read_text(), re.M
        )
        assert sorted(typed) == sorted(declared), name


def test_modules_match_the_compiler_output(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    if not TOOL.exists():
        pytest.skip("the generator is not part of an installed package")
    code = "import runpy, sys; sys.exit(runpy.run_path(sys.argv[1])['generate'](sys.argv[2]))"
    # The compiler crashes in a process that has already loaded NumPy.
    subprocess.run([sys.executable, "-c", code, str(TOOL), str(tmp_path)], check=True)
    paths = sorted(p for p in tmp_path.rglob("*_pb2.py*"))
    assert len(paths) == 2 * len(MODULES)
    for path in paths:
        assert filecmp.cmp(path, FOLDER / path.name, shallow=False), path.name


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_messages_do_not_clash_with_tensorflow(module: object) -> None:
    """TensorFlow registers ``tensorflow.*`` in files ``tensorflow/*`` in the same pool."""
    descriptor: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    assert descriptor.package.startswith("mobileprep")
    assert descriptor.name.startswith("mobileprep/")


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_descriptors_match_the_proto_files(module: object) -> None:
    """Detect missing regeneration even if the compiler is not installed."""
    descriptor: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    source = (FOLDER.parents[2] / descriptor.name).read_text()
    names = {field.name for message in messages(file.message_type) for field in message.field}
    names |= {v.name for e in file.enum_type for v in e.value}
    for name in names:
        assert f" {name} = " in source, name
    assert source.count(" = ") >= len(names)


def messages(
    listed: object,
) -> list[descriptor_pb2.DescriptorProto]:
    """Return messages and their nested messages, without the entries of map fields."""
    result = []
    for message in listed:  # type: ignore[attr-defined]
        if not message.options.map_entry:
            result += [message, *messages(message.nested_type)]
    return result


def test_internal_field_number_is_unused_in_tensorflow() -> None:
    fields = graph_pb2.TensorProto.DESCRIPTOR.fields
    assert [f.name for f in fields if f.number > 1000] == ["payload"]
