"""Measure the errors of each layer of a quantized .tflite file, and their causes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

import numpy as np
from msgspec import Struct

from mobileprep.graph.refs import Edge, Ref
from mobileprep.graph.tensor import Array
from mobileprep.litert.emulated_graphs import Part, SingleOp, emulated, parts_of, single_op
from mobileprep.litert.emulation import EmulatedOp, Emulation, Grid
from mobileprep.ops.numerics.differences import decibels
from mobileprep.runtime.interpreter import Interpreter

# Elements in a scalar product: few enough for single precision, and for BLAS not to start threads.
_BLOCK: Final = 1 << 13
# Remains of dropout draw random numbers, although these do not affect the result.
_SEED: Final = 20160823


class Shares(Struct, frozen=True):
    """The shares of an error's energy, which add up to 1.

    With ``E(c)`` for the sum of squared errors with only the causes ``c``, W for weights, and A for
    activations, weights have the share ``(E(WA) + E(W) - E(A)) / 2``, and activations have
    ``(E(WA) + E(A) - E(W)) / 2``, both divided by the energy of the whole error: causes share their
    interaction equally. A share is negative if a cause cancels more of another than it adds.

    Args:
        weights: rounding weights.
        clipping: clipping activations to their ranges: the share of activations, divided between
            clipping and rounding as the energies without weights are.
        rounding: rounding activations.
        rest: rounding biases, ``E - E(WA)``.

    Source: Shapley, A Value for n-Person Games (1953), for two causes.
    """

    weights: float
    clipping: float
    rounding: float
    rest: float


class OutputError(Struct, frozen=True):
    """The error of an output of the file.

    Args:
        output: index of the output.
        sqnr: signal-to-noise ratio in dB, from -200 to 200.
        shares: its causes; None without an error, or with NaN or infinity.
    """

    output: int
    sqnr: float
    shares: Shares | None


class LayerError(Struct, frozen=True):
    """The error of a layer's output.

    Args:
        layer: the layer's node.
        tensor: its output, behind a fused bias and activation.
        op: its LiteRT operator.
        sqnr: signal-to-noise ratio in dB with all layers quantized.
        alone: the same with float inputs and only this layer quantized; None if its nodes cannot
            run on their own.
        shares: the causes of the layer's own error; None as in ``OutputError``.
    """

    layer: str
    tensor: str
    op: str
    sqnr: float
    alone: float | None
    shares: Shares | None


class FileErrors(Struct, frozen=True):
    """The errors of a file.

    Args:
        layers: the layers in execution order.
        outputs: the float outputs.
    """

    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]


class ErrorSum:
    """Accumulates the energies of an error and of its parts in constant memory."""

    def __init__(self) -> None:
        self._signal = 0.0
        self._energies: dict[Part, float] = dict.fromkeys(get_args(Part), 0.0)

    def add(self, expected: Array, arrays: Mapping[Part, Array]) -> None:
        """Add an array.

        Args:
            expected: float values.
            arrays: the same values with each part of the errors; parts without errors are omitted.
                Arrays of another shape have infinite errors.
        """
        values = expected.reshape(-1)
        flat = {p: a.reshape(-1) for p, a in arrays.items() if a.shape == expected.shape}
        with np.errstate(all="ignore"):
            for start in range(0, values.size, _BLOCK):
                x = values[start : start + _BLOCK]
                self._signal += float(x @ x)
                for part, array in flat.items():
                    error = array[start : start + _BLOCK] - x
                    self._energies[part] += float(error @ error)
        for part, array in arrays.items():
            if array.shape != expected.shape:
                self._energies[part] = math.inf

    @property
    def sqnr(self) -> float:
        """The signal-to-noise ratio in dB, from -200 to 200."""
        noise = self._energies["all"]
        is_lost = not math.isfinite(self._signal + noise)
        return decibels(self._signal, noise, is_lost=is_lost)

    @property
    def shares(self) -> Shares | None:
        """The shares of the causes; None without an error, or with NaN or infinity."""
        energies = self._energies
        whole = energies["all"]
        if not whole or not all(map(math.isfinite, energies.values())):
            return None
        both, alone = energies["both"], energies["weights"] - energies["rounded"]
        activations = (both - alone) / 2 / whole
        part = min(energies["clipped"] / energies["rounded"], 1.0) if energies["rounded"] else 0.0
        return Shares(
            weights=(both + alone) / 2 / whole,
            clipping=activations * part,
            rounding=activations * (1 - part),
            rest=1 - both / whole,
        )


def file_errors(
    emulation: Emulation,
    base: Emulation,
    feeds: Iterable[Sequence[Array]],
) -> FileErrors:
    """Measure the errors of a file by running its float graph with fake quantization.

    Memory depends on the size of a feed and not on the number of feeds.

    Args:
        emulation: the file.
        base: the float graph to compare with. Its tensors have the scales of the file's, but its
            weights may differ.
        feeds: the arrays of the inputs, for each run.

    Raises:
        UsageError, UnsupportedError, InvalidGraphError: a graph cannot be run.
    """
    measurement = _Measurement(emulation, base)
    for feed in feeds:
        measurement.add(dict(zip(base.inputs, feed, strict=True)))
    return measurement.errors()


class _Measurement:
    def __init__(self, emulation: Emulation, base: Emulation) -> None:
        self._ops = [op for op in emulation.ops if op.output[0] in base.graph]
        names = {op.output: op.name for op in base.ops}
        singles = [
            (op, single_op(op, emulation.graph, names.get(op.output, op.name), base.graph))
            for op in self._ops
        ]
        self._singles = {
            op: _Single(op, single)
            for op, single in singles
            if single is not None and all(t[0] in base.graph for t in single.inputs.values())
        }
        tensors = [op.output for op in self._ops]
        tensors += [t for single in self._singles.values() for t in single.inputs]
        self._tensors = list(dict.fromkeys(tensors))
        self._outputs = base.outputs
        self._float = Interpreter(base.graph, seed=_SEED)
        parts = parts_of(emulation.ops)
        self._file = _Run(emulation, base, "all")
        self._parts = {part: _Run(emulation, base, part) for part in parts if part != "all"}
        self._sums = {op: ErrorSum() for op in self._ops}
        self._output_sums: dict[int, ErrorSum] = {}

    def add(self, feed: Mapping[str, Array]) -> None:
        """Run the float graph and the file on a feed, and add the errors."""
        tensors = [*self._tensors, *self._outputs]
        arrays = self._float.run([str(Ref(*tensor)) for tensor in tensors], feed)
        floats = dict(zip(tensors, arrays, strict=True))
        outputs = [op.output for op in self._ops]
        layers, ends = self._file.arrays(outputs, feed)
        for op, array in zip(self._ops, layers, strict=True):
            self._sums[op].add(floats[op.output], {"all": array})
        parts = {part: run.arrays((), feed)[1] for part, run in self._parts.items()}
        for index, tensor in enumerate(self._outputs):
            output: dict[Part, Array] = {"all": ends[index]}
            output.update((part, run[index]) for part, run in parts.items())
            if floats[tensor].dtype.kind == "f":
                self._output_sums.setdefault(index, ErrorSum()).add(floats[tensor], output)
        for single in self._singles.values():
            single.add(floats)

    def errors(self) -> FileErrors:
        """Return the errors of all feeds."""
        layers = []
        for op in self._ops:
            single = self._singles.get(op)
            alone, shares = (None, None) if single is None else (single.sum.sqnr, single.sum.shares)
            tensor = str(Ref(*op.output))
            layers.append(LayerError(op.name, tensor, op.code, self._sums[op].sqnr, alone, shares))
        outputs = (
            OutputError(index, total.sqnr, total.shares)
            for index, total in self._output_sums.items()
        )
        return FileErrors(tuple(layers), tuple(outputs))


class _Run:
    """Runs a graph with a part of the errors of a file."""

    def __init__(self, emulation: Emulation, base: Emulation, part: Part) -> None:
        self._graph = emulated(emulation, base.graph, part)
        self._interpreter = Interpreter(self._graph.graph, seed=_SEED)

    def arrays(
        self, tensors: Sequence[Edge], feed: Mapping[str, Array]
    ) -> tuple[list[Array], list[Array]]:
        """Return tensors of the float graph, and the outputs."""
        names = [self._graph.name(tensor) for tensor in tensors]
        arrays = self._interpreter.run([*names, *self._graph.outputs], feed)
        return arrays[: len(names)], arrays[len(names) :]


class _Single:
    """Runs an operator on float inputs, and accumulates the errors of its output."""

    def __init__(self, op: EmulatedOp, single: SingleOp) -> None:
        self.sum = ErrorSum()
        self._op = op
        self._inputs, self._outputs = single.inputs, single.outputs
        self._interpreter = Interpreter(single.graph, seed=_SEED)

    @property
    def inputs(self) -> Iterable[Edge]:
        """The tensors of the float graph that the operator reads."""
        return self._inputs.values()

    def add(self, floats: Mapping[Edge, Array]) -> None:
        """Run the operator with each part of the errors."""
        feed = {name: floats[tensor] for name, tensor in self._inputs.items()}
        outputs = dict(self._outputs)
        if not self._clips(floats):
            outputs.pop("clipped", None)
        arrays = self._interpreter.run(list(outputs.values()), feed)
        self.sum.add(floats[self._op.output], dict(zip(outputs, arrays, strict=True)))

    def _clips(self, floats: Mapping[Edge, Array]) -> bool:
        """Return whether a float tensor exceeds its range."""
        grids = {**self._op.grids, self._op.output: self._op.grid}
        return any(
            isinstance(grid, Grid)
            and tensor in floats
            and not grid.low
            <= floats[tensor].min(initial=0)
            <= floats[tensor].max(initial=0)
            <= grid.high
            for tensor, grid in grids.items()
        )
