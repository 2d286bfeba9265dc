"""Measurements of published models on devices: the files that ``device import`` writes.

A measurement is JSON, ``measurements/TARGET-DEVICE.json``, with the fields of `Measurement`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct, json

from mobileprep.errors import CorruptFileError
from mobileprep.targets.op_classes import ClassCost

FACTS: Final = ("device", "build", "threads", "governor", "date", "sha256", "tool", "target")
"""Keys of the lines ``mobileprep: key=value`` that a benchmark script prints to its log."""
MAX_BYTES: Final = 16 << 20
"""Maximum size of a measurement file."""
VERSION: Final = 1

_Text = Annotated[str, Meta(max_length=1000)]
_Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_Amount = Annotated[float, Meta(ge=0, le=1e15)]


class MeasuredOp(Struct, frozen=True):
    """Time of an op in one run.

    Args:
        op: type of the op as the tool printed it.
        name: name of the op; empty for all ops of a type.
        ms: mean milliseconds.
        cost: cost of the nodes that it computes; None if they are not known.
    """

    op: _Text
    name: _Text
    ms: _Amount
    cost: ClassCost | None = None


class Measurement(Struct, frozen=True, forbid_unknown_fields=True):
    """Measurement of a published model on a device.

    Args:
        target: target of the recipe.
        device: name of the device.
        build: build fingerprint of its system; may be empty, as may the next three.
        governor: state of the clock, such as the frequency governor.
        date: date of the measurement.
        tool: program that measured, and its version.
        threads: number of threads; None if unknown.
        sha256: digest of the model file.
        mean_ms: mean milliseconds of a run.
        std_ms: standard deviation of the runs; None if unknown, as the next three.
        min_ms: milliseconds of the shortest run.
        runs: number of runs.
        memory_mb: memory of the process in megabytes.
        delegates: delegates that LiteRT used.
        costs: cost of a run by class.
        ops: times of ops; empty without a profile.
        version: version of the format.
    """

    target: _Text
    device: _Text
    build: _Text
    governor: _Text
    date: _Text
    tool: _Text
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    mean_ms: Annotated[float, Meta(gt=0, le=1e15)]
    threads: Annotated[int, Meta(ge=1, le=4096)] | None = None
    std_ms: _Amount | None = None
    min_ms: _Amount | None = None
    runs: _Count | None = None
    memory_mb: _Amount | None = None
    delegates: tuple[_Text, ...] = ()
    costs: tuple[ClassCost, ...] = ()
    ops: tuple[MeasuredOp, ...] = ()
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION

    @property
    def basis(self) -> str:
        """Circumstances of the measurement: ``4 threads, governor performance, 2026-05-04``."""
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}" if self.threads else ""
        governor = f"governor {self.governor}" if self.governor else ""
        parts = (threads, governor, self.build, ", ".join(self.delegates), self.tool, self.date)
        return ", ".join(filter(None, parts)) or "nothing else is known"


def measurement_from(data: bytes, where: str) -> Measurement:
    """Read a measurement.

    Raises:
        CorruptFileError: the data is not a measurement.
    """
    try:
        return json.decode(data, type=Measurement)
    except (DecodeError, RecursionError) as error:
        message = f"is not a measurement: {error}"
        raise CorruptFileError(
            message, "write it with 'mobileprep device import'", where
        ) from error


def read_measurement_file(path: Path) -> Measurement:
    """Read a measurement file; raises as ``measurement_from`` does, and if it cannot be read."""
    from mobileprep.core.files import read_bytes  # slow to import, and few recipes need it

    return measurement_from(read_bytes(path, limit=MAX_BYTES), str(path))


def measurement_bytes(measurement: Measurement) -> bytes:
    """Write a measurement as JSON."""
    return json.format(json.encode(measurement), indent=1) + b"\n"
