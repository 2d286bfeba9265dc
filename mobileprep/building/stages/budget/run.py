"""Compare a model with the target's limits and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct, structs

from mobileprep.building.report.layout import number_text
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.budget.spec import (
    BudgetLine,
    BudgetRecord,
    BudgetStage,
    MeasuredCost,
    OpCost,
)
from mobileprep.building.stages.download.spec import DownloadRecord
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.package.spec import CompressRecord, KernelsRecord, PackageRecord
from mobileprep.building.stages.running import with_assets
from mobileprep.core.files import sha256_file
from mobileprep.data.source import data_inputs
from mobileprep.errors import AccuracyError, InvalidGraphError, RecipeError, UsageError
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import BATCH_NORMS
from mobileprep.graph.opdefs.definitions import slip_in
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tflite import read_tflite
from mobileprep.inspection.memory import memory_by_kind, memory_of
from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost, sample_costs
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.targets.memmapped import removal
from mobileprep.targets.op_classes import ClassCost, class_costs
from mobileprep.targets.selective_registration import KERNEL_CODE_BASIS
from mobileprep.targets.targets import Device, DeviceCost, Memory


def run(job: Job[BudgetStage]) -> None:
    """Write ``budget.json``.

    Raises:
        AccuracyError: the model exceeds a limit or has an op that is not allowed.
        RecipeError: the cost of a sample is unknown because the size of a tensor is.
    """
    model = _Model(job)
    if model.is_stale:
        job.warn(
            f"{job.place('measurement')}: the measurement is of another model, so that times are "
            "estimates; measure the model again"
        )
    for slip in _slips(model):
        job.warn(f"{job.place('budget')}: {slip}")
    limits = {
        name: limit for name, limit in structs.asdict(job.asked.budget).items() if limit is not None
    }
    usages = [(limit, _USAGES[name](model)) for name, limit in limits.items() if name in _USAGES]
    violations = [
        (usage.over(limit), usage.hint) for limit, usage in usages if usage.amount > limit
    ]
    violations += list(_unwanted_ops(model))
    if violations:
        messages, suggestions = zip(*violations, strict=True)
        hint = "; ".join(dict.fromkeys(filter(None, suggestions)))
        hint = f"{hint}, or raise the budget"
        raise AccuracyError("; ".join(messages), hint, job.place("budget"))
    lines = [BudgetLine(s.name, s.amount, limit, s.basis) for limit, s in usages]
    cost = _cost(model)
    memory = None if job.asked.budget.ram is None else model.memory
    record = BudgetRecord(tuple(lines), cost, _measured(model, cost), memory)
    job.write_record(job.asked.RECORD, record)


class _Usage(Struct, frozen=True):
    """The model's usage of a limited resource.

    Args:
        name: key of the limit in the recipe.
        amount: the usage.
        text: sentence with braces for the amount.
        hint: suggestion for reducing it.
        basis: source of the number if it is an estimate.
    """

    name: str
    amount: float
    text: str
    hint: str
    basis: str = ""

    def over(self, limit: float) -> str:
        """Describe by how much it exceeds the limit."""
        sentence = self.text.format(number_text(self.amount))
        excess = f"{number_text(self.amount - limit)} over the budget of {number_text(limit)}"
        return f"{sentence}, {excess}{f' ({self.basis})' if self.basis else ''}"


def _cost(model: _Model) -> DeviceCost | None:
    """Return the cost on the target's device, or None without a device or with unknown sizes."""
    job, device = model.job, model.job.asked.device
    if device is None:
        return None
    try:
        flops = model.costs.flops
    except RecipeError as error:
        job.warn(f"{error.where}: no cost on {device.title} is reported: {error.message}")
        return None
    basis = model.basis(device.rate, _without(model.costs))
    return DeviceCost(device.title, flops, model.estimate(device), basis)


