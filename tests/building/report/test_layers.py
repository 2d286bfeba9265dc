"""Errors of the layers of a LiteRT file in reports."""

from __future__ import annotations

from msgspec.structs import replace

from mobileprep.building.report.collect import report_data
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import report_text
from mobileprep.building.stages.layers.report import layer_lines
from mobileprep.building.stages.layers.spec import (
    LayerErrorRecord,
    LayerRecord,
    LayersRecord,
    OutputErrorRecord,
    OutputRecord,
    SharesRecord,
)
from tests.building.report.test_markdown import REPORT

SHARES = SharesRecord(0.45, -0.002, 0.55, 0.002)


def layer(name: str, alone: float | None) -> LayerRecord:
    error = LayerErrorRecord(10.0, alone, None if alone is None else SHARES)
    return LayerRecord(name, "CONV_2D", (None, error))


LAYERS = LayersRecord(
    "data/c.npz",
    4,
    ("equalize_ranges",),
    (
        layer("a_1", 30.0),
        layer("joined", None),
        *(layer(f"b{i}", 20.0 + i) for i in range(4)),
        layer("worst", -3.25),
    ),
    (OutputRecord("y", (OutputErrorRecord(12.0, SHARES), OutputErrorRecord(20.5, SHARES))),),
)


def test_five_worst_layers_and_outputs_are_listed() -> None:
    assert list(layer_lines(LAYERS, 80)) == [
        (
            "layers   7 compared with float on 4 samples of data/c.npz; those that lose most "
            "alone, and why:"
        ),
        "  layer  op         dB  dB alone  weights  clipping  rounding  rest",
        "  worst  CONV_2D  10.0      -3.2     45 %       0 %      55 %   0 %",
        "  b0     CONV_2D  10.0      20.0     45 %       0 %      55 %   0 %",
        "  b1     CONV_2D  10.0      21.0     45 %       0 %      55 %   0 %",
        "  b2     CONV_2D  10.0      22.0     45 %       0 %      55 %   0 %",
        "  b3     CONV_2D  10.0      23.0     45 %       0 %      55 %   0 %",
        (
            "  output y: 12.0 dB, after equalize_ranges 20.5 dB; weights 45 %, clipping 0 %, "
            "rounding 55 %, rest 0 %"
        ),
    ]


def test_exact_outputs_have_no_causes() -> None:
    exact = OutputRecord("y", (None, OutputErrorRecord(200.0, None)))
    lines = list(layer_lines(replace(LAYERS, layers=LAYERS.layers[1:2], outputs=(exact,)), 80))
    assert lines[2] == "  joined  CONV_2D  10.0         -        -         -         -     -"
    assert lines[3] == "  output y: -, after equalize_ranges 200.0 dB"


def test_unmeasured_layers_have_a_reason() -> None:
    record = LayersRecord("data/c.npz", 0, unmeasured="no kernel of Foo")
    assert list(layer_lines(record, 80)) == ["layers   not compared with float: no kernel of Foo"]
    markdown = reports_markdown([replace(REPORT, layers=record)])
    assert "\nLayers are not compared with float: no kernel of Foo.\n" in markdown


def test_layers_are_in_all_reports() -> None:
    report = replace(REPORT, layers=LAYERS)
    assert "layers   7 compared" in report_text(report)
    markdown = reports_markdown([report])
    assert "| worst | CONV&#95;2D | 10.0 | -3.2 | 45 % | 0 % | 55 % | 0 % |" in markdown
    assert "\nOutput y: 12.0 dB, after equalize&#95;ranges 20.5 dB; weights 45 %" in markdown
    assert report_data(report)["layers"]["layers"][0]["errors"][0] is None
    assert "layers" not in report_data(REPORT)
