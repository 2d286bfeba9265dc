"""Logs of benchmarks on devices, and measurements."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

from mobileprep.building.device_measurements import MeasuredOp
from mobileprep.targets.measurements import Measurement, measurement_bytes
from mobileprep.targets.op_classes import ClassCost
from tests.fuzz import seeds
from tests.fuzz.case import Case, fuzz_format
from tests.fuzz.damage import damaged_text

_LOGS = Path(__file__).parents[2] / "inspection" / "device_logs"
_WORDS = (b"Timings", b"avg=", b"std=", b"count=", b"nan", b"inf", b"1e400", b"Run Order", b"ms")
_IMPORT = "device import device.log --recipe recipe.yaml --target phone --device d"
_FIT = ("device fit m.json --out p.yaml", "device fit m.json valid.json --out p.yaml")


@lru_cache(maxsize=1)
def _logs() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(_LOGS.glob("*.log")))


@lru_cache(maxsize=1)
def _measurement() -> bytes:
    cost = ClassCost("convolution", 1, 10**6, 10**5)
    ops = (MeasuredOp("layer", "CONV_2D", 0.5, cost),)
    facts = ("phone", "Pixel 3", "", "", "", "bench", "0" * 64, 0.5, 1)
    return measurement_bytes(Measurement(*facts, costs=(cost,), ops=ops))


@fuzz_format("device log")
def device_log(rng: random.Random) -> Case:
    """The output of a benchmark."""
    text = damaged_text(rng.choice(_logs()), rng, _WORDS)
    files = {**seeds.recipe_files(seeds.PLAIN), "device.log": text}
    return Case(tuple(_IMPORT.split()), files, ("device.log",))


@fuzz_format("measurement")
def measurement(rng: random.Random) -> Case:
    """A measurement file."""
    text = damaged_text(_measurement(), rng, (b"convolution", b"null", b"-1", b"1e999", b"[]"))
    files = {"m.json": text, "valid.json": _measurement()}
    return Case(tuple(rng.choice(_FIT).split()), files, ("m.json",))
