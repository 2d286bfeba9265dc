"""The platforms that targets name, and how TensorFlow's own builds are told to build for them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mobileprep.errors import UnsupportedError, nearest_hint


@dataclass(frozen=True, slots=True)
class Abi:
    """One binary interface of a platform.

    Args:
        name: as the platform's own tools spell it.
        make: the variable that the makefile build of TensorFlow 1.15 takes for it, or "".
        bazel: the options that TensorFlow's Bazel builds take for it.
    """

    name: str
    make: str
    bazel: str


@dataclass(frozen=True, slots=True)
class Platform:
    """What a target runs on.

    Args:
        name: as recipes spell it.
        make_target: ``TARGET`` of the makefile build of TensorFlow 1.15; "" is the host.
        abis: its binary interfaces, the commonest first; none where the host builds for itself.
    """

    name: str
    make_target: str
    abis: tuple[Abi, ...] = ()


def platform_named(name: str) -> Platform:
    """The platform of that name.

    Raises:
        UnsupportedError: there is none.
    """
    found = PLATFORMS.get(name)
    if found is None:
        message = f"there is no platform {name!r}"
        hint = nearest_hint(name, PLATFORMS) or f"choose one of {', '.join(PLATFORMS)}"
        raise UnsupportedError(message, hint)
    return found


def _android(abi: str) -> Abi:
    options = f"--config=android --cpu={abi} --fat_apk_cpu={abi}"
    return Abi(abi, f"ANDROID_ARCH={abi}", options)


_TABLE = (
    Platform(
        "android",
        "ANDROID",
        tuple(_android(abi) for abi in ("arm64-v8a", "armeabi-v7a", "x86", "x86_64")),
    ),
    Platform(
        "ios",
        "IOS",
        (
            Abi("arm64", "IOS_ARCH=ARM64", "--config=ios_arm64"),
            Abi("x86_64", "IOS_ARCH=X86_64", "--config=ios_x86_64"),
        ),
    ),
    Platform(
        "raspberry-pi",
        "PI",
        (
            Abi("armhf", "", "--config=elinux_armhf"),
            Abi("aarch64", "", "--config=elinux_aarch64"),
        ),
    ),
    Platform("linux", "LINUX"),
    Platform("generic", ""),
)

PLATFORMS: Final = MappingProxyType({platform.name: platform for platform in _TABLE})
"""All platforms, by name."""
