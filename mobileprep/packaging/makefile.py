"""What the makefile build of TensorFlow 1.15 takes, by platform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mobileprep.packaging.targets import Abi, Platform

MAKEFILE: Final = "tensorflow/contrib/makefile"
"""Its folder in the sources of TensorFlow 1.15."""


def makefile_fragment(
    platform: Platform,
    abis: Sequence[Abi],
    compiler_flags: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
) -> str:
    """A makefile to read before TensorFlow's own: target, architecture, flags, and how to run it.

    Args:
        platform: what is built for.
        abis: its binary interfaces to build for; the first is built where none is named.
        compiler_flags: what selects the kernels.
        before: comments that come first, below the title.
        after: comments that come last.
    """
    return text_of(
        [
            f"# TensorFlow 1.15 for {platform.name}, with the kernels of the model only.",
            *before,
            f"# Copy tf_op_files.txt to {MAKEFILE}/, then build in TensorFlow's folder:",
            *(f"#   {command}" for command in dict.fromkeys(_commands(platform, abis))),
            *([f"override TARGET := {platform.make_target}"] if platform.make_target else []),
            *_architecture(platform, abis),
            "# The optimization level is yours: make ... OPTFLAGS=-Os",
            "OPTFLAGS ?= -O2",
            f"override OPTFLAGS += {' '.join([*compiler_flags, *_own_flags(platform)])}",
            *([f"%.so: LDFLAGS += {' '.join(platform.link_flags)}"] * bool(platform.link_flags)),
            "ANDROID_TYPES := -D__ANDROID_TYPES_FULL__",
            *after,
        ]
    )


def text_of(lines: Iterable[str]) -> str:
    """A file of these lines."""
    return "\n".join(lines) + "\n"


def _commands(platform: Platform, abis: Sequence[Abi]) -> Iterator[str]:
    """The commands of the build; those that do for several binary interfaces come again."""
    nsync = f"{MAKEFILE}/compile_nsync.sh"
    yield f"{MAKEFILE}/download_dependencies.sh"
    yield f"export HOST_NSYNC_LIB=$({nsync})"
    for name, made in [(abi.name, abi.make) for abi in abis] or [("", "")]:
        if platform.protobuf:
            yield f"{MAKEFILE}/{platform.protobuf.format(name)}"
        elif platform.make_target:
            made_from = "./autogen.sh && ./configure && make && sudo make install"
            yield f"(cd {MAKEFILE}/downloads/protobuf && {made_from})"
        yield f"export TARGET_NSYNC_LIB=$({nsync}{platform.nsync.format(name)})"
        # On the device itself; a makefile that cross-compiles finds out its own host.
        words = ["HOST_OS=PI"] if platform.make_target == "PI" else []
        words += [f"{platform.make_variable}={made}"] if made else []
        words += [word.format(MAKEFILE) for word in platform.make_words]
        command = ("make", "-f PATH/selective_registration.mk", f"-f {MAKEFILE}/Makefile", *words)
        yield " ".join(command)


def _architecture(platform: Platform, abis: Sequence[Abi]) -> Iterator[str]:
    """What is built where the command line names no binary interface."""
    if not abis:
        return
    variable = platform.make_variable
    # The makefile itself assigns one for iOS, which only an override outlasts.
    yield f"ifneq ($(origin {variable}),command line)"
    yield f"override {variable} := {abis[0].make}"
    yield "endif"
    yield from (f"{variable}_FLAGS_{abi.make} := {abi.flags}" for abi in abis if abi.flags)


def _own_flags(platform: Platform) -> list[str]:
    """The flags of the binary interface in question, where one has any."""
    variable = platform.make_variable
    return [f"$({variable}_FLAGS_$({variable}))"] if any(abi.flags for abi in platform.abis) else []
