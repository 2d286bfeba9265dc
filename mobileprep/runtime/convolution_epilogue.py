"""A convolution together with scale, bias, a sum with another tensor, and activation."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.channel_lines import by_channel, channel_line
from mobileprep.numerics.convolution import convolve
from mobileprep.numerics.depthwise_convolution import convolve_depthwise
from mobileprep.numerics.tiles import Tile
from mobileprep.numerics.windows import Window, filter_window
from mobileprep.numerics.winograd import WinogradConvolution, WinogradFilters
from mobileprep.numerics.winograd_schemes import winograd_scheme
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Values

_UPPER = {"Relu": np.float32(np.inf), "Relu6": np.float32(6)}


@dataclass(frozen=True, slots=True)
class Way:
    """How the filters slide over an input, and how to convolve with few multiplications if so."""

    window: Window
    winograd: WinogradConvolution | None


@dataclass(frozen=True, slots=True)
class FusedConvolution:
    """Computes activation(convolution(padded) + shift + residual) of float32 NHWC tensors.

    Args:
        node: the convolution, for its attributes.
        filters: the filters, scaled.
        shift: the bias of each channel, as a line of channels; None for none.
        activation: "Relu", "Relu6" or nothing.
        pads: zeros to put before and after height and width; nothing for none.
        ways: how to convolve inputs of a shape, for that of the last input.
    """

    node: Node
    filters: Array
    shift: Array | None
    activation: str
    pads: tuple[tuple[int, int], ...] = ()
    ways: dict[tuple[int, ...], Way] = field(default_factory=dict, init=False, compare=False)

    @classmethod
    def prepared(
        cls,
        node: Node,
        filters: Array,
        scale: Array,
        shift: Array,
        activation: str,
        pads: tuple[tuple[int, int], ...] = (),
    ) -> FusedConvolution:
        """With a scale for each output channel that goes into the filters."""
        if np.any(scale != 1):
            factor = scale.astype(np.float32)
            if node.op == "DepthwiseConv2dNative":
                factor = factor.reshape(filters.shape[2:])
            filters = filters * factor
        line = channel_line(shift.astype(np.float32)) if np.any(shift) else None
        return cls(node, np.ascontiguousarray(filters), line, activation, pads)

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The output for an input, and for a second input that is added."""
        x = inputs[0]
        if x.dtype != np.float32 or x.ndim != 4:
            message = "a float32 tensor of four axes is needed"
            raise ValueError(message)
        way = self.way(x)
        shape = (x.shape[0], *way.window.positions(x.shape[1:-1]), self.channels)
        residual = inputs[1] if len(inputs) > 1 else None
        broadcast = residual is not None and residual.shape != shape

        def finish(values: Array, tile: Tile) -> None:
            if broadcast:
                self._shift(values)
            else:
                self.finish(values, tile, residual)

        out = None if way.winograd is None else way.winograd(x, finish)
        if out is None:
            run = convolve_depthwise if self.depthwise else convolve
            out = run(x, self.filters, way.window, finish)
        if residual is not None and broadcast:
            out = np.add(out, residual)
            self.activate(out)
        return (out,)

    def finish(self, values: Array, tile: Tile, residual: Array | None) -> None:
        """Add shift and residual, of the output's shape, to a tile's products; activate them."""
        self._shift(values)
        if residual is not None:
            np.add(values, tile.of(residual), out=values)
        self.activate(values)

    def way(self, x: Array) -> Way:
        """How to convolve an input, kept for inputs of the same shape."""
        known = self.ways.get(x.shape)
        if known is None:
            window = filter_window(self.node, x, self.filters, pads=self.pads)
            known = Way(window, self._winograd(x, window))
            self.ways.clear()
            self.ways[x.shape] = known
        return known

    def _winograd(self, x: Array, window: Window) -> WinogradConvolution | None:
        scheme = None if self.depthwise else winograd_scheme(x.shape, self.filters, window)
        if scheme is None:
            return None
        # Filters take longer to transform than to apply, and are the same for inputs of any size.
        before = [way.winograd for way in tuple(self.ways.values())]
        bank = next((w.bank for w in before if w is not None and w.bank.scheme == scheme), None)
        if bank is None:
            bank = WinogradFilters.of(self.filters, scheme)
        return WinogradConvolution.of(bank, x.shape, window)

    @property
    def depthwise(self) -> bool:
        """Whether each channel has its own filters."""
        return self.node.op == "DepthwiseConv2dNative"

    @property
    def pointwise(self) -> bool:
        """Whether each output comes of the element at its place."""
        return (
            not self.depthwise
            and self.filters.shape[:2] == (1, 1)
            and not self.pads
            and set(self.node.attr_ints("strides")) == {1}
            and self.node.attr_str("padding") != "EXPLICIT"
        )

    @property
    def channels(self) -> int:
        """How many its output has."""
        inner, outer = self.filters.shape[-2:]
        return int(inner * outer if self.depthwise else outer)

    @property
    def bias(self) -> Array:
        """The shift of each channel."""
        if self.shift is None:
            return np.zeros(self.channels, np.float32)
        return self.shift[: self.channels]

    def activate(self, x: Array) -> None:
        """Apply the activation to some of the output."""
        if self.activation:
            # One pass even for two bounds, and faster than a maximum with a scalar.
            np.clip(x, np.float32(0), _UPPER[self.activation], out=x)

    def _shift(self, x: Array) -> None:
        if self.shift is not None:
            flat = x.reshape(-1)
            by_channel(np.add, flat, self.shift, flat)
