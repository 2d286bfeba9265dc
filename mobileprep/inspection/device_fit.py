"""Fit the rates of a device to measurements of models on it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import UsageError
from mobileprep.targets.measurements import Measurement
from mobileprep.targets.op_classes import (
    HEAVY_CLASSES,
    MAX_RATE,
    MIN_RATE,
    OP_CLASSES,
    ClassCost,
    ClassRate,
    op_class,
)
from mobileprep.targets.targets import FITTED, Device

_Observation = tuple[ClassCost, float]
# Only nodes distinguish convolutions from products: XNNPACK has the same op for both.
_GROUPS: Final = (("convolution", "product"), ("depthwise",), ("activation",), ("other",))
_MAX_ERROR: Final = 1e6
# Sum of the ops' times as a part of the time without profiling. A profiler that ran out of memory
# has only some of the ops.
_COMPLETE: Final = (0.7, 1.5)


def fit_device(measurements: Sequence[Measurement], name: str) -> Device:
    """Fit the effective rates of a device.

    Each class of ops takes ``flops / rate + bytes / bandwidth + nodes * overhead``. The three
    coefficients are the non-negative least squares solution over the measured ops, each weighted
    by the inverse root of its time. A factor for all classes then makes the median total agree with
    the runs without profiling. Measurements without times of ops only determine ``gflops``.

    Args:
        measurements: measurements on one device.
        name: name of the profile.

    Raises:
        UsageError: there are no measurements with costs, or they are of several devices.
    """
    usable = [m for m in measurements if sum(c.flops for c in m.costs)]
    if not usable:
        message = "no measurement has the costs of its model"
        raise UsageError(message, "import a log of a model that is not encrypted")
    titles = sorted({m.device for m in usable})
    if len(titles) > 1:
        message = f"the measurements are of {len(titles)} devices: {', '.join(titles)}"
        raise UsageError(message, "fit a profile for each device")
    device = _fitted(usable, name)
    count = f"{len(usable)} measurement{'s' * (len(usable) != 1)}"
    if len(usable) > 1:
        others = [_fitted([m for m in usable if m is not one], name) for one in usable]
        errors = map(relative_error, others, usable)
        error = float(f"{statistics.median(errors):.2g}")
        stated = f"median error {error:.0%} on models that the fit does not contain"
    else:
        error, stated = None, "error unknown"
    threads = sorted({f"{m.threads} thread{'s' * (m.threads != 1)}" for m in usable if m.threads})
    tools = sorted({m.tool for m in usable if m.tool})
    source = f"mobileprep device fit: {', '.join([*tools, *threads]) or 'measurements'}"
    basis = f"{FITTED}{count}, {stated}"
    return replace(device, basis=basis, source=source, peak=False, error=error)


def relative_error(device: Device, measurement: Measurement) -> float:
    """Return the error of an estimate as a fraction of the measured time."""
    estimate = device.seconds(measurement.costs) * 1e3
    return min(abs(estimate / measurement.mean_ms - 1), _MAX_ERROR)


def _fitted(measurements: Sequence[Measurement], name: str) -> Device:
    speeds = [sum(c.flops for c in m.costs) / m.mean_ms / 1e6 for m in measurements]
    title, speed = measurements[0].device, min(max(statistics.median(speeds), 1e-6), 1e9)
    observations = [pair for m in measurements for pair in _observations(m)]
    coefficients = {kind: _solved(kind, observations) for kind in OP_CLASSES}
    plain = Device(name, title, float(f"{speed:.4g}"), "fit")
    rates = tuple(_rate(kind, solved) for kind, solved in coefficients.items() if any(solved))
    device = replace(plain, rates=rates)
    parts = [device.seconds(m.costs) * 1e3 / m.mean_ms for m in measurements if _is_complete(m)]
    factor = statistics.median(parts) if rates else 0
    if not factor:
        return plain
    scaled = [tuple(c / factor for c in solved) for solved in coefficients.values()]
    rates = tuple(_rate(*pair) for pair in zip(OP_CLASSES, scaled, strict=True) if any(pair[1]))
    return replace(plain, rates=rates)


def _observations(measurement: Measurement) -> Iterator[_Observation]:
    """Yield costs with their times in seconds: of each op, or of a class if ops do not match."""
    totals = {cost.kind: cost for cost in measurement.costs}
    for kinds in _GROUPS if _is_complete(measurement) else ():
        rows = [op for op in measurement.ops if _kind(op.op, op.cost) in kinds]
        matched = [(op.cost, op.ms / 1e3) for op in rows if op.cost is not None]
        if len(matched) == len(rows) and set(kinds) <= set(HEAVY_CLASSES):
            yield from matched
            continue
        seconds = sum(op.ms for op in rows) / 1e3
        flops = sum(totals[kind].flops for kind in kinds if kind in totals)
        for whole in (totals[kind] for kind in kinds if kind in totals):
            yield whole, seconds * (whole.flops / flops if len(kinds) > 1 and flops else 1)


def _is_complete(measurement: Measurement) -> bool:
    part = sum(op.ms for op in measurement.ops) / measurement.mean_ms
    return _COMPLETE[0] <= part <= _COMPLETE[1]


def _kind(op: str, cost: ClassCost | None) -> str:
    return op_class(op) if cost is None else cost.kind


def _solved(kind: str, observations: Iterable[_Observation]) -> tuple[float, float, float]:
    """Return the seconds per operation, per byte, and per node of a class.

    With three unknowns, the best non-negative solution is the best of those in which a subset of
    them is zero and the others are unconstrained.
    """
    rows = [(c.flops, c.bytes, c.nodes, seconds) for c, seconds in observations if c.kind == kind]
    if not rows:
        return (0.0, 0.0, 0.0)
    table = np.array(rows, dtype=np.float64)
    weights = 1 / np.sqrt(np.maximum(table[:, 3], 1e-6))
    scale = np.maximum(table[:, :3].max(axis=0), 1.0)
    costs, times = table[:, :3] / scale * weights[:, None], table[:, 3] * weights
    best, least = np.zeros(3), float(times @ times)
    for size in (1, 2, 3):
        for columns in combinations(range(3), size):
            part = costs[:, columns]
            solution = np.linalg.lstsq(part, times, rcond=None)[0]
            residual = part @ solution - times
            if (solution >= 0).all() and residual @ residual < least * (1 - 1e-9):
                best, least = np.zeros(3), float(residual @ residual)
                best[list(columns)] = solution
    flops, moved, nodes = (best / scale).tolist()
    return flops, moved, nodes


def _rate(kind: str, solved: Sequence[float]) -> ClassRate:
    """Return rates of four digits."""
    flops, moved, nodes = solved
    return ClassRate(
        kind,
        _bounded_rate(flops),
        _bounded_rate(moved),
        min(float(f"{nodes * 1e6:.4g}"), MAX_RATE),
    )


def _bounded_rate(seconds: float) -> float | None:
    """Return the billions a second of four digits; None above those that a profile can have."""
    if seconds * MAX_RATE <= 1e-9:
        return None
    return max(float(f"{1e-9 / seconds:.4g}"), MIN_RATE)


def profile_text(device: Device) -> str:
    """Return the YAML of a profile, which a recipe or ``--device`` can name."""
    names = ("title", "gflops", "source", "basis", "peak", "error")
    values = [(name, getattr(device, name)) for name in names]
    lines = [f"{n}: {json.dumps(v, ensure_ascii=False)}" for n, v in values if v is not None]
    lines += ["rates:"] if device.rates else []
    for rate in device.rates:
        parts = {"gflops": rate.gflops, "gbytes": rate.gbytes, "overhead_us": rate.overhead_us}
        shown = ", ".join(f"{key}: {value}" for key, value in parts.items() if value)
        lines.append(f"  {rate.kind}: {{{shown}}}")
    return "\n".join(lines) + "\n"
