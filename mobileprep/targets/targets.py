"""Target platforms and devices, and the options of TensorFlow's builds for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from mobileprep.core.declare import Option
from mobileprep.errors import UnsupportedError, UsageError, nearest_hint
from mobileprep.targets.op_classes import ClassCost, ClassRate, class_costs

if TYPE_CHECKING:
    from mobileprep.runtime.accounting.costs import GraphCosts


class Abi(Struct, frozen=True):
    """An ABI of a platform.

    Args:
        name: name in the platform's own tools.
        make: name in the makefile build of TensorFlow 1.15.
        bazel: options of TensorFlow's Bazel builds.
        flags: additional compiler flags in the makefile build.
    """

    name: str
    make: str
    bazel: str
    flags: str = ""


class Platform(Struct, frozen=True):
    """Platform of a target.

    Args:
        name: name in recipes.
        make_target: ``TARGET`` of the makefile build of TensorFlow 1.15; "" is the host.
        abis: ABIs, most common first; empty if the host builds for itself.
        make_variable: the makefile's variable for the ABI, or "".
        protobuf: script in the makefile's directory that builds protobuf, with braces for the ABI.
        nsync: arguments of the script that builds nsync, with braces for the ABI.
        make_words: additional arguments of make, with braces for the makefile's directory.
        link_flags: additional flags for linking libraries.
    """

    name: str
    make_target: str
    abis: tuple[Abi, ...] = ()
    make_variable: str = ""
    protobuf: str = ""
    nsync: str = ""
    make_words: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()

    def abis_named(self, names: Collection[str]) -> tuple[Abi, ...]:
        """Return the ABIs with some names, or all if ``names`` is empty.

        Raises:
            UnsupportedError: the platform does not have an ABI.
        """
        by_name = {abi.name: abi for abi in self.abis}
        for name in names:
            if name not in by_name:
                message = f"{self.name} has no binary interface {name!r}"
                raise UnsupportedError(
                    message, f"choose of {', '.join(by_name)}" if by_name else ""
                )
        return tuple(by_name[name] for name in names) or self.abis


def platform_named(name: str) -> Platform:
    """Return the platform with a name.

    Raises:
        UnsupportedError: the platform is unknown.
    """
    platform = PLATFORMS.get(name)
    if platform is None:
        message = f"unknown platform {name!r}"
        hint = nearest_hint(name, PLATFORMS) or f"choose one of {', '.join(PLATFORMS)}"
        raise UnsupportedError(message, hint)
    return platform


def _android(abi: str) -> Abi:
    options = f"--config=android --cpu={abi} --fat_apk_cpu={abi}"
    return Abi(abi, abi, options)


# For Raspberry Pi 2 and newer. GCC only uses NEON for floats if NEON's rounding is allowed.
_PI_FLAGS: Final = "-mfpu=neon-vfpv4 -funsafe-math-optimizations -ftree-vectorize"

_TABLE = (
    Platform(
        "android",
        "ANDROID",
        tuple(_android(abi) for abi in ("arm64-v8a", "armeabi-v7a", "x86", "x86_64")),
        "ANDROID_ARCH",
        "compile_android_protobuf.sh -c -a {}",
        " -t android -a {}",
        # The library that the app's Java code loads.
        (
            "SUB_MAKEFILES=$PWD/{}/sub_makefiles/android/Makefile.in",
            "all libtensorflow_inference.so",
        ),
        # Devices with Android 15 and newer may have 16 KB pages, and Google Play requires support.
        ("-Wl,-z,max-page-size=16384",),
    ),
    Platform(
        "ios",
        "IOS",
        (
            Abi("arm64", "ARM64", "--config=ios_arm64"),
            Abi("x86_64", "X86_64", "--config=ios_x86_64"),
        ),
        "IOS_ARCH",
        "compile_ios_protobuf.sh",
        " -t ios",
    ),
    Platform(
        "raspberry-pi",
        "PI",
        (
            Abi("armhf", "armhf", "--config=elinux_armhf", _PI_FLAGS),
            Abi("aarch64", "aarch64", "--config=elinux_aarch64"),
        ),
        "PI_ARCH",
    ),
    Platform("linux", "LINUX", protobuf="compile_linux_protobuf.sh"),
    Platform("generic", ""),
)

PLATFORMS: Final = MappingProxyType({platform.name: platform for platform in _TABLE})
"""All platforms, by name."""


_LIST: Final = Path(__file__).with_name("devices.json")
DEVICE_FILES: Final = (".yaml", ".yml")
"""Extensions of profile files, which no device name has."""


class Device(Struct, frozen=True):
    """A device. Its options are the keys of a custom profile.

    Args:
        name: name on the command line and in recipes.
        rates: effective rates of classes of ops, if they were fitted to measurements.
    """

    name: str
    title: Annotated[str, Option("Name for reports. Required.", min_length=1)]
    gflops: Annotated[
        float,
        Option(
            "Billions of floating-point operations a second, in single precision. Required.",
            minimum=1e-6,
            maximum=1e9,
        ),
    ]
    source: Annotated[
        str,
        Option("Where the rate is from: who measured it, and how. Required.", min_length=1),
    ]
    basis: Annotated[
        str,
        Option("Kind of the rate: reached by networks, or a peak that none reaches.", min_length=1),
    ] = "what its profile says"
    url: Annotated[str, Option("Where that was published.")] = ""
    peak: Annotated[
        bool | None,
        Option(
            "Whether the rate is a peak, of which networks reach 10 to 30 %, or one that networks "
            "reach. Default: unknown."
        ),
    ] = None
    error: Annotated[
        float | None,
        Option(
            "Median error of estimates with `rates`, as a share of the measured time.",
            minimum=0,
            maximum=1e6,
        ),
    ] = None
    rates: tuple[ClassRate, ...] = ()

    def seconds(self, costs: Iterable[ClassCost]) -> float:
        """Return the time of a run in seconds: estimated by class, or the minimum without rates."""
        if not self.rates:
            return sum(cost.flops for cost in costs) / (self.gflops * 1e9)
        rates = {rate.kind: rate for rate in self.rates}
        return sum(rates[cost.kind].seconds(cost) for cost in costs if cost.kind in rates)

    @property
    def rate(self) -> str:
        """The rate and its kind, for reports."""
        return self.basis if self.rates else f"{self.gflops:g} GFLOP/s, {self.basis}"


FITTED: Final = "fitted to "
"""Start of the basis of a profile that `mobileprep device fit` writes."""


class DeviceCost(Struct, frozen=True):
    """Cost of one sample on the target's device.

    Args:
        device: title of the device.
        flops: operations of one sample.
        latency_ms: minimum latency at the rate of the device, in milliseconds.
        basis: the rate, and the ops that are not counted.
    """

    device: str
    flops: int
    latency_ms: float
    basis: str

    @property
    def bound(self) -> str:
        """Word for the latency: ``about`` if it was fitted to measurements, else ``at best``."""
        return "about" if self.basis.startswith(FITTED) else "at best"


@lru_cache(maxsize=1)
def devices() -> dict[str, Device]:
    """Return all devices, by name."""
    listed = json.loads(_LIST.read_text(encoding="utf-8"))["devices"]
    return {entry["name"]: Device(**entry) for entry in listed}


def find_device(name: str) -> Device:
    """Return the device with a name.

    Raises:
        UsageError: the device is unknown.
    """
    device = devices().get(name)
    if device is None:
        message = f"unknown device {name!r}"
        hint = nearest_hint(name, devices()) or f"choose one of {', '.join(devices())}"
        raise UsageError(message, hint)
    return device


class LikelyLatency(Struct, frozen=True):
    """Range of the time that one run takes on a device.

    Args:
        low: seconds at the highest assumed rate.
        high: seconds at the lowest assumed rate.
        assumption: the assumed shares of the device's rate, and their reason.
    """

    low: float
    high: float
    assumption: str


_PEAK_SHARES: Final = (0.1, 0.3)
_REACHED_SHARES: Final = (0.5, 1.0)
_UNKNOWN_SHARES: Final = (0.1, 1.0)
_UNKNOWN_ERROR: Final = 0.5


def likely_seconds(device: Device, costs: GraphCosts) -> LikelyLatency:
    """Return the range of times that a run probably takes.

    Profiles that were fitted to measurements give an estimate and its error. Otherwise, shares of
    the rate are assumed: float convolutions usually reach 10 to 30 % of a peak rate. A rate that
    networks reach, such as a rule of thumb, holds for large convolutions; half of it is assumed for
    other networks.
    """
    seconds = device.seconds(class_costs(costs.nodes))
    if device.rates:
        share = _UNKNOWN_ERROR if device.error is None else min(device.error, 1.0)
        assumption = f"{share:.0%} around an estimate {device.basis}"
        return LikelyLatency(seconds * (1 - share), seconds * (1 + share), assumption)
    if device.peak is None:
        (low, high), reason = _UNKNOWN_SHARES, "of the rate, which may be a peak"
    elif device.peak:
        (low, high), reason = _PEAK_SHARES, "of a peak rate, which float convolutions usually reach"
    else:
        (low, high), reason = _REACHED_SHARES, "of a rate that networks reach"
    assumption = f"{low:.0%} to {high:.0%} {reason}"
    return LikelyLatency(seconds / high, seconds / low, assumption)


class MemoryPhase(Struct, frozen=True):
    """A phase of loading or running, with its largest memory in bytes.

    Args:
        name: ``read``, ``parse``, ``prepare``, or ``run``.
        file: pages of the mapped file. They are clean: the system can drop and read them again.
        constants: constants as they are parsed from the file.
        weights: constants in the form that kernels read: copied, folded, or dequantized.
        activations: tensors of one run; for ``tflite``, the arena.
    """

    name: str
    file: int = 0
    constants: int = 0
    weights: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.file + self.constants + self.weights + self.activations

    @property
    def text(self) -> str:
        """The parts that are not empty, in bytes: ``90 constants, 8 activations``."""
        parts = {
            "file": self.file,
            "constants": self.constants,
            "weights": self.weights,
            "activations": self.activations,
        }
        return ", ".join(f"{size:,} {name}" for name, size in parts.items() if size) or "0"


class Memory(Struct, frozen=True):
    """Memory of a model over time.

    Args:
        kind: ``frozen``, ``memmapped``, or ``tflite``.
        phases: phases in order; those before ``run`` are loading.
        load_peak: largest total while loading, in bytes.
        run_peak: largest total during a run, in bytes.
        unknown: nodes whose outputs have unknown sizes, which the numbers omit.
    """

    kind: str
    phases: tuple[MemoryPhase, ...]
    load_peak: int
    run_peak: int
    unknown: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Larger peak of loading and running."""
        return max(self.load_peak, self.run_peak)

    @property
    def timeline(self) -> str:
        """The parts of each phase: ``parse: 90 constants; run: 90 constants, 8 activations``."""
        return "; ".join(f"{phase.name}: {phase.text}" for phase in self.phases)
