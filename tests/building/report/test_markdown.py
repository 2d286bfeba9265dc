"""Reports as Markdown."""

from __future__ import annotations

from msgspec import structs

from mobileprep.building.report.collect import Report
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import report_text
from mobileprep.building.stages.budget.spec import BudgetLine
from mobileprep.building.stages.check.report import Checked
from mobileprep.building.stages.cut.spec import PreprocessingRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, KernelsRecord, ModelFacts
from mobileprep.building.stages.transform.report import StepLine
from mobileprep.building.stages.validate.spec import Accuracy, MetricRecord, OutputRecord
from mobileprep.data.options import Preprocessing
from mobileprep.targets.targets import DeviceCost
from tests.building.report.reports import MEASURED

SOURCE = FreezeRecord(
    80, 12_345, 9, 50_000, {}, 3, ("the source has | no <b>signature</b>",), (), {}
)
STEPS = (
    StepLine("fold_constants", 70, 12_300, 49_000, 5, 1, 11, 2, {}, ("a step\nwarns",), 0.25, 0.5),
    StepLine("remove_nodes", 60, 12_300, 48_000, 10, 0, 10, 0, {}, ()),
)
METRICS = (
    MetricRecord("top1", "a_b", 0.96, 0.9512, 0.0088, True, 0.01, None, None),
    MetricRecord("psnr", "image", 40.0, 31.25, 8.75, True, None, 30.0, None),
)
OUTPUTS = (OutputRecord("a_b", 0.2, 0.05), OutputRecord("text", None, None))
REPORT = Report(
    "digits",
    "my_phone",
    SOURCE,
    STEPS,
    ModelFacts("digits.pb", 60, 12_300, 9, 48_000),
    CompressRecord(40_000, "deflate by X 1"),
    {"Add": 1},
    {},
    Checked(
        *("drawn", None, 4, {}, ("few samples",)),
        step="fold_constants",
        output="out",
        share_of_peak=0.5,
        max_difference=None,
    ),
    Accuracy(100, METRICS, OUTPUTS, 0.2, ("few labels",)),
    (),
    ("no step does batch norms",),
    "weights",
)


def test_table_of_targets_has_the_remaining_budget() -> None:
    other = structs.replace(REPORT, target="pi", accuracy=None)
    within = (BudgetLine("model_bytes", 48_000, 50_000), BudgetLine("latency_ms", 2.5, 4.0, "a"))
    limited = structs.replace(REPORT, budget=within)
    text = reports_markdown([limited, other])
    assert "| latency&#95;ms (a) | 2.5 | 4 | 1.5 |\n" in text
    lines = text.splitlines()
    assert lines[:6] == [
        "## mobileprep",
        "",
        (
            "| target | model | quantize | bytes | compressed | nodes "
            "| metric | before | after | off by |"
        ),
        "| :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        (
            "| digits/my&#95;phone | digits.pb | weights | 48,000 (2,000 left of 50,000) | 40,000 "
            "| 60 | top1 | 0.9600 | 0.9512 | 0.05 |"
        ),
        "| digits/pi | digits.pb | weights | 48,000 | 40,000 | 60 | - | - | - | - |",
    ]


def test_steps_and_warnings_are_escaped() -> None:
    text = reports_markdown(
        [structs.replace(REPORT, budget=(BudgetLine("compressed_bytes", 40_000, 41_000),))]
    )
    assert "| 40,000 (1,000 left of 41,000) |" in text
    name = "- **digits/my&#95;phone**: "
    warnings = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    assert warnings == [
        "the source has &#124; no &#60;b&#62;signature&#60;/b&#62;",
        "a step warns",
        "no step does batch norms",
        "few samples",
        "few labels",
    ]
    assert "<details><summary>digits/my&#95;phone: 2 steps</summary>\n\n| step |" in text
    assert "| frozen | 80 | 12,345 | 50,000 |  |  |\n" in text
    assert "| fold&#95;constants | 70 | 12,300 | 49,000 | 5 | 0.25 |\n" in text
    assert "| remove&#95;nodes | 60 | 12,300 | 48,000 | 10 | - |\n" in text
    assert "Checked on 4 samples: largest difference 0.5 of the peak of out.\n\n" in text


def test_tables_of_metrics_and_outputs() -> None:
    text = reports_markdown([REPORT])
    assert "Validated on 100 samples:\n\n| metric | output | before | after | limit |\n" in text
    assert "| top1 | a&#95;b | 0.9600 | 0.9512 | drop 0.01 |\n" in text
    assert "| psnr | image | 40 | 31.25 | at least 30 |\n\n| output | largest diff" in text
    assert "| a&#95;b | 0.2 | 0.05 |\n| text | - | - |\n\n</details>" in text


def test_no_list_without_warnings() -> None:
    source = structs.replace(SOURCE, warnings=())
    quiet = structs.replace(REPORT, source=source, steps=(), check=None, accuracy=None, warnings=())
    assert "- **" not in reports_markdown([quiet])


def test_calibrations_are_listed_below_the_steps() -> None:
    report = structs.replace(REPORT, calibrations=(MEASURED,))
    text = reports_markdown([report])
    assert "\nRanges of 1,300 tensors measured by percentile 99.99 on 200 samples of" in text
    assert "**: no sample reached 2 tensors\n" in text


def test_registered_kernels_are_listed() -> None:
    kernels = (KernelsRecord("1.15", 12, 534_120),)
    text = reports_markdown([structs.replace(REPORT, kernels=kernels)])
    assert "\n12 kernels of TensorFlow 1.15 registered, about 534,120 bytes of code.\n" in text


def test_cost_on_a_device_has_a_line() -> None:
    cost = DeviceCost("a board", 99_356, 49.678, "2 GFLOP/s, what its profile says")
    expected = (
        "99,356 FLOPs a sample, at best 49.68 ms on a board (2 GFLOP/s, what its profile says)"
    )
    report = structs.replace(REPORT, cost=cost)
    assert f"\nCost: {expected}.\n" in reports_markdown([report])
    assert f"\ncost     {expected}\n" in report_text(report)
    assert "cost " not in report_text(REPORT)


def test_preprocessing_has_a_line() -> None:
    moved = Preprocessing("d", "image", resize=(5, 4), mean=(128.0,), std=(64.0,))
    record = PreprocessingRecord(moved, str(moved))
    text = reports_markdown([structs.replace(REPORT, preprocessing=record)])
    line = "rgb; bilinear 5 x 4; mean 128; std 64; input image"
    assert f"\nPreprocessing: {line}.\n" in text
    assert "agrees" not in text
    compared = structs.replace(
        record, data="photos", samples=4, largest_difference=2.5e-6, tolerance=1e-4
    )
    text = reports_markdown([structs.replace(REPORT, preprocessing=compared)])
    assert (
        "\nThe app's preprocessing agrees with the graph on 4 samples (photos): largest difference "
        "2.5e-06 of the peak, at most 1e-04.\n"
    ) in text