def _measured(model: _Model, cost: DeviceCost | None) -> MeasuredCost | None:
    """Return the measurement next to the estimate; None without a measurement."""
    measured, device = model.job.asked.measurement, model.job.asked.device
    if measured is None:
        return None
    return MeasuredCost(
        measured.device,
        measured.basis,
        model.is_stale,
        measured.mean_ms,
        measured.std_ms,
        measured.runs,
        None if cost is None else cost.latency_ms,
        tuple(OpCost(op.op, op.name, op.ms, _milliseconds(device, op.cost)) for op in measured.ops),
    )


def _milliseconds(device: Device | None, cost: ClassCost | None) -> float | None:
    return None if device is None or cost is None else float(device.seconds([cost]) * 1e3)


class _Model:
    """The published model. Loads only the parts that the limits need."""

    def __init__(self, job: Job[BudgetStage]) -> None:
        self.job = job
        self.package = job.record(PackageRecord, job.asked.package)

    def basis(self, *parts: str) -> str:
        """Return the source of a number. For a converted model, note that its graph was counted."""
        return "; ".join(filter(None, (*parts, self.package.model.basis)))

    @cached_property
    def graph(self) -> Graph:
        return self.job.graph(self.job.asked.graph)

    @cached_property
    def interface(self) -> Interface:
        return self.job.record(Interface, self.job.asked.interface)

    @cached_property
    def inputs(self) -> list[FedTensor]:
        declared = {fed.name: fed.shape for fed in self.job.asked.inputs}
        try:
            return data_inputs(self.graph, self.interface.inputs, declared)
        except (InvalidGraphError, UsageError) as error:
            raise RecipeError(error.message, error.hint, self.job.place("inputs")) from error

    @cached_property
    def costs(self) -> GraphCosts:
        """Cost of one sample."""
        try:
            with with_assets(self.graph, self.job.path(self.job.asked.assets)) as graph:
                return sample_costs(graph, self.inputs, self.interface.outputs)
        except (InvalidGraphError, UsageError) as error:
            raise RecipeError(error.message, error.hint, self.job.place("inputs")) from error

    @cached_property
    def memory(self) -> Memory:
        """Memory of the published file while it is loaded and one sample runs."""
        stage = self.job.asked
        if stage.lite is not None:
            lite = read_tflite(self.job.path(stage.lite))
            size = self.package.model.bytes
            return memory_of(lite.graph, {}, lite.outputs, kind="tflite", file_bytes=size)
        # TensorFlow parses text into the same message.
        kind = "memmapped" if stage.artifact == "memmapped" else "frozen"
        outputs, size = self.interface.outputs, serialized_size(self.graph)
        memory = memory_of(self.graph, self._shapes, outputs, kind=kind, file_bytes=size)
        if memory.unknown:
            count, first = len(memory.unknown), memory.unknown[0]
            tensors = f"{count} tensors, such as of {first!r}"
            self.job.warn(f"{self.job.place('budget')}: 'ram' is without the sizes of {tensors}")
        return memory

    def smaller_kinds(self, limit: float) -> Iterator[str]:
        """Yield other artifacts that do not exceed a limit of memory."""
        kinds = memory_by_kind(self.graph, self._shapes, self.interface.outputs)
        for kind, memory in kinds.items():
            if kind != self.memory.kind and memory.peak <= limit:
                yield f"'artifact: {kind}' ({memory.peak:,})"

    @property
    def _shapes(self) -> dict[str, TensorShape]:
        return {fed.name: fed.shape for fed in self.inputs}

    @cached_property
    def is_stale(self) -> bool:
        """Whether the measurement is of another model than the published one."""
        measured, model = self.job.asked.measurement, self.job.asked.model
        if measured is None or model is None:
            return False
        return sha256_file(self.job.path(model)) != measured.sha256

    def estimate(self, device: Device) -> float:
        """Estimate the milliseconds of one sample."""
        return float(device.seconds(class_costs(self.costs.nodes)) * 1e3)

    def most(self, amount: Callable[[KernelsRecord], int | None]) -> KernelsRecord:
        """Return the release with the largest amount of those that have a header."""
        records = [k for k in self.package.kernels if amount(k) is not None]
        if not records:
            message = "kernel code sizes are only known for TensorFlow 1.15"
            hint = "add '1.15' to the registration, or limit 'kernels'"
            raise RecipeError(message, hint, self.job.place("budget"))
        return max(records, key=lambda k: amount(k) or 0)


