"""Differences of two reports of a target, and their causes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.comparing_reports import (
    NO_SETTINGS,
    Place,
    compare_builds,
    compare_reports,
)
from mobileprep.building.report.collect import Report, comparison_data, report_json
from mobileprep.building.report.comparison.model import (
    Cause,
    Comparison,
    Figure,
    NodeChange,
    NodeChanges,
    RangeChange,
    StepChange,
    comparison_lines,
    comparison_title,
    comparisons_markdown,
)
from mobileprep.building.report_files import report_from
from tests.building.report.reports import MEASURED, STEPS, VALIDATION, make_report, step


def place(keys: Sequence[str | int]) -> str:
    return f"recipe.yaml:{'/'.join(map(str, keys))}"


def chain(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"options": {}, "ignore_errors": False, **one} for one in steps]


def settings(minimum_size: int = 1024, **others: Any) -> dict[str, Any]:
    weights = {"name": "quantize_weights", "options": {"minimum_size": minimum_size}}
    return {
        "inputs": [{"name": "image", "shape": [-1, 8]}],
        "transforms": chain({"name": "strip_unused_nodes"}, weights),
        **others,
    }


def report(settings: dict[str, Any], **options: Any) -> Report:
    built = make_report(**options)
    sources = {"model/graph.pbtxt": "ab" * 32}
    return structs.replace(built, tool="mobileprep 1", settings=settings, sources=sources)


def compared(old: Report, new: Report, where: Place = place) -> Comparison:
    return compare_reports(old, new, where)


OLD = report(settings())


def test_equal_reports_have_no_differences() -> None:
    comparison = compared(OLD, OLD)
    assert comparison == Comparison("digits", "phone", "same")
    assert comparison_title(comparison) == "digits/phone: nothing differs"
    assert comparison_lines(comparison) == []


def test_changed_option_is_a_cause_with_its_effect() -> None:
    smaller = [STEPS[0], step("quantize_weights", nodes=1240, bytes=15000, matched=4)]
    new = report(settings(16), steps=smaller)
    comparison = compared(OLD, new)
    key = "transforms.quantize_weights.minimum_size"
    assert comparison.causes == (Cause("setting", key, 1024, 16, "recipe.yaml:transforms/1"),)
    (changed,) = comparison.steps
    assert (changed.kind, changed.number, changed.causes) == ("changed", 2, (key,))
    assert Figure("bytes", 15723 - 49261, 15000 - 49261) in changed.figures
    assert Figure("matched", 2, 4) in changed.figures
    assert comparison.state == "changed"


def test_steps_with_the_same_effect_are_not_listed() -> None:
    steps = [step("a", nodes=70, bytes=100), step("b", nodes=60, bytes=90)]
    others = [step("a", nodes=68, bytes=95), step("b", nodes=58, bytes=85)]
    comparison = compared(report({}, steps=steps), report({}, steps=others))
    assert [one.name for one in comparison.steps] == ["a"]


def test_added_and_removed_steps_have_their_position() -> None:
    old = report({"transforms": chain({"name": "a"}, {"name": "b"})}, steps=[step("a"), step("b")])
    new = report({"transforms": chain({"name": "b"}, {"name": "b"})}, steps=[step("b"), step("b")])
    comparison = compared(old, new)
    assert [(c.key, c.before, c.after) for c in comparison.causes] == [
        ("transforms.a", {}, None),
        ("transforms.b#2", None, {}),
    ]
    assert [(s.kind, s.number, s.name) for s in comparison.steps] == [
        ("removed", 1, "a"),
        ("added", 2, "b"),
    ]
    assert comparison.steps[1].causes == ("transforms.b#2",)


def test_causes_name_the_innermost_key() -> None:
    old = settings(check=None, freeze={"clear_devices": True, "batch_norm": "inference"})
    new = settings(
        check={"samples": 4},
        freeze={"clear_devices": False, "batch_norm": "inference"},
        inputs=[{"name": "image", "shape": [1, 8]}],
    )
    keys = {c.key: (c.before, c.after) for c in compared(report(old), report(new)).causes}
    assert keys == {
        "check": (None, {"samples": 4}),
        "freeze.clear_devices": (True, False),
        "inputs.image.shape": ([-1, 8], [1, 8]),
    }


def test_files_and_the_tool_are_causes() -> None:
    new = structs.replace(OLD, tool="mobileprep 2", sources={"model/graph.pbtxt": "cd" * 32})
    assert [(c.what, c.key) for c in compared(OLD, new).causes] == [
        ("tool", "mobileprep"),
        ("source", "model/graph.pbtxt"),
    ]


def test_report_without_settings_has_no_causes() -> None:
    comparison = compared(make_report(), report(settings(16), steps=[]))
    assert (comparison.causes, comparison.untold) == ((), NO_SETTINGS)
    assert f"cause    not known: {NO_SETTINGS}" in comparison_lines(comparison)


def test_metrics_outputs_ranges_and_warnings_are_compared() -> None:
    other = json.loads(json.dumps(VALIDATION))
    other["metrics"][0]["after"] = 0.5
    other["outputs"][0]["share_of_peak"] = 0.5
    ranged = structs.replace(MEASURED, ranges={"a": (0.0, 6.0), "b": (0.0, 1.0)})
    again = structs.replace(MEASURED, ranges={"a": (0.0, 5.5), "c": (0.0, 1.0)}, warnings=())
    old = report(settings(), calibrations=[ranged])
    new = report(settings(), calibrations=[again], validation=other, warnings=["beware"])
    comparison = compared(old, new)
    assert comparison.accuracies == (Figure("top-1", 446 / 450, 0.5),)
    assert comparison.outputs == (Figure("probabilities", 0.0083, 0.5),)
    assert comparison.ranges == (
        RangeChange("a", (0.0, 6.0), (0.0, 5.5)),
        RangeChange("c", None, (0.0, 1.0)),
        RangeChange("b", (0.0, 1.0), None),
    )
    assert (comparison.warnings, comparison.solved) == (
        ("beware",),
        ("no sample reached 2 tensors",),
    )


def test_figures_of_a_graph_and_its_file_are_not_compared() -> None:
    graph, file = (
        report(settings(), validation={**VALIDATION, "basis": f"measured on {subject}"})
        for subject in ("the graph before conversion", "digits.tflite")
    )
    comparison = compared(graph, file)
    top1, share, basis = 446 / 450, 0.0083, "measured on the graph before conversion"
    assert comparison.accuracies == (
        Figure("top-1", None, top1),
        Figure(f"top-1 ({basis})", top1, None),
    )
    assert comparison.outputs == (
        Figure("probabilities", None, share),
        Figure(f"probabilities ({basis})", share, None),
    )


def test_nan_on_both_sides_is_not_a_difference() -> None:
    record = {**VALIDATION, "outputs": [{**VALIDATION["outputs"][0], "share_of_peak": math.nan}]}
    broken = report(settings(), validation=record)
    assert compared(broken, broken).state == "same"


def test_targets_are_matched_by_name() -> None:
    other = structs.replace(OLD, target="pi")
    third = structs.replace(OLD, target="tv")
    comparison = compare_builds([OLD, other], [OLD, third], lambda _: place, lambda *_: None)
    assert [(c.target, c.state) for c in comparison] == [
        ("phone", "same"),
        ("tv", "added"),
        ("pi", "removed"),
    ]
    (alone,) = compare_builds([OLD], [third], lambda _: place, lambda *_: None)
    assert (alone.target, alone.state) == ("tv", "same")


CHANGED = Comparison(
    "digits",
    "phone",
    "changed",
    (Cause("source", "model/<b>.pb", "ab" * 32, None), Cause("setting", "x", [1] * 40, "|")),
    steps=(StepChange("changed", 1, "fold", (), ()), StepChange("removed", 2, "sort", (), ())),
    sizes=(Figure("model bytes", 1000, 900), Figure("file x.h", None, 3)),
    ranges=tuple(RangeChange(f"t{n}", (0.0, 1.0), (0.0, 2.0)) for n in range(12)),
    nodes=NodeChanges(3, 1, (NodeChange("added", "<script>", "+ <script> (Const)"),)),
)


def test_text_lists_causes_steps_and_figures() -> None:
    lines = comparison_lines(CHANGED)
    assert lines[:6] == [
        "cause    file model/<b>.pb: abababababab -> none",
        f'cause    x: {"[" + "1, " * 18 + "1,"}... -> "|"',
        "step     01 fold: the same counts",
        "step     02 sort is gone",
        "size     model bytes 1,000 -> 900 (-10.0%)",
        "size     file x.h none -> 3",
    ]
    assert "range    t0: [0, 1] -> [0, 2]" in lines
    assert "         ... and 2 more (--json has all)" in lines
    assert lines[-2:] == [
        "nodes    1 added, 0 removed, 0 changed of 3 that are in both (1 under another name)",
        "         + <script> (Const)",
    ]
    assert all(len(line) <= 40 for line in comparison_lines(CHANGED, 40) if "model/" not in line)


def test_markdown_escapes_names() -> None:
    text = comparisons_markdown([CHANGED, compared(OLD, OLD)])
    assert "<script>" not in text
    assert "<b>" not in text
    assert "| model bytes | 1,000 | 900 | -10.0% |" in text
    assert text.endswith("Nothing differs in digits/phone.\n")


def test_json_replaces_infinity_by_null() -> None:
    odd = structs.replace(CHANGED, causes=(Cause("setting", "x", math.inf, 1.0),))
    assert comparison_data(odd)["causes"][0]["before"] is None


def test_report_round_trip() -> None:
    text = report_json(report(settings(), calibrations=[MEASURED], checks=[]))
    again = report_from(json.loads(text))
    assert report_json(again) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("model"), "the report has no 'model'"),
        (lambda d: d["model"].update(bytes="1"), "'bytes' has a value of another type"),
        (lambda d: d["model"].update(bytes=True), "'bytes' has a value of another type"),
        (lambda d: d.update(ops=[1]), "'ops' has a value of another type"),
        (lambda d: d.update(steps=3), "'steps' has a value of another type"),
        (lambda d: d["steps"].append(3), "'steps' has a value of another type"),
        (
            lambda d: d["accuracy"].update(largest_difference="x"),
            "'largest_difference' is not a number",
        ),
        (lambda d: d["model"].update(bytes=10**400), "'bytes' is larger than any number"),
        (lambda d: d["accuracy"].update(largest_difference=-(10**400)), "is larger than any"),
    ],
)
def test_invalid_report_is_refused_with_the_invalid_part(change: Any, message: str) -> None:
    data = json.loads(report_json(OLD))
    change(data)
    with pytest.raises(ValueError, match=message):
        report_from(data)


def test_unknown_keys_are_ignored() -> None:
    data = {**json.loads(report_json(OLD)), "weather": "fine"}
    assert report_from(data) == report_from(json.loads(report_json(OLD)))
