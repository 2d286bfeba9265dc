"""Logs of benchmarks on devices: ``benchmark_model`` of TensorFlow and of LiteRT, and profilers.

The formats are those of TensorFlow 1.15 and 2.x (``tools/benchmark``, ``StatSummarizer``), of
TensorFlow Lite and LiteRT (``lite/tools/benchmark``, the profile of delegates, and
``litert-benchmark``), and of the GPU delegate (``Per kernel timing``). Lines may have the prefixes
of TensorFlow's log and of ``adb logcat``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.errors import CorruptFileError
from mobileprep.targets.measurements import FACTS

_MAX_BYTES: Final = 64 << 20
_MAX_LINE: Final = 4096
_MAX_ROWS: Final = 100_000
# Tables to read; the others have the same ops, sorted differently.
_TITLES: Final = ("run order", "summary by node type")
# Starts of lines before the tables of a part of a benchmark.
_PHASES: Final = {
    "Profiling Info for Benchmark Initialization": "initialization",
    "Operator-wise Profiling Info": "",
    "Subgraph (index": "subgraph",
    "Delegate internal": "delegate",
}
_NUMBER: Final = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
# Prefixes of iOS, logcat's long, brief, and tag formats, TensorFlow, absl, and TensorFlow Lite.
_PREFIXES: Final = tuple(
    map(
        re.compile,
        (
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}(?:[+-]\d{4})? \S{1,200}\[\d+:\d+\] ",
            r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9} +\d+ +\d+ [VDIWEF] [^:]{0,80}: ?",
            r"[VDIWEF]/[^(]{0,80}\( *\d+\): ?",
            r"(?:[VDIWEF] )?(?:native|tflite|tensorflow|litert) *: ?",
            r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: )?[VDIWEF] \S{1,200}:\d+\] ?",
            r"[IWEF]\d{4} \S{1,40} +\d+ \S{1,200}:\d+\] ?",
            r"[\w/]{1,200}\.(?:cc|h|mm):\d+\]? ",
            r"(?:INFO|WARNING|ERROR|VERBOSE): ",
        ),
    )
)
_RUNS: Final = re.compile(
    rf"count=(\d+)(?: first={_NUMBER})? curr={_NUMBER}"
    rf"(?: min={_NUMBER} max={_NUMBER} avg={_NUMBER} std={_NUMBER})?"
)
_TIMINGS: Final = re.compile(
    r"[Ii]nference timings in us: .{0,200}?"
    rf"(?:no stats|Inference|Inference \(avg\)): {_NUMBER}"
)
_MEMORY: Final = re.compile(
    r"[Mm]emory footprint (?:delta from the start of the tool )?\(MB\): init=\S+ "
    rf"overall={_NUMBER}"
)
_WHEEL: Final = re.compile(rf"Inference \((avg|min|std)\): +{_NUMBER} ms(?: \((\d+) runs\))?")
_DELEGATE: Final = re.compile(r"[Cc]reated TensorFlow Lite (?:(\w+) )?delegate for (\w+)")
_FACT: Final = re.compile(r"mobileprep: ([a-z0-9_]+)=(.{0,500})$")
_KERNEL: Final = re.compile(rf"  (\S.{{0,500}}) - {_NUMBER} ms(?:,|$)")


class OpTime(Struct, frozen=True):
    """Time of an op in one run.

    Args:
        op: type of the op as the tool prints it.
        name: name of the node; empty in a table by type.
        ms: mean milliseconds.
        count: number of ops, more than 1 in a table by type.
    """

    op: str
    name: str
    ms: float
    count: int = 1


class DeviceLog(Struct, frozen=True):
    """Content of a log.

    Args:
        format: program that printed it, ``tensorflow`` or ``litert``.
        mean_ms: mean milliseconds of a run without profiling; the sum of the ops if the log has
            only a profile.
        std_ms: standard deviation, or None if the log does not have it.
        min_ms: shortest run, or None.
        runs: number of runs, or None.
        memory_mb: memory of the process in megabytes, or None.
        delegates: delegates that LiteRT created.
        ops: times of ops in the order of the run; empty without a profile.
        facts: values of ``mobileprep: key=value`` lines.
    """

    format: str
    mean_ms: float
    std_ms: float | None = None
    min_ms: float | None = None
    runs: int | None = None
    memory_mb: float | None = None
    delegates: tuple[str, ...] = ()
    ops: tuple[OpTime, ...] = ()
    facts: Mapping[str, str] = {}


def read_log(path: Path) -> DeviceLog:
    """Read a log.

    Raises:
        CorruptFileError: the file cannot be read, has no timings, or those of several benchmarks.
    """
    text = read_bytes(path, limit=_MAX_BYTES).decode("utf-8", errors="replace")
    return parse_log(text, str(path))


def parse_log(text: str, where: str) -> DeviceLog:
    """Read the text of a log; raises as ``read_log`` does, with ``where`` as the location."""
    lines = [_without_prefixes(line) for line in text.splitlines() if len(line) <= _MAX_LINE]
    ops = _op_times(lines, where)
    mean, std, least, runs = _timings(lines, where)
    if mean is None and not ops:
        message = "has no timings: expected a line `Inference timings in us: ...`"
        hint = "pass the output of benchmark_model, litert-benchmark, or a profiler"
        raise CorruptFileError(message, hint, where)
    if mean is None:
        mean = sum(op.ms for op in ops)
    delegates = dict.fromkeys(
        match[1] or match[2] for line in lines for match in _DELEGATE.finditer(line)
    )
    memory = [_float_of(match[1]) for line in lines if (match := _MEMORY.search(line))]
    is_litert = bool(delegates) or any(
        "Inference (avg)" in line or "[Delegate]" in line or ", Init: " in line for line in lines
    )
    facts: dict[str, str] = {}
    for line in lines:
        match = _FACT.search(line)
        if match and match[1] in FACTS:
            facts.setdefault(match[1], match[2].strip())
    return DeviceLog(
        "litert" if is_litert else "tensorflow",
        mean,
        std,
        least,
        runs,
        memory[-1] if memory else None,
        tuple(delegates),
        tuple(ops),
        facts,
    )


def _float_of(text: str) -> float | None:
    """Return a finite, non-negative number of at most 1e15, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1e15 else None


