"""The report as text."""

from __future__ import annotations

from msgspec import structs

from mobileprep.building.report.text import report_text
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
    made,
    step,
)

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


def test_the_whole_report() -> None:
    assert report_text(made()) == GOLDEN


def test_without_validation_nothing_is_said_of_accuracy() -> None:
    lines = report_text(made(validation=None)).splitlines()
    of_running = ("accuracy", "engine")
    assert lines == [line for line in GOLDEN.splitlines() if not line.startswith(of_running)]


def test_a_check_adds_a_column() -> None:
    checks = [check(0.0), check(1.5e-7)]
    lines = report_text(made(checks=checks), width=100).splitlines()
    assert lines[1].endswith("changed  difference")
    assert lines[2].endswith("49,261")
    assert lines[3].endswith("        0           0")
    assert lines[4].endswith("        2     1.5e-07")


def test_the_kernels_of_each_release_have_a_line() -> None:
    kernels = (KernelsRecord("1.15", 12, 534_120), KernelsRecord("2.21", 1, None))
    found = report_text(structs.replace(made(), kernels=kernels)).splitlines()
    assert [line for line in found if line.startswith("kernels")] == [
        "kernels  12 kernels of TensorFlow 1.15 registered, about 534,120 bytes of code",
        "kernels  1 kernel of TensorFlow 2.21 registered",
    ]


def test_a_step_that_was_not_checked_is_told_apart() -> None:
    lines = report_text(made(checks=[check(0.5)]), width=100).splitlines()
    assert lines[4].endswith("  -")


def test_warnings_of_what_ships_are_told() -> None:
    report = made(warnings=["2 batch norms are left"])
    assert "  warning: 2 batch norms are left\nmodel" in report_text(report)


def test_warnings_of_freezing_are_told() -> None:
    freeze = {**FREEZE, "warnings": ["bn: was in training mode"]}
    assert "  warning: bn: was in training mode\n" in report_text(made(freeze=freeze))


def test_without_steps_the_table_is_the_source() -> None:
    lines = report_text(made(steps=[])).splitlines()
    assert lines[1:3] == [
        "step    nodes  parameters   bytes  matched  added  removed  changed",
        "frozen     72      10,349  49,261",
    ]


def test_long_names_keep_the_columns_straight() -> None:
    name = "a_transform_of_my_own_with_quite_a_long_name"
    lines = report_text(made(steps=[*STEPS, step(name)]), width=120).splitlines()[1:6]
    assert len({len(line) for line in lines if "frozen" not in line}) == 1
    assert lines[-1].startswith(name)


def test_only_the_name_is_set_off_on_a_terminal() -> None:
    assert report_text(made(), color=True) == f"\x1b[1mdigits/phone\x1b[0m\n{GOLDEN[13:]}"


def test_a_terminal_gets_its_sentences_in_lines_that_fit() -> None:
    lines = report_text(made(), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[9:11] == [
        "accuracy top-1 0.9933 before, 0.9911 after (450 samples); largest output",
        "         difference 0.0082",
    ]
    joined = "\n".join(lines).replace("\n         ", " ")
    assert f"{joined}\n" == GOLDEN


def engine_lines(source: dict, model: dict, *checks: dict) -> list[str]:
    validation = {**VALIDATION, "engines": {"source": source, "model": model}}
    text = report_text(made(validation=validation, checks=list(checks)))
    return [line for line in text.splitlines() if line.startswith("engine")]


def test_each_engine_has_a_line_with_the_worst_agreement() -> None:
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


def test_a_file_that_is_apart_from_its_graph_is_no_disagreement() -> None:
    file = {**OPENVINO, "name": "litert", "version": "2.1.0", "within": 1e-2}
    assert engine_lines(NUMPY, file)[1] == (
        "engine   litert 2.1.0 ran model: differs from the graph before conversion, run with "
        "numpy, by at most 1e-02 of the largest value (4 samples)"
    )


def test_an_engine_that_could_not_be_compared_says_why() -> None:
    alone = {**OPENVINO, "samples": 0, "within": None, "unlike": "the op 'Odd' cannot be run here"}
    assert engine_lines(alone, OPENVINO)[0] == (
        "engine   openvino 2026.4.1 ran source: not compared with numpy: "
        "the op 'Odd' cannot be run here"
    )


APART = "largest difference 0.25 of the peak of 'probabilities'"


def check_lines(*, data: str | None, difference: float, **changes: object) -> list[str]:
    samples = {**SAMPLES, "data": data}
    checks = [{**check(difference), **changes}]
    text = report_text(made(samples=samples, checks=checks))
    return [line for line in text.splitlines() if line.startswith(("check", "  image"))]


def test_a_check_on_drawn_samples_tells_how_they_were_drawn() -> None:
    assert check_lines(data=None, difference=0.5) == [
        f"check    8 samples drawn: {APART} after a_step",
        "  image: float32 [1, 8, 8, 1], 0 to 1 (the graph does not show the range)",
    ]


def test_a_check_on_data_names_it_and_the_bound() -> None:
    assert check_lines(data="test.npz", difference=0.5, max_difference=0.3) == [
        f"check    8 samples of test.npz: {APART} after a_step (at most 0.3)",
    ]


def test_where_nothing_differs_no_step_is_named() -> None:
    (line,) = check_lines(data="test.npz", difference=0.0)
    assert line.endswith("largest difference 0 of the peak of 'probabilities'")


def test_words_longer_than_the_terminal_stay_whole() -> None:
    # A path that is cut cannot be copied.
    path = "models/" + "long" * 12
    report = made(warnings=[f"see {path} for more"])
    assert f"\n{path}\n" in report_text(report, width=20)


def test_words_are_not_cut_at_their_hyphens() -> None:
    report = made(warnings=["a long-drawn-out word"])
    for width in range(14, 26):
        assert "long-drawn-out" in report_text(report, width=width).split()


def test_several_metrics_have_a_table_or_sentences_where_it_is_too_wide() -> None:
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
    report = made(validation={**VALIDATION, "metrics": [top1, psnr, errors]})
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


def test_calibrations_are_told() -> None:
    assert (
        "ranges   of 1,300 tensors measured by percentile 99.99 on 200 samples of data/c.npz; "
        "2 not reached\n  warning: no sample reached 2 tensors\naccuracy"
    ) in report_text(made(calibrations=[MEASURED]))
    kept = structs.replace(MEASURED, origin="ranges.yaml", is_measured=False, unseen=())
    text = report_text(made(calibrations=[structs.replace(kept, samples=1, tensors=1)]))
    assert "ranges   of 1 tensor from ranges.yaml, by percentile 99.99 on 1 sample\n" in text
