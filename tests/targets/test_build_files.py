"""Fragments for TensorFlow's own builds."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.targets.build_files import COMPILER_FLAGS, build_fragments, header_folder
from mobileprep.targets.op_lists import DEFAULT_OPS, OpKernel
from mobileprep.targets.targets import PLATFORMS

OPS = (*DEFAULT_OPS, OpKernel("Conv2D", "Conv2DOp<CPUDevice, float>"), OpKernel("Lgamma", "x"))
RELEASES = ["1.15", "2.21"]


def lists_of(fragment: str) -> dict[str, list[str]]:
    """The lists that a .bzl file assigns; their syntax is also Python."""
    module = ast.parse(fragment)
    assigned = [part for part in module.body if isinstance(part, ast.Assign)]
    return {part.targets[0].id: ast.literal_eval(part.value) for part in assigned}  # type: ignore[attr-defined]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_files_of_each_platform_and_release(release: str, platform: str) -> None:
    fragments = build_fragments(OPS, release, platform)
    makefile = {"selective_registration.mk", "tf_op_files.txt"} if release == "1.15" else set()
    bazel = {"selective_registration.bazelrc", "selective_registration.bzl"}
    assert fragments.keys() == bazel | makefile
    assert all(text.endswith("\n") and "\n\n\n" not in text for text in fragments.values())
    assert fragments == build_fragments(reversed(OPS), release, platform)


@pytest.mark.parametrize("release", RELEASES)
def test_bazelrc_has_comments_and_flags(release: str) -> None:
    lines = build_fragments(OPS, release, "android")["selective_registration.bazelrc"].splitlines()
    options = [line for line in lines if not line.startswith("#")]
    compiled = [f"build:selective --copt={flag}" for flag in COMPILER_FLAGS]
    assert options == [*compiled, "build:selective --linkopt=-Wl,-z,max-page-size=16384"]
    for platform in ("ios", "raspberry-pi", "linux", "generic"):
        other = build_fragments(OPS, release, platform)["selective_registration.bazelrc"]
        assert "--linkopt" not in other
    comments = "\n".join(line for line in lines if line.startswith("#"))
    assert f"{header_folder(release)}/" in comments
    assert "--cpu=armeabi-v7a" in comments


@pytest.mark.parametrize("release", RELEASES)
def test_bzl_lists_retained_and_added_kernels(release: str) -> None:
    lists = lists_of(build_fragments(OPS, release, "linux")["selective_registration.bzl"])
    assert {"conv_ops.cc", "no_op.cc", "sendrecv_ops.cc", "function_ops.cc"} <= set(
        lists["KERNEL_SRCS"]
    )
    assert "relu_op.cc" not in lists["KERNEL_SRCS"]
    assert lists["ADDED_KERNEL_SRCS"] == ["cwise_op_lgamma.cc"]


@pytest.mark.parametrize("name", ["selective_registration.bzl", "selective_registration.mk"])
def test_every_file_has_a_reason(name: str) -> None:
    text = build_fragments((*OPS, OpKernel("Cast", "CpuCastOp")), "1.15", "ios")[name]
    assert "needed by Cast: CpuCastOp\n" in text
    assert "needed by cast_op.cc\n" in text
    assert "needed by Conv2D: Conv2DOp<CPUDevice, float>\n" in text
    assert "needed by _Recv: RecvOp, _Send: SendOp\n" in text
    assert "any kernel may need it\n" in text


def test_ops_without_a_known_file_are_listed() -> None:
    ops = [*OPS, OpKernel("Frobnicate", "FrobnicateOp")]
    for name, text in build_fragments(ops, "1.15", "ios").items():
        assert ("Frobnicate" in text) == (name.endswith((".bzl", ".mk")))


def test_makefile_list_keeps_files_other_than_kernels() -> None:
    lines = build_fragments(OPS, "1.15", "android")["tf_op_files.txt"].splitlines()
    assert "tensorflow/core/ops/math_ops.cc" in lines
    assert "tensorflow/core/kernels/conv_ops.cc" in lines
    assert "tensorflow/core/kernels/cwise_op_lgamma.cc" in lines
    assert "tensorflow/core/kernels/softmax_op.cc" not in lines
    assert len(set(lines)) == len(lines)
    assert all(line.startswith("tensorflow/") and line.endswith(".cc") for line in lines)


MAKEFILE = """\
ifeq ($(ANDROID_TYPES),)
ANDROID_TYPES := -D__ANDROID_TYPES_SLIM__
endif
TARGET := HOST
OPTFLAGS := -O2
ifneq ($(TARGET),ANDROID)
OPTFLAGS += -march=native
endif
CXXFLAGS := --std=c++14 $(OPTFLAGS)
LDFLAGS := -L/usr/local/lib
ifeq ($(TARGET),ANDROID)
ifndef ANDROID_ARCH
ANDROID_ARCH := armeabi-v7a
endif
LDFLAGS := -fPIE
endif
ifeq ($(TARGET),IOS)
IOS_ARCH := X86_64
endif
all app.so:
\t@echo $(TARGET) $(ANDROID_ARCH)$(IOS_ARCH)$(PI_ARCH) $(CXXFLAGS) $(ANDROID_TYPES) $(LDFLAGS)
"""
"""The assignments of the makefile of TensorFlow 1.15."""


def run_make(
    folder: Path,
    platform: str,
    *words: str,
    abis: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    first: str = "",
) -> list[str]:
    """Run make with the fragment and return the words that the makefile prints.

    Args:
        env: environment variables.
        first: the content of a user makefile that make reads before the fragment.
    """
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    fragment = folder / "selective_registration.mk"
    fragment.write_text(build_fragments(OPS, "1.15", platform, abis)[fragment.name])
    makefile = folder / "Makefile"
    makefile.write_text(MAKEFILE)
    own = folder / "own.mk"
    own.write_text(first)
    files = [word for file in (own, fragment, makefile) for word in ("-f", str(file))]
    command = ["make", "-s", *files, *words]
    environ = {**os.environ, **(env or {})}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert not done.stderr
    return done.stdout.split()


FLAGS = ["--std=c++14", "-O2", *COMPILER_FLAGS]
NEON = ["-mfpu=neon-vfpv4", "-funsafe-math-optimizations", "-ftree-vectorize"]
REST = ["-D__ANDROID_TYPES_FULL__", "-L/usr/local/lib"]


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("android", ["ANDROID", "arm64-v8a", *FLAGS, "-D__ANDROID_TYPES_FULL__", "-fPIE"]),
        ("ios", ["IOS", "ARM64", *FLAGS, *REST]),
        ("raspberry-pi", ["PI", "armhf", *FLAGS, *NEON, *REST]),
        ("linux", ["LINUX", *FLAGS, *REST]),
        ("generic", ["HOST", *FLAGS, *REST]),
    ],
)
def test_make_reads_the_fragment_before_the_makefile(
    tmp_path: Path, platform: str, expected: list[str]
) -> None:
    assert run_make(tmp_path, platform) == expected


OWN_FLAGS: dict[str, dict[str, Any]] = {
    "command line": {"words": ["OPTFLAGS=-Os -g"]},
    "environment": {"env": {"OPTFLAGS": "-Os -g"}},
    "environment with make -e": {"words": ["-e"], "env": {"OPTFLAGS": "-Os -g"}},
    "makefile": {"first": "OPTFLAGS = -Os -g\n"},
    "makefile with :=": {"first": "OPTFLAGS := -Os\nOPTFLAGS += -g\n"},
    "command line before the others": {
        "words": ["OPTFLAGS=-Os -g"],
        "env": {"OPTFLAGS": "-O1"},
        "first": "OPTFLAGS = -O3\n",
    },
}


@pytest.mark.parametrize("source", OWN_FLAGS)
@pytest.mark.parametrize("platform", ["android", "raspberry-pi", "linux"])
def test_make_appends_to_user_optimization_flags(
    tmp_path: Path, platform: str, source: str
) -> None:
    own = dict(OWN_FLAGS[source])
    output = run_make(tmp_path, platform, *own.pop("words", []), **own)
    neon = NEON if platform == "raspberry-pi" else []
    flags = ["-Os", "-g", *COMPILER_FLAGS, *neon]
    at = output.index("--std=c++14") + 1
    assert output[at : at + len(flags)] == flags
    assert not {"-O1", "-O2", "-O3", "-march=native"} & set(output)


def test_command_line_selects_the_binary_interface(tmp_path: Path) -> None:
    assert run_make(tmp_path, "android", "ANDROID_ARCH=x86")[1] == "x86"
    assert run_make(tmp_path, "ios", "IOS_ARCH=X86_64")[1] == "X86_64"
    assert run_make(tmp_path, "raspberry-pi", "PI_ARCH=aarch64") == ["PI", "aarch64", *FLAGS, *REST]


def test_first_binary_interface_of_the_recipe_is_the_default(tmp_path: Path) -> None:
    assert run_make(tmp_path, "android", abis=("x86", "x86_64"))[1] == "x86"
    assert run_make(tmp_path, "ios", abis=("x86_64",))[1] == "X86_64"
    assert run_make(tmp_path, "raspberry-pi", abis=("aarch64",)) == ["PI", "aarch64", *FLAGS, *REST]


def test_android_libraries_are_linked_for_16_kb_pages(tmp_path: Path) -> None:
    assert run_make(tmp_path, "android", "app.so")[-2:] == ["-fPIE", "-Wl,-z,max-page-size=16384"]
    assert run_make(tmp_path, "raspberry-pi", "app.so")[-1] == "-L/usr/local/lib"


@pytest.mark.parametrize(
    ("platform", "abis", "parts"),
    [
        ("android", ("x86",), ["-a x86", "-t android -a x86", "ANDROID_ARCH=x86 SUB_MAKEFILES="]),
        ("ios", ("arm64",), ["compile_ios_protobuf.sh", "-t ios)", "IOS_ARCH=ARM64"]),
        ("raspberry-pi", ("armhf",), ["./configure", "_nsync.sh)", "HOST_OS=PI PI_ARCH=armhf"]),
    ],
)
def test_commands_select_the_binary_interfaces(
    platform: str, abis: tuple[str, ...], parts: list[str]
) -> None:
    fragments = build_fragments(OPS, "1.15", platform, abis)
    lines = fragments["selective_registration.mk"].splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    commands = lines[end - 3 : end]
    assert all(part in command for part, command in zip(parts, commands, strict=True))
    assert all(abi in fragments["selective_registration.bazelrc"] for abi in abis) == (
        platform != "raspberry-pi"
    )


def test_unknown_binary_interface_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ios has no binary interface 'x86'") as caught:
        build_fragments(OPS, "1.15", "ios", ("x86",))
    assert caught.value.hint == "choose of arm64, x86_64"


def test_unknown_platforms_and_releases_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="unknown platform 'symbian'"):
        build_fragments(OPS, "1.15", "symbian")
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4"):
        build_fragments(OPS, "1.4", "android")