def _int_of(text: str) -> int:
    """Return a whole number of at most nine digits, or 0."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _without_prefixes(line: str) -> str:
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match:
            line = line[match.end() :]
    return line


_Timings = tuple[float | None, float | None, float | None, int | None]


def _timings(lines: Sequence[str], where: str) -> _Timings:
    """Return mean, deviation, and minimum in milliseconds, and the number of runs."""
    means = [m for line in lines if (m := _TIMINGS.search(line))]
    averages = dict.fromkeys(_float_of(match[1]) for match in means)
    if len(averages) > 1:
        message = f"has the timings of {len(averages)} benchmarks: expected those of one"
        raise CorruptFileError(message, "split it into a file for each benchmark", where)
    if means:
        mean = next(iter(averages))
        # The tool rounds the mean to whole microseconds or to six digits.
        series = [_runs_of(m) for line in lines if (m := _RUNS.search(line))]
        fitting = [s for s in series if mean and s[0] and abs(s[0] - mean) <= 1 + 1e-5 * mean]
        _, std, least, runs = fitting[-1] if fitting else (None, None, None, None)
        return _ms(mean), _ms(std), _ms(least), runs
    wheel = {m[1]: m for line in lines if (m := _WHEEL.match(line))}
    if "avg" in wheel:
        std, least = (_float_of(wheel[k][2]) if k in wheel else None for k in ("std", "min"))
        runs = _int_of(wheel["avg"][3]) if wheel["avg"][3] else None
        return _float_of(wheel["avg"][2]), std, least, runs
    # StatSummarizer's own line. LiteRT's profiler counts nodes in it, and prints no mean.
    profiled = [_RUNS.search(line) for line in lines if line.startswith("Timings (microseconds):")]
    if profiled and profiled[-1] and profiled[-1][6]:
        mean, std, least, runs = _runs_of(profiled[-1])
        return _ms(mean), _ms(std), _ms(least), runs
    return None, None, None, None


def _runs_of(match: re.Match[str]) -> _Timings:
    """Return mean, deviation, and minimum of a line such as ``count=50 first=...``."""
    current, least, mean, std = (_float_of(match[i] or "") for i in (3, 4, 6, 7))
    runs = _int_of(match[1])
    return (current, None, current, runs) if match[6] is None else (mean, std, least, runs)


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def _op_times(lines: Sequence[str], where: str) -> list[OpTime]:
    """Return the ops of a run, with those that a delegate measured in place of the delegate."""
    tables: dict[str, list[OpTime]] = {}
    phase = title = ""
    for number, line in enumerate(lines):
        phase = next((of for start, of in _PHASES.items() if line.startswith(start)), phase)
        if line.startswith("Per kernel timing(") and "delegate" not in tables:
            tables["delegate"] = list(_kernels(lines, number + 1))
        elif line.startswith("====="):
            title = line.strip("= ").lower()
        elif "[node type]" in line.lower() and phase not in ("initialization", "subgraph"):
            key = phase if title == "run order" else f"{phase} {title}"
            if title in _TITLES and key not in tables:
                tables[key] = _rows(lines, number, where)
    ops = tables.get("") or tables.get(" summary by node type", [])
    inner = tables.get("delegate") or tables.get("delegate summary by node type", [])
    if inner:
        ops = [op for op in ops if "delegate" not in op.op.lower()]
        ops = inner + ops
    return [op for op in ops if op.op not in ("_SOURCE", "NoOp", "_Arg", "_Retval")]


def _rows(lines: Sequence[str], first: int, where: str) -> list[OpTime]:
    """Return the rows of the table whose header is a line."""
    header = [name.lower() for name in re.findall(r"\[([^\]]*)\]", lines[first])]
    place = {name: index for index, name in enumerate(header)}
    if "avg ms" not in place:
        return []
    rows: list[tuple[OpTime, int]] = []
    for number, line in enumerate(islice(lines, first + 1, None)):
        if not line.strip():
            break
        if number >= _MAX_ROWS:
            message = f"has a table of more than {_MAX_ROWS:,} rows"
            raise CorruptFileError(message, "is it the log of one benchmark?", where)
        cells = line.strip().split("\t") if "\t" in line else re.split(r" {2,}", line.strip())
        ms = _float_of(cells[place["avg ms"]]) if len(cells) == len(header) else None
        if ms is None:
            continue
        count = _int_of(cells[place["count"]]) if "count" in place else 1
        calls = _int_of(cells[place["times called"]]) if "times called" in place else 1
        name = cells[place["name"]].strip() if "name" in place else ""
        op = cells[0].strip().removeprefix("Delegate/")
        rows.append((OpTime(op, name, ms, max(count, 1)), max(calls, 1)))
    if "name" not in place:
        return [row for row, _ in rows]
    if "\t" in lines[first]:  # TensorFlow prints the mean of a call, and the calls of a run
        return [OpTime(row.op, row.name, row.ms * calls) for row, calls in rows]
    # LiteRT prints all calls, and one row for the ops with the same number in several delegates.
    runs = min((calls for _, calls in rows), default=1)
    return [OpTime(row.op, row.name, row.ms * calls / runs, calls // runs) for row, calls in rows]


def _kernels(lines: Sequence[str], first: int) -> Iterator[OpTime]:
    """Yield the kernels of the GPU delegate from a line on, until another line follows."""
    for line in islice(lines, first, first + _MAX_ROWS):
        match = _KERNEL.match(line)
        ms = _float_of(match[2]) if match else None
        if match is None or ms is None:
            return
        yield OpTime(match[1].split()[0], match[1], ms)
