"""The report as text."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from mobileprep.building.report.collect import report_data
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import quantization_text, report_text
from mobileprep.building.stages.damage.spec import DamageRecord, TensorRecord, damage_lines
from mobileprep.building.stages.layers.report import layer_lines
from mobileprep.building.stages.layers.spec import (
    LayerErrorRecord,
    LayerRecord,
    LayersRecord,
    OutputErrorRecord,
    OutputRecord,
    SharesRecord,
)
from mobileprep.building.stages.package.spec import KernelsRecord
from tests.building.report.reports import (
    FREEZE,
    MEASURED,
    NUMPY,
    OPENVINO,
    SAMPLES,
    STEPS,
    VALIDATION,
    check,
    make_report,
    step,
)
from tests.building.report.test_markdown import REPORT

GOLDEN = """\
digits/phone
step                nodes  parameters   bytes  matched  added  removed  changed
frozen                 72      10,349  49,261
strip_unused_nodes     72      10,349  49,261        0      0        0        0
quantize_weights    1,234      10,349  15,723        2      6        0        2
  strip_unused_nodes: found nothing to do
  quantize_weights: 8 left as they were: fewer elements than minimum_size
  warning: quantize_weights: see [/docs] for [1, 2]
model    digits.pb: 15,723 bytes, 12,831 compressed (deflate by X 1), 35 nodes
accuracy top-1 0.9933 before, 0.9911 after (450 samples); largest output difference 0.0082
engine   numpy ran source, model: it is the reference, so nothing is compared
ops      Conv2D 2, Const 15
"""


def test_whole_report() -> None:
    assert report_text(make_report()) == GOLDEN


def test_no_accuracy_without_validation() -> None:
    lines = report_text(make_report(validation=None)).splitlines()
    prefixes = ("accuracy", "engine")
    assert lines == [line for line in GOLDEN.splitlines() if not line.startswith(prefixes)]


def test_checks_add_a_column() -> None:
    checks = [check(0.0), check(1.5e-7)]
    lines = report_text(make_report(checks=checks), width=100).splitlines()
    assert lines[1].endswith("changed  difference")
    assert lines[2].endswith("49,261")
    assert lines[3].endswith("        0           0")
    assert lines[4].endswith("        2     1.5e-07")


def test_kernels_of_each_release_have_a_line() -> None:
    kernels = (KernelsRecord("1.15", 12, 534_120), KernelsRecord("2.21", 1, None))
    lines = report_text(structs.replace(make_report(), kernels=kernels)).splitlines()
    assert [line for line in lines if line.startswith("kernels")] == [
        "kernels  12 kernels of TensorFlow 1.15 registered, about 534,120 bytes of code",
        "kernels  1 kernel of TensorFlow 2.21 registered",
    ]


def test_unchecked_step_has_a_dash() -> None:
    lines = report_text(make_report(checks=[check(0.5)]), width=100).splitlines()
    assert lines[4].endswith("  -")


def test_package_warnings_are_shown() -> None:
    report = make_report(warnings=["2 batch norms are left"])
    assert "  warning: 2 batch norms are left\nmodel" in report_text(report)


def test_freeze_warnings_are_shown() -> None:
    freeze = {**FREEZE, "warnings": ["bn: was in training mode"]}
    assert "  warning: bn: was in training mode\n" in report_text(make_report(freeze=freeze))


def test_table_without_steps_has_the_source() -> None:
    lines = report_text(make_report(steps=[])).splitlines()
    assert lines[1:3] == [
        "step    nodes  parameters   bytes  matched  added  removed  changed",
        "frozen     72      10,349  49,261",
    ]


def test_columns_are_aligned_with_long_names() -> None:
    name = "a_transform_of_my_own_with_quite_a_long_name"
    lines = report_text(make_report(steps=[*STEPS, step(name)]), width=120).splitlines()[1:6]
    assert len({len(line) for line in lines if "frozen" not in line}) == 1
    assert lines[-1].startswith(name)


def test_only_the_name_is_bold() -> None:
    assert report_text(make_report(), color=True) == f"\x1b[1mdigits/phone\x1b[0m\n{GOLDEN[13:]}"


def test_sentences_wrap_at_the_terminal_width() -> None:
    lines = report_text(make_report(), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[9:11] == [
        "accuracy top-1 0.9933 before, 0.9911 after (450 samples); largest output",
        "         difference 0.0082",
    ]
    joined = "\n".join(lines).replace("\n         ", " ")
    assert f"{joined}\n" == GOLDEN


def engine_lines(source: dict, model: dict, *checks: dict) -> list[str]:
    validation = {**VALIDATION, "engines": {"source": source, "model": model}}
    text = report_text(make_report(validation=validation, checks=list(checks)))
    return [line for line in text.splitlines() if line.startswith("engine")]


def test_engines_have_a_line_with_the_worst_agreement() -> None:
    worse = {**OPENVINO, "samples": 1, "within": 1e-5}
    checks = [check(0, engine=worse), check(0, step="fold", engine=NUMPY)]
    agreement = "agrees with numpy within 1e-05 of the largest value"
    allowed = "(4 samples; at most 1e-04 is allowed)"
    assert engine_lines(OPENVINO, NUMPY, *checks) == [
        f"engine   openvino 2026.4.1 ran source, after a_step: {agreement} {allowed}",
        "engine   numpy ran model, after fold: it is the reference, so nothing is compared",
    ]
    assert (
        "ran source, model, 2 transforms' graphs:"
        in engine_lines(OPENVINO, OPENVINO, checks[0], check(0, engine=OPENVINO))[0]
    )


def test_difference_of_a_file_is_not_a_disagreement() -> None:
    file = {**OPENVINO, "name": "litert", "version": "2.1.0", "within": 1e-2}
    assert engine_lines(NUMPY, file)[1] == (
        "engine   litert 2.1.0 ran model: differs from the graph before conversion, run with "
        "numpy, by at most 1e-02 of the largest value (4 samples)"
    )


def test_engine_without_comparison_has_a_reason() -> None:
    alone = {**OPENVINO, "samples": 0, "within": None, "unlike": "the op 'Odd' cannot be run here"}
    assert engine_lines(alone, OPENVINO)[0] == (
        "engine   openvino 2026.4.1 ran source: not compared with numpy: "
        "the op 'Odd' cannot be run here"
    )


APART = "largest difference 0.25 of the peak of 'probabilities'"


def check_lines(*, data: str | None, difference: float, **changes: object) -> list[str]:
    samples = {**SAMPLES, "data": data}
    checks = [{**check(difference), **changes}]
    text = report_text(make_report(samples=samples, checks=checks))
    return [line for line in text.splitlines() if line.startswith(("check", "  image"))]


def test_check_describes_drawn_samples() -> None:
    assert check_lines(data=None, difference=0.5) == [
        f"check    8 samples drawn: {APART} after a_step",
        "  image: float32 [1, 8, 8, 1], 0 to 1 (the graph does not show the range)",
    ]


def test_check_names_the_data_and_the_limit() -> None:
    assert check_lines(data="test.npz", difference=0.5, max_difference=0.3) == [
        f"check    8 samples of test.npz: {APART} after a_step (at most 0.3)",
    ]


def test_check_without_difference_names_no_step() -> None:
    (line,) = check_lines(data="test.npz", difference=0.0)
    assert line.endswith("largest difference 0 of the peak of 'probabilities'")


def test_long_words_are_not_split() -> None:
    # Users copy paths.
    path = "models/" + "long" * 12
    report = make_report(warnings=[f"see {path} for more"])
    assert f"\n{path}\n" in report_text(report, width=20)


def test_words_are_not_split_at_hyphens() -> None:
    report = make_report(warnings=["a long-drawn-out word"])
    for width in range(14, 26):
        assert "long-drawn-out" in report_text(report, width=width).split()


def test_metrics_have_a_table_or_sentences_if_narrow() -> None:
    (top1,) = VALIDATION["metrics"]
    psnr = {
        **top1,
        "metric": "psnr",
        "output": "image",
        "before": 40.0,
        "after": 31.25,
        "max_drop": None,
        "at_least": 30.0,
    }
    errors = {**top1, "metric": "word_error_rate", "output": "text", "higher_is_better": False}
    report = make_report(validation={**VALIDATION, "metrics": [top1, psnr, errors]})
    text = report_text(report)
    assert "accuracy of 3 metrics (450 samples); largest output difference 0.0082\n" in text
    table = text[text.index("  metric ") :].splitlines()[:4]
    assert [line.split() for line in table] == [
        ["metric", "output", "before", "after", "limit"],
        ["top1", "probabilities", "0.9933", "0.9911", "drop", "0.01"],
        ["psnr", "image", "40", "31.25", "at", "least", "30"],
        ["word_error_rate", "text", "0.993333", "0.991111", "rise", "0.01"],
    ]
    assert len({len(line) for line in table}) == 1
    narrow = report_text(report, width=60)
    assert "  psnr of 'image': 40 before, 31.25 after (at least 30)\n" in narrow


def test_calibrations_are_shown() -> None:
    assert (
        "ranges   of 1,300 tensors measured by percentile 99.99 on 200 samples of data/c.npz; "
        "2 not reached\n  warning: no sample reached 2 tensors\naccuracy"
    ) in report_text(make_report(calibrations=[MEASURED]))
    from_file = structs.replace(MEASURED, origin="ranges.yaml", is_measured=False, unseen=())
    text = report_text(make_report(calibrations=[structs.replace(from_file, samples=1, tensors=1)]))
    assert "ranges   of 1 tensor from ranges.yaml, by percentile 99.99 on 1 sample\n" in text


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


TENSORS = (
    TensorRecord("net/conv", "Conv2D", False, False, 20.5, 0.99567, None, None),
    TensorRecord("net/conv/weights", "Const", True, True, 35.0, 1.0, 0.0, 0.2891),
    TensorRecord("net/relu", "Relu6", False, True, 37.0, 0.9998, 0.0123, 0.325),
    TensorRecord("net/more", "Relu6", False, True, 38.0, 1.0, 0.0, 0.3),
    TensorRecord("net/best", "Relu6", False, True, 39.0, 1.0, 0.0, 0.29),
)
DAMAGE = DamageRecord("data/test.npz", 16, TENSORS)


def quantization_step(name: str, **options: object) -> dict[str, object]:
    return {"name": name, "options": options}


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], ""),
        ([quantization_step("fold_constants"), quantization_step("sort_by_execution_order")], ""),
        ([quantization_step("quantize_weights", minimum_size=1024)], "weights"),
        ([quantization_step("linear_quantize_weights")], "weights, 8 bits"),
        ([quantization_step("linear_quantize_weights", bits=4)], "weights, 4 bits"),
        ([quantization_step("cast_weights", type="bfloat16")], "weights, bfloat16"),
        ([quantization_step("round_weights", num_steps=256)], "round"),
        ([quantization_step("quantize_nodes", ranges="observed")], "nodes, observed"),
        ([quantization_step("quantize_nodes")], "nodes, as the original"),
        (
            [quantization_step("round_weights"), quantization_step("quantize_weights")],
            "round and weights",
        ),
    ],
)
def test_text_describes_the_quantization_of_a_chain(steps, text: str) -> None:
    assert quantization_text({"transforms": steps}) == text


def test_worst_activations_and_weights_are_listed() -> None:
    assert list(damage_lines(DAMAGE, 80)) == [
        (
            "tensors  5 compared with float on 16 samples of data/test.npz, those that lost most "
            "(rounding alone has an RMSE of 0.289 of the scale):"
        ),
        "  tensor            of         dB  cosine  clipped  RMSE/scale",
        "  net/conv          Conv2D   20.5  0.9957        -           -",
        "  net/relu          Relu6    37.0  0.9998    1.23%       0.325",
        "  net/more          Relu6    38.0  1.0000    0.00%       0.300",
        "  net/conv/weights  weights  35.0  1.0000    0.00%       0.289",
    ]


def test_narrow_terminal_has_numbers_below_names() -> None:
    lines = list(damage_lines(DAMAGE, 52))[1:]
    assert lines[1] == "  net/conv"
    assert lines[2].split() == ["Conv2D", "20.5", "0.9957", "-", "-"]
    assert max(map(len, lines)) <= 52


def test_unmeasured_damage_has_a_reason() -> None:
    damage = DamageRecord("data/test.npz", 0, unmeasured="no kernel of Foo")
    assert list(damage_lines(damage, 80)) == ["tensors  not compared with float: no kernel of Foo"]


def test_text_describes_the_quantization_of_a_tflite_target() -> None:
    assert quantization_text({"transforms": [], "quantize": {"mode": "int8"}}) == "int8"
    assert quantization_text({"transforms": [], "quantize": {"mode": "none"}}) == ""
