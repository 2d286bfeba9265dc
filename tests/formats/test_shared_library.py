"""ELF libraries."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.shared_library import SharedLibrary, read_library, texts_in
from tests.formats.elf_files import elf_library

pytest.importorskip("elftools")


@pytest.mark.parametrize(
    ("machine", "wide", "name", "abi"),
    [
        (183, True, "EM_AARCH64", "arm64-v8a"),
        (40, False, "EM_ARM", "armeabi-v7a"),
        (3, False, "EM_386", "x86"),
        (62, True, "EM_X86_64", "x86_64"),
        (243, True, "EM_RISCV", ""),
    ],
)
def test_machine_and_alignment_are_read_from_headers(
    tmp_path: Path, machine: int, wide: bool, name: str, abi: str
) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(elf_library(machine=machine, wide=wide, alignment=4096))
    library = read_library(path)
    assert (library.machine, library.abi, library.bits) == (name, abi, 64 if wide else 32)
    assert library.alignments == (1 << 16, 4096)


def test_only_terminated_strings_are_found(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(elf_library(b"\0DepthwiseConv2d\0Relu6\0"))
    names = texts_in(path, read_library(path), ["Relu", "Relu6", "Conv2d", "Conv2D"])
    # A linker merges the string Conv2d into DepthwiseConv2d.
    assert names == {"Relu6", "Conv2d"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"MZ not", "is not an ELF library"),
        (b"\x7fELF", "damaged headers"),
        (elf_library()[:100], "damaged headers|outside of the file"),
        (elf_library()[:-1], "outside of the file"),
        (elf_library()[:56] + struct.pack("<H", 0) + elf_library()[58:], "loads no segment"),
    ],
)
def test_incomplete_library_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=message) as failure:
        read_library(path)
    assert failure.value.where == str(path)


@settings(max_examples=500, deadline=None)
@given(at=st.integers(4, 175), value=st.integers(0, 255))
def test_damaged_header_raises_only_our_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    data = bytearray(elf_library())
    data[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(data)
    try:
        read_library(path)
    except CorruptFileError as error:
        assert error.hint


def test_missing_package_is_reported_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    with pytest.raises(UnsupportedError) as failure:
        read_library(tmp_path / "lib.so")
    assert failure.value.hint == "pip install 'mobileprep[elf]'"


@pytest.mark.parametrize("alignment", [4096, 16384])
def test_alignment_of_a_compiled_library(tmp_path: Path, alignment: int) -> None:
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no compiler for ELF")
    (tmp_path / "a.c").write_text('const char *op(void) { return "Conv2D"; }\n')
    path = tmp_path / "lib.so"
    flags = ["-shared", "-fPIC", f"-Wl,-z,max-page-size={alignment}"]
    subprocess.run([compiler, *flags, tmp_path / "a.c", "-o", path], check=True)
    library = read_library(path)
    assert min(library.alignments) == alignment
    assert texts_in(path, library, ["Conv2D", "Conv3D"]) == {"Conv2D"}


def test_overlapping_segments_are_copied_once(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(b"\0NoOp\0Neg\0" + bytes(1 << 20))
    runs = ((0, 6), *[(2, 1 << 20)] * 20_000, (4, 7))
    library = SharedLibrary("EM_ARM", "", 32, (), runs)
    assert texts_in(path, library, ["NoOp", "Neg", "Add"]) == {"NoOp", "Neg"}