def _model_bytes(model: _Model) -> _Usage:
    text = "the model is {} bytes"
    return _Usage("model_bytes", model.package.model.bytes, text, _SIZE_HINT)


def _compressed_bytes(model: _Model) -> _Usage:
    packed = model.job.record(CompressRecord, model.job.asked.compressed)
    text = f"the model compressed by {packed.compressor} is {{}} bytes"
    return _Usage("compressed_bytes", packed.bytes, text, _SIZE_HINT)


def _download_bytes(model: _Model) -> _Usage:
    download = model.job.asked.download
    assert download is not None  # The recipe was checked.
    record = model.job.record(DownloadRecord, download)
    return _Usage("download_bytes", record.bytes, "the download is {} bytes", _DOWNLOAD_HINT)


def _parameters(model: _Model) -> _Usage:
    count, text = model.package.model.parameters, "the model has {} parameters"
    return _Usage("parameters", count, text, _parameters_hint(model.graph), model.basis())


def _flops(model: _Model) -> _Usage:
    costs = model.costs
    text = "one sample takes {} operations"
    basis = model.basis(_without(costs))
    return _Usage("flops", costs.flops, text, _flops_hint(costs), basis)


def _activation_bytes(model: _Model) -> _Usage:
    text = "the tensors of one sample take {} bytes at once"
    hint = _activations_hint(model.costs)
    return _Usage("activation_bytes", model.costs.peak_bytes, text, hint, model.basis())


def _ram(model: _Model) -> _Usage:
    memory, limit = model.memory, model.job.asked.budget.ram or 0
    phase = "loading the model" if memory.load_peak >= memory.run_peak else "running one sample"
    hint = ""
    if memory.peak > limit:
        kinds = list(model.smaller_kinds(limit))
        meets = f"{', '.join(kinds)} would meet it" if kinds else "no other artifact would meet it"
        hint = f"{meets}; feed smaller inputs, or quantize the weights"
    return _Usage("ram", memory.peak, f"{phase} takes {{}} bytes", hint, memory.timeline)


def _latency(model: _Model) -> _Usage:
    device, measured = model.job.asked.device, model.job.asked.measurement
    if measured is not None and not model.is_stale:
        text = f"one sample takes {{}} ms on {measured.device}"
        hint = "measure again, or train a smaller network"
        return _Usage("latency_ms", measured.mean_ms, text, hint, f"measured, {measured.basis}")
    if device is None:
        message = "a latency needs the device whose it is"
        hint = "add 'device: smartphone'"
        if measured is not None:
            message = "the measurement is of another model, and an estimate needs a device"
            hint = f"measure the model again, or {hint}"
        raise RecipeError(message, hint, model.job.place("budget"))
    if device.rates:
        rate, text = device.basis, f"one sample takes about {{}} ms on {device.title}"
    else:
        rate = f"{device.gflops:g} GFLOP/s of {device.title}, {device.basis}"
        text = f"one sample takes {{}} ms at the {rate}"
    milliseconds = model.estimate(device)
    basis = model.basis(rate, _without(model.costs))
    return _Usage("latency_ms", milliseconds, text, _flops_hint(model.costs), basis)


def _kernels(model: _Model) -> _Usage:
    record = model.most(lambda k: k.kernels)
    text = f"the header for TensorFlow {record.tensorflow} registers {{}} kernels"
    return _Usage("kernels", record.kernels, text, _kernels_hint(model.package.ops))


def _kernel_bytes(model: _Model) -> _Usage:
    record = model.most(lambda k: k.bytes)
    text = f"the kernels for TensorFlow {record.tensorflow} are about {{}} bytes of code"
    hint = _kernels_hint(model.package.ops)
    return _Usage("kernel_bytes", record.bytes or 0, text, hint, KERNEL_CODE_BASIS)


def _without(costs: GraphCosts) -> str:
    return f"counts without {', '.join(costs.uncounted)}" if costs.uncounted else ""


