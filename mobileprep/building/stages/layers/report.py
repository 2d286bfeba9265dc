"""Report the layers of a .tflite file with the largest errors, and the causes of its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.building.report.layout import TextTable, fitted, plain, table
from mobileprep.building.stages.layers.spec import (
    LayerErrorRecord,
    LayerRecord,
    LayersRecord,
    OutputErrorRecord,
    OutputRecord,
    SharesRecord,
)

_CAUSES: Final = ("weights", "clipping", "rounding", "rest")
LAYER_HEADINGS: Final = ("layer", "op", "dB", "dB alone", *_CAUSES)
_WORST: Final = 5


def layer_lines(record: LayersRecord, width: int) -> Iterator[str]:
    """Yield the error of each output before and after each repair, and the worst layers."""
    if record.unmeasured:
        yield f"layers   not compared with float: {record.unmeasured}"
        return
    yield f"layers   {_introduction(record)}:"
    if record.layers:
        rows = tuple(layer_cells(layer) for layer in ranked_layers(record)[:_WORST])
        yield from (f"  {line}" for line in fitted(TextTable(LAYER_HEADINGS, rows, 2), width - 2))
    for output in record.outputs:
        yield f"  output {output.output}: {output_text(output, record.repairs)}"


def layer_markdown(record: LayersRecord) -> Iterator[str]:
    """Yield the same as Markdown."""
    yield ""
    if record.unmeasured:
        yield f"Layers are not compared with float: {plain(record.unmeasured)}."
        return
    yield f"Layers: {plain(_introduction(record))}:"
    if record.layers:
        yield ""
        rows = (map(plain, layer_cells(layer)) for layer in ranked_layers(record)[:_WORST])
        yield from table(LAYER_HEADINGS, rows)
    for output in record.outputs:
        yield ""
        yield f"Output {plain(output.output)}: {plain(output_text(output, record.repairs))}."


def ranked_layers(record: LayersRecord) -> list[LayerRecord]:
    """Return the layers of the file, the lowest ratio alone first."""

    def alone(layer: LayerRecord) -> float:
        error = layer.errors[-1]
        return _MOST if error is None or error.alone is None else error.alone

    return sorted(record.layers, key=alone)


# Layers that cannot run on their own are last.
_MOST: Final = 1e3


def layer_cells(layer: LayerRecord) -> tuple[str, ...]:
    """Format the errors of a layer in the file as a row below ``LAYER_HEADINGS``."""
    error = layer.errors[-1]
    assert error is not None
    alone = "-" if error.alone is None else f"{error.alone:.1f}"
    return layer.layer, layer.op, f"{error.sqnr:.1f}", alone, *_cells(error.shares)


def output_text(output: OutputRecord, repairs: Sequence[str]) -> str:
    """Describe the errors of an output: ``12.0 dB, equalize_ranges 20.0 dB; weights 90 %, ...``."""
    names = ("", *repairs)
    ratios = (_ratio(name, error) for name, error in zip(names, output.errors, strict=True))
    last = output.errors[-1]
    shares = None if last is None else last.shares
    if shares is None:
        return ", ".join(ratios)
    causes = ", ".join(
        f"{cause} {cell}" for cause, cell in zip(_CAUSES, _cells(shares), strict=True)
    )
    return f"{', '.join(ratios)}; {causes}"


def _ratio(name: str, error: OutputErrorRecord | LayerErrorRecord | None) -> str:
    ratio = "-" if error is None else f"{error.sqnr:.1f} dB"
    return f"after {name} {ratio}" if name else ratio


def _introduction(record: LayersRecord) -> str:
    samples = f"{record.samples} sample{'s' * (record.samples != 1)}"
    return (
        f"{len(record.layers)} compared with float on {samples} of {record.data}; those that lose "
        "most alone, and why"
    )


def _cells(shares: SharesRecord | None) -> tuple[str, ...]:
    if shares is None:
        return ("-",) * len(_CAUSES)
    parts = (shares.weights, shares.clipping, shares.rounding, shares.rest)
    return tuple(f"{round(100 * part)} %" for part in parts)
