"""The messages: generated from their .proto files, and under names of our own."""

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


def test_every_proto_file_has_its_module() -> None:
    protos = {p.stem for p in FOLDER.glob("*.proto")}
    assert {m.__name__.rpartition(".")[2] for m in MODULES} == {f"{name}_pb2" for name in protos}
    for name in protos:
        # The types that a checker sees are those of the messages.
        declared = re.findall(r"^message (\w+)", (FOLDER / f"{name}.proto").read_text(), re.M)
        typed = re.findall(
            r"^class (\w+)\(_message", (FOLDER / f"{name}_pb2.pyi").read_text(), re.M
        )
        assert sorted(typed) == sorted(declared), name


def test_the_modules_are_what_the_compiler_makes_of_the_files(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    if not TOOL.exists():
        pytest.skip("the generator is not part of an installed package")
    code = "import runpy, sys; sys.exit(runpy.run_path(sys.argv[1])['generate'](sys.argv[2]))"
    # The compiler crashes in a process that has loaded numpy's libraries before it.
    subprocess.run([sys.executable, "-c", code, str(TOOL), str(tmp_path)], check=True)
    made = sorted(p for p in tmp_path.rglob("*_pb2.py*"))
    assert len(made) == 2 * len(MODULES)
    for path in made:
        assert filecmp.cmp(path, FOLDER / path.name, shallow=False), path.name


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_names_are_our_own(module: object) -> None:
    """TensorFlow registers ``tensorflow.*`` in files ``tensorflow/*`` in the same pool."""
    descriptor: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    assert descriptor.package.startswith("mobileprep")
    assert descriptor.name.startswith("mobileprep/")


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_the_descriptors_say_what_the_proto_files_say(module: object) -> None:
    """A look-out for forgotten regeneration where the compiler is not installed."""
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
    """Messages and those inside them, without the entries that map fields stand for."""
    found = []
    for message in listed:  # type: ignore[attr-defined]
        if not message.options.map_entry:
            found += [message, *messages(message.nested_type)]
    return found


def test_our_own_field_is_in_no_tensorflow() -> None:
    """The number marks a constant's place while a graph is read; TensorFlow has it nowhere."""
    fields = graph_pb2.TensorProto.DESCRIPTOR.fields
    assert [f.name for f in fields if f.number > 1000] == ["payload"]
