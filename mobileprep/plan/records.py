"""The records that stages leave as JSON: written by one stage, read by others and by the report."""

from __future__ import annotations

from collections.abc import Mapping

from mobileprep.frozen import dataclass
from mobileprep.migration.records import Migration
from mobileprep.plan.running_records import (
    CalibrationRecord,
    CheckRecord,
    DamageRecord,
    DefaultCheckRecord,
    SamplesRecord,
    ValidationRecord,
)


@dataclass(frozen=True)
class Interface:
    """A model's interface, ``interface.json``: the tensors that the app feeds and fetches.

    Args:
        inputs: names of tensors, signatures resolved.
        outputs: the same.
        init_ops: ops that the app runs once after loading; they fill lookup tables.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    init_ops: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """What transforms must keep: the outputs, and the ops that the app runs first."""
        return (*self.outputs, *self.init_ops)


@dataclass(frozen=True)
class FreezeRecord:
    """What was frozen, ``freeze.json``.

    Args:
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
        variables: how many became constants.
        warnings: what the user should know.
        init_ops: ops that the app runs once after loading.
        assets: the files that ship with the model, by the tensor that names each.
    """

    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]
    variables: int
    warnings: tuple[str, ...]
    init_ops: tuple[str, ...]
    assets: Mapping[str, str]


@dataclass(frozen=True)
class TransformRecord:
    """What one step did, and the graph after it, ``step.json``.

    Args:
        name: the transform's.
        matched: how many places it acted on.
        added: how many nodes have names that none had.
        removed: how many names are gone.
        changed: how many nodes of one name differ.
        nodes_before: without functions' bodies.
        nodes_after: the same.
        skipped: how many places it left as they were, by reason.
        warnings: what the user should know.
        nodes: of the graph after it, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
    """

    name: str
    matched: int
    added: int
    removed: int
    changed: int
    nodes_before: int
    nodes_after: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]


@dataclass(frozen=True)
class ModelFacts:
    """The packaged model: its file, and the counts of its nodes.

    Args:
        file: the name of the file.
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the file.
        basis: what nodes, parameters, and ops are counted on, if that is not the file:
            ``counted on the graph before conversion``.
    """

    file: str
    nodes: int
    parameters: int
    constants: int
    bytes: int
    basis: str = ""


@dataclass(frozen=True)
class KernelsRecord:
    """What a header registers.

    Args:
        tensorflow: the release that it is for.
        kernels: how many.
        bytes: about how much code they are; None for a release without an estimate.
    """

    tensorflow: str
    kernels: int
    bytes: int | None


@dataclass(frozen=True)
class PackageRecord:
    """What ships, ``package.json``.

    Args:
        model: the model file.
        ops: how many nodes of each op it has.
        warnings: what the user should know of it.
        kernels: what the header for each release registers.
    """

    model: ModelFacts
    ops: Mapping[str, int]
    warnings: tuple[str, ...]
    kernels: tuple[KernelsRecord, ...] = ()


@dataclass(frozen=True)
class CompressRecord:
    """The model file as app packages store it, ``compress.json``.

    Args:
        bytes: the length of the compressed file.
        compressor: what the figure is for.
    """

    bytes: int
    compressor: str


@dataclass(frozen=True)
class BudgetLine:
    """A limit that is met.

    Args:
        name: the key of the recipe.
        found: what the model has or takes.
        limit: the most that is allowed.
        basis: what the number rests on, where it is an estimate; else empty.
    """

    name: str
    found: float
    limit: float
    basis: str = ""

    @property
    def left(self) -> float:
        """How much more the model might take."""
        return self.limit - self.found


@dataclass(frozen=True)
class DeviceCost:
    """The cost of one sample on the target's device.

    Args:
        device: the title of the device.
        flops: operations of one sample.
        latency_ms: the least time that they take at the rate of the device.
        basis: the rate, and the ops that are not counted.
    """

    device: str
    flops: int
    latency_ms: float
    basis: str


@dataclass(frozen=True)
class BudgetRecord:
    """What a budget allows and the model takes, ``budget.json``, in the order of the recipe's keys.

    Args:
        lines: one for each limit.
        cost: on the device, if the target names one and the cost is known.
    """

    lines: tuple[BudgetLine, ...]
    cost: DeviceCost | None = None


@dataclass(frozen=True)
class MigrationRecord:
    """The ways of a target's graph to TensorFlow Mobile and to LiteRT, ``migration.json``.

    Args:
        before: the transform that quantizes the graph afterwards; empty where none does.
        found: each way; None where they could not be tried.
        untried: why not; empty where they were.
    """

    before: str
    found: Migration | None = None
    untried: str = ""


@dataclass(frozen=True)
class TargetRecords:
    """All records of one target that the report is made of.

    Args:
        freeze: of the source.
        package: of what ships.
        compressed: of its compressed size.
        steps: of the transforms, in order.
        checks: how far the graph after each is from the source; empty without a check.
        samples: what the checks feed.
        validation: how the model compares with the source, where that was asked.
        calibrations: where the ranges of its steps come from.
        damage: what quantizing has done to tensors, where that was looked at.
        budget: what is left of its limits, where it has some.
        migration: which runtimes run its graph, where that was asked.
        default_check: how far a quantized target without ``checks`` is from the source.
        package_check: how far the packaged model is from the source.
    """

    freeze: FreezeRecord
    package: PackageRecord
    compressed: CompressRecord
    steps: tuple[TransformRecord, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    samples: SamplesRecord | None = None
    validation: ValidationRecord | None = None
    calibrations: tuple[CalibrationRecord, ...] = ()
    damage: DamageRecord | None = None
    budget: BudgetRecord | None = None
    migration: MigrationRecord | None = None
    default_check: DefaultCheckRecord | None = None
    package_check: CheckRecord | None = None