def _unwanted_ops(model: _Model) -> Iterator[tuple[str, str]]:
    """Yield ops that are not allowed, each with a suggestion for removing it."""
    limits = model.job.asked.budget.ops
    if limits is None:
        return
    for op, count in sorted(model.package.ops.items()):
        if op in limits.forbid or (limits.allow and op not in limits.allow):
            # Function bodies may contain ops that the graph itself does not.
            first = next((node.name for node in model.graph if node.op == op), None)
            nodes = f"{count:,} node{'s' * (count != 1)}"
            nodes += "" if first is None else f", such as {first!r}"
            hint = removal(op) or f"cut the graph before {op}, or allow it"
            yield f"the op {op} is not allowed ({model.basis(nodes)})", hint


def _slips(model: _Model) -> list[str]:
    """Return warnings about limited ops that neither the model nor TensorFlow has.

    Such a limit has no effect.
    """
    limits = model.job.asked.budget.ops
    named = () if limits is None else (*limits.allow, *limits.forbid)
    return [slip for op in named if op not in model.package.ops and (slip := slip_in(op))]


_USAGES: Final[dict[str, Callable[[_Model], _Usage]]] = {
    "model_bytes": _model_bytes,
    "compressed_bytes": _compressed_bytes,
    "download_bytes": _download_bytes,
    "parameters": _parameters,
    "flops": _flops,
    "activation_bytes": _activation_bytes,
    "ram": _ram,
    "latency_ms": _latency,
    "kernels": _kernels,
    "kernel_bytes": _kernel_bytes,
}


_SIZE_HINT: Final = "quantize the weights, cut the graph further"


_DOWNLOAD_HINT: Final = "raise 'tolerance' of 'download', quantize the weights, train fewer layers"


_TOLD: Final = 3


def _parameters_hint(graph: Graph) -> str:
    """Suggest a fix and name the largest constants, including those of functions."""
    bodies = {f.name: f.nodes for f in graph.library.functions.values()}
    nodes = [(n, "") for n in graph] + [(n, f"{f}/") for f, body in bodies.items() for n in body]
    sizes = [(n.attr_tensor("value").size, owner + n.name) for n, owner in nodes if n.op == "Const"]
    largest = sorted(sizes, key=lambda one: (-one[0], one[1]))[:_TOLD]
    constants = ", ".join(f"{name!r} ({size:,})" for size, name in largest)
    return f"cut the graph further, or train a smaller network: most are in {constants}"


def _flops_hint(costs: GraphCosts) -> str:
    """Name the most expensive ops and nodes, and suggest a transform that removes one."""
    whole = costs.flops or 1
    ops = [f"{op} {100 * n / whole:.0f} %" for op, n in costs.flops_by_op.items()][:_TOLD]
    details = f"{', '.join(ops)}, most of it in {_largest(costs, lambda n: n.flops or 0)}"
    norms = sorted(BATCH_NORMS & costs.flops_by_op.keys())
    first = f"fuse_batch_norms takes {', '.join(norms)} off; " if norms else ""
    return f"{first}feed smaller inputs, or train a smaller network: {details}"


def _activations_hint(costs: GraphCosts) -> str:
    """Name the nodes that write the largest tensors."""
    largest = _largest(costs, lambda n: n.written)
    return (
        "feed smaller inputs, or compute in 8 bits with 'quantize: {mode: nodes}': the largest "
        f"tensors are of {largest}"
    )


def _kernels_hint(ops: Mapping[str, int]) -> str:
    """Name the ops that occur in only one node."""
    single = sorted(op for op, count in ops.items() if count == 1 and op != "Placeholder")
    examples = f": of one node each are {', '.join(single[: 2 * _TOLD])}" if single else ""
    return f"fold_constants and fuse_batch_norms take ops off, and remove_nodes copies{examples}"


def _largest(costs: GraphCosts, amount: Callable[[NodeCost], int]) -> str:
    nodes = sorted(costs.nodes, key=lambda n: (-amount(n), n.name))[:_TOLD]
    return ", ".join(f"{n.name!r} ({amount(n):,})" for n in nodes if amount(n))
