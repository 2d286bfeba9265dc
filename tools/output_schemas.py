"""JSON Schemas of ``--json`` output, generated from its types.

``make_schemas.py`` writes them. Output that is not a dataclass of mobileprep has a type here. The
docstrings of the types become descriptions in the schemas.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

from mobileprep.building.cache import CacheCleared, CacheCollected, CacheInfo, CacheVerified
from mobileprep.building.calibrating import CalibrationResult
from mobileprep.building.choosing import Candidates
from mobileprep.building.doctor import Doctor, LibraryFacts
from mobileprep.building.fit import TargetCheck
from mobileprep.building.quantization_debugging import QuantizationDamage
from mobileprep.building.report.collect import Report
from mobileprep.building.report.comparison.model import Comparison
from mobileprep.building.verdicts import Verdict
from mobileprep.building.verify import VerifiedFile
from mobileprep.cli.explain import Explanation
from mobileprep.core.declare import DIALECT, Schema
from mobileprep.graph.compare import GraphDifference
from mobileprep.inspection.benchmark_runs import TimeShare
from mobileprep.inspection.diagnosis import Diagnosis
from mobileprep.inspection.differing import ModelDifference
from mobileprep.inspection.summarizing import Summary
from mobileprep.targets.migration.survey import MigrationResult

Finite: TypeAlias = float | str
"""A number, or the string ``inf``, ``-inf``, or ``nan``, which are not numbers in JSON."""


class JudgedStep(Verdict, frozen=True):
    """A verdict, and whether the step is up to date."""

    fresh: bool


class ValidRecipe(TypedDict):
    """A valid recipe with the directories of its targets."""

    file: str
    name: str
    targets: list[str]


class VerifiedFolder(TypedDict):
    """An output directory compared with its manifest or a rebuild."""

    folder: str
    recipe: str
    target: str
    is_rebuilt: bool
    reasons: list[str]
    files: list[VerifiedFile]
    is_same: bool


class _Score(TypedDict):
    index: int
    label: str
    score: Finite


class _Tensor(TypedDict):
    name: str
    dtype: str
    shape: list[int]


class RunTensor(_Tensor, total=False):
    """A fetched tensor, with its values if there are few."""

    min: Finite
    max: Finite
    mean: Finite
    values: Any


class Computed(TypedDict):
    """Outputs of one run: tensors, and the best classes of each sample if requested."""

    outputs: list[RunTensor]
    top: list[list[_Score]]


class OneRun(Computed):
    """A single run."""

    engine: str


class FileRun(Computed):
    """One of several runs, with its input files."""

    files: str


class ManyRuns(TypedDict):
    """Runs for several files."""

    engine: str
    runs: list[FileRun]


class Stat(TypedDict):
    """Statistics of a repeated measurement."""

    count: int
    first: int
    min: int
    max: int
    avg: float
    std: float


class _Plain(TypedDict):
    warmup: Stat
    no_stats: Stat


class Microseconds(_Plain, total=False):
    """Times of runs."""

    with_stats: Stat


class NodeTime(TypedDict):
    """Time and memory of a node."""

    name: str
    type: str
    start_ms: float
    first_ms: float
    avg_ms: float
    memory_bytes: int
    times_called: int


class TypeTime(TypedDict):
    """Total time and memory of the nodes of an op."""

    type: str
    count: int
    avg_ms: float
    memory_bytes: int
    times_called: int


class NodeCost(TypedDict):
    """Costs of a node in one run."""

    name: str
    type: str
    flops: float
    read_bytes: int
    written_bytes: int
    times_called: int


class DeviceFacts(TypedDict):
    """A device, and the shortest possible time of a run on it."""

    name: str
    title: str
    gflops: float
    basis: str
    source: str
    url: str
    best_seconds: float


class _Costs(TypedDict):
    engine: str
    microseconds: Microseconds
    flops: float
    flops_per_second: float
    flops_by_type: Mapping[str, float]
    not_counted: list[str]
    parameters: int
    parameter_bytes: int
    peak_activation_bytes: int
    moved_bytes: int
    costs: list[NodeCost]


class BenchmarkResult(_Costs, total=False):
    """Times and costs of a graph, and times of nodes if the engine measures them."""

    memory_bytes: Stat
    nodes: list[NodeTime]
    types: list[TypeTime]
    device: DeviceFacts
    time_by_op: list[TimeShare]
    time_by_scope: list[TimeShare]
    diagnosis: Diagnosis | None


class _Trouble(TypedDict):
    kind: str
    code: str
    message: str
    hint: str
    where: str
    exit_code: int


class Failed(TypedDict):
    """Output of a failed verb instead of its result."""

    error: _Trouble


# Types of the outputs, by schema name.
OUTPUTS: dict[str, Any] = {
    "benchmark": BenchmarkResult,
    "cache-clear": CacheCleared,
    "cache-gc": CacheCollected,
    "cache-info": CacheInfo,
    "cache-verify": CacheVerified,
    "calibrate": list[CalibrationResult],
    "check-target": TargetCheck,
    "choose": Candidates,
    "compare": list[GraphDifference],
    "debug-quantization": QuantizationDamage,
    "diff": ModelDifference,
    "doctor": Doctor,
    "doctor-library": LibraryFacts,
    "error": Failed,
    "explain": Explanation,
    "migrate": MigrationResult,
    "plan": list[JudgedStep],
    "report": list[Report],
    "report-compare": list[Comparison],
    "run": OneRun | ManyRuns,
    "summarize": Summary,
    "validate": list[ValidRecipe],
    "verify": list[VerifiedFolder],
}
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
# Reports and differences contain null for infinities and NaN.
_BOUNDLESS = frozenset({"report", "report-compare", "compare", "diff"})


def output_schema(name: str) -> Schema:
    """Return the schema of an output."""
    made = _Made({"type": ["number", "null"]} if name in _BOUNDLESS else {"type": "number"})
    root = made.schema(OUTPUTS[name])
    return {
        "$schema": DIALECT,
        "$id": f"urn:mobileprep:output:{name}:1",
        "title": f"What mobileprep prints with --json: {name}",
        **root,
        "$defs": dict(sorted(made.known.items())),
    }


class _Made:
    """Schemas of types; each class is converted once."""

    def __init__(self, number: Schema) -> None:
        self.known: dict[str, Schema] = {}
        self._plain: dict[object, str] = {
            str: "string",
            int: "integer",
            bool: "boolean",
            type(None): "null",
        }
        self._number = number

    def schema(self, kind: object) -> Schema:
        if kind is Any:
            return {}
        if kind is float:
            return dict(self._number)
        if kind in self._plain:
            return {"type": self._plain[kind]}
        if isinstance(kind, type) and get_origin(kind) is None:
            return self._class(kind)
        return self._generic(get_origin(kind), get_args(kind))

    def _generic(self, origin: object, arguments: tuple[object, ...]) -> Schema:
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (list, tuple):
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        if origin in (Union, types.UnionType):
            if set(arguments) == {int, float}:
                return self.schema(float)
            return {"anyOf": [self.schema(argument) for argument in arguments]}
        message = f"no schema is known for {origin}"
        raise TypeError(message)

    def _class(self, kind: type) -> Schema:
        name = kind.__name__.lstrip("_")
        if name not in self.known:
            self.known[name] = {}  # a class may contain itself
            hints = get_type_hints(kind)
            if issubclass(kind, Struct):
                own = {f.name for f in structs.fields(kind)}
                hints = {n: hint for n, hint in hints.items() if n in own}
            required = set(getattr(kind, "__required_keys__", hints))
            text = inspect.cleandoc(kind.__doc__ or "")
            told = dict(argument for c in reversed(kind.__mro__) for argument in _arguments(c))
            self.known[name] = {
                **({"description": _line(text.partition("\n\n")[0])} if text else {}),
                "type": "object",
                "additionalProperties": False,
                "required": sorted(required - getattr(kind, "optional", set())),
                "properties": {n: self._told(h, told.get(n, "")) for n, h in hints.items()},
            }
        return {"$ref": f"#/$defs/{name}"}

    def _told(self, hint: object, sentence: str) -> Schema:
        described = {"description": _line(sentence)} if sentence else {}
        return {**described, **self.schema(hint)}


def _arguments(kind: type) -> list[tuple[str, str]]:
    """Return the names and descriptions of the fields in the docstring of a class."""
    return _ARGUMENT.findall(inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")[2])


def _line(text: str) -> str:
    return " ".join(text.split())
