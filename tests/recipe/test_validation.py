"""The section ``validation``, with one metric or a list of metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError, RecipeError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Target
from mobileprep.recipe.presence import check_files
from mobileprep.recipe.validation_settings import (
    MetricChoice,
    MetricFunction,
    NamedValidation,
    Validation,
)

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\noutputs: [probs, image]\ntargets: {p: {}}\n"


def load_target(directory: Path, text: str) -> Target:
    (target,) = load_recipe(directory / "recipe.yaml", text=text, environ={}).targets
    return target


def validation(directory: Path, keys: str, head: str = HEAD) -> Validation:
    section = load_target(directory, f"{head}validation: {{data: d.npz{keys}}}\n").validation
    assert section is not None
    return section


@pytest.mark.parametrize(
    ("keys", "choices"),
    [
        ("", [MetricChoice(max_drop=0.01)]),
        (", labels: y", [MetricChoice(labels="y", max_drop=0.01)]),
        (", metric: top7, max_drop: 0", [MetricChoice(metric="top7", max_drop=0.0)]),
        (", metric: auc, at_least: 0.9", [MetricChoice(metric="auc", at_least=0.9)]),
        (
            ", metric: psnr, output: image, peak: 255, at_least: 30",
            [MetricChoice(metric="psnr", output="image", peak=255.0, at_least=30.0)],
        ),
        (
            ", labels: y, metrics: [{metric: top1}, {metric: r2, output: image, labels: z}]",
            [
                MetricChoice(metric="top1", labels="y", max_drop=0.01),
                MetricChoice(metric="r2", output="image", labels="z", max_drop=0.01),
            ],
        ),
        (
            ', metric: word_error_rate, characters: "ab "',
            [MetricChoice(metric="word_error_rate", characters="ab ", max_drop=0.01)],
        ),
        (
            ', metric: word_error_rate, characters: [a, ""]',
            [MetricChoice(metric="word_error_rate", characters=("a", ""), max_drop=0.01)],
        ),
        (
            ", metric: mean_iou, ignore: 255, threshold: 1",
            [MetricChoice(metric="mean_iou", ignore=255, threshold=1.0, max_drop=0.01)],
        ),
    ],
)
def test_metrics_of_the_section(tmp_path: Path, keys: str, choices: list[MetricChoice]) -> None:
    assert list(validation(tmp_path, keys).metrics) == choices


def test_function_is_read_from_a_file(tmp_path: Path) -> None:
    keys = ", metric: {python: tools/m.py, function: f, higher_is_better: false}, at_most: 2"
    section = validation(tmp_path, keys)
    (choice,) = section.metrics
    assert isinstance(choice.metric, MetricFunction)
    assert (choice.metric.function, choice.metric.higher_is_better) == ("f", False)
    assert [file.path for file in section.functions] == [tmp_path / "tools" / "m.py"]
    for name in ("m.pb", "d.npz", "recipe.yaml"):
        (tmp_path / name).write_text(f"{HEAD}validation: {{data: d.npz{keys}}}\n")
    with pytest.raises(CorruptFileError, match=r"no such file: 'tools/m\.py'"):
        check_files(load_recipe(tmp_path / "recipe.yaml", environ={}))


def test_locations_of_the_metric_and_its_limit(tmp_path: Path) -> None:
    text = f"{HEAD}validation:\n  data: d\n  metrics:\n  - metric: psnr\n    at_least: 3\n"
    section = load_target(tmp_path, text).validation
    assert section is not None
    locations = section.metrics[0].place, section.metrics[0].limit_place
    assert [place.rpartition("recipe.yaml:")[2] for place in locations] == ["9:13", "10:15"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (", metric: tpo1", "'tpo1' cannot be used here: .*; did you mean 'top1'"),
        (", metric: top0", "'top0' cannot be used here"),
        (", metric: psnr", r"6:\d+: validation.metric: 'psnr' needs a limit"),
        (", metric: psnr, at_most: 3", "'at_most' is not a limit of 'psnr', of which higher is"),
        (
            ", metric: word_error_rate, at_least: 0.5",
            "'at_least' is not a limit .* write 'at_most'",
        ),
        (", metric: top1, max_drop: 1.5", "validation.max_drop: must be at most 1; one percent"),
        (", metric: top1, max_drop: -1", "must be at least 0"),
        (", metric: top1, peak: 2", "'peak' does not concern the metric 'top1'"),
        (", metric: psnr, at_least: 3, ignore: 1", "'ignore' does not concern the metric 'psnr'"),
        (", output: logits", "'logits' is none of the outputs probs, image"),
        (", output: probs, outputs: [a, b, c]", "'output' and 'outputs' exclude each other"),
        (", metric: mean_average_precision", "is of 3 or 4 outputs; name boxes"),
        (", outputs: [probs, image, probs]", "'auto' is of 1 output; write 'output: ...'"),
        (", metric: {python: m.py}, max_drop: 1", "the key 'function' is missing"),
        (", metric: {python: m.py, function: a b}, max_drop: 1", "'a b' cannot be used here"),
        (", metric: {python: m.py, function: f}", "this function needs a limit"),
        (
            ", metric: {python: m, function: f, higher_is_better: false}, at_least: 1",
            "'at_least' is not a limit of this function, of which lower is better",
        ),
        (", metrics: [{metric: top1}], max_drop: 0.1", "'max_drop' is of a single metric, and th"),
        (", metrics: [{metric: top1}], metric: auc", "'metric' is of a single metric"),
        (", metrics: []", "needs at least 1 item"),
        (", metrics: [top1]", "expected a mapping, found the text 'top1'"),
        (", metrics: [{output: probs}]", "the key 'metric' is missing"),
        (", metrics: [{metric: top1, data: d}]", "unknown key 'data'"),
        (", metric: 3", "expected text or a mapping, found the number 3"),
        (", peak: [1]", "expected a number, found a list"),
    ],
)
def test_invalid_section_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validation(tmp_path, keys)


@pytest.mark.parametrize(
    ("of_recipe", "of_target", "choice"),
    [
        ("metric: top1, output: probs, at_least: 0.5", "metrics: [{metric: auc}]", ("auc", 0.01)),
        ("metrics: [{metric: auc}]", "metric: r2, max_drop: 0.5", ("r2", 0.5)),
        ("metric: auc", "max_drop: 0.25", ("auc", 0.25)),
        ("metrics: [{metric: auc}]", "labels: y", ("auc", 0.01)),
    ],
)
def test_target_replaces_the_metrics_of_the_recipe(
    tmp_path: Path, of_recipe: str, of_target: str, choice: tuple[str, float]
) -> None:
    head = HEAD.replace("{p: {}}", f"{{p: {{validation: {{{of_target}}}}}}}")
    section = validation(tmp_path, f", {of_recipe}", head)
    assert [(c.metric, c.max_drop, c.output) for c in section.metrics] == [(*choice, None)]


@pytest.mark.parametrize("engine", ["litert", "graph"])
def test_engine_requires_a_tflite_target(tmp_path: Path, engine: str) -> None:
    with pytest.raises(RecipeError, match="'engine' of 'validation' requires 'artifact: tflite'"):
        validation(tmp_path, f", engine: {engine}")
    with pytest.raises(RecipeError, match="'engine' of 'check' requires 'artifact: tflite'"):
        load_target(tmp_path, f"{HEAD}check: {{engine: {engine}}}\n")
    text = HEAD.replace("{p: {}}", "{p: {artifact: tflite}}")
    text += f"validation: {{data: d.npz, engine: {engine}}}\ncheck: {{engine: {engine}}}\n"
    target = load_target(tmp_path, text)
    assert target.validation is not None
    assert target.check is not None
    assert (target.validation.engine, target.check.engine) == (engine, engine)


def test_litert_settings_require_a_tflite_target(tmp_path: Path) -> None:
    settings = "litert: {detection_postprocess: auto}"
    with pytest.raises(RecipeError, match="'litert' requires 'artifact: tflite'"):
        load_target(tmp_path, HEAD.replace("{p: {}}", f"{{p: {{{settings}}}}}"))
    text = HEAD.replace("{p: {}}", f"{{p: {{artifact: tflite, {settings}}}}}")
    target = load_target(tmp_path, text)
    assert target.transforms[-1].name == "replace_detection_postprocess"
    text = text.replace("auto", "keep")
    target = load_target(tmp_path, text)
    assert "replace_detection_postprocess" not in [step.name for step in target.transforms]


DATA_SETS_HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\ntargets: {p: TARGET}\nvalidation:\n"
STUDIO = "  - {name: studio, data: studio.npz}\n"


def data_sets_load_target(directory: Path, items: str, target: str = "{}") -> Target:
    text = f"{DATA_SETS_HEAD.replace('TARGET', target)}{items}"
    (loaded,) = load_recipe(directory / "recipe.yaml", text=text, environ={}).targets
    return loaded


def names(target: Target) -> list[tuple[str, str]]:
    """Return the name and the data of each validation."""
    validations = target.validations
    return [(v.name, v.data.file.name) for v in validations if isinstance(v, NamedValidation)]


def test_list_of_validations(tmp_path: Path) -> None:
    phone = "  - {name: phone, data: phone.npz, max_gap: 0.05, max_drop: 0.02}\n"
    target = data_sets_load_target(tmp_path, f"{STUDIO}{phone}")
    assert names(target) == [("studio", "studio.npz"), ("phone", "phone.npz")]
    assert target.validation == target.validations[0]
    limits = [(c.max_drop, c.max_gap) for v in target.validations for c in v.metrics]
    assert limits == [(0.01, None), (0.02, 0.05)]
    assert target.validation_keys(target.validations[1]) == ("validation", 1)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (
            "{name: studio, data: phone.npz}",
            (
                "recipe.yaml:7:12: validation[1].name: another validation has the name 'studio'; "
                "give each data set its own name"
            ),
        ),
        (
            "{data: phone.npz}",
            "recipe.yaml:7:5: validation[1]: the key 'name' is missing; add 'name: ...'",
        ),
        (
            "{name: phone, data: phone.npz, max_gp: 0.1}",
            "recipe.yaml:7:36: validation[1].max_gp: unknown key 'max_gp'; did you mean 'max_gap'?",
        ),
        (
            "{name: phone}",
            "recipe.yaml:7:5: validation[1]: validation needs a test set; add 'data: test.npz'",
        ),
        (
            "{name: phone, data: phone.npz, metric: top5, max_gap: 0.1}",
            (
                "recipe.yaml:7:50: validation[1].max_gap: the first validation does not have the "
                "metric 'top5' to compare with; did you mean 'auto'?"
            ),
        ),
        (
            "{name: phone, data: phone.npz, output: y, max_gap: 0.1}",
            (
                "recipe.yaml:7:47: validation[1].max_gap: the first validation measures 'auto' of "
                "another output; name the same output in both validations"
            ),
        ),
        (
            "{name: phone, data: phone.npz, max_gap: -1}",
            "recipe.yaml:7:45: validation[1].max_gap: must be at least 0",
        ),
        (
            "{name: phone, data: {npz: a.npz, csv: a.csv}}",
            "recipe.yaml:7:38: validation[1].data.csv: data has one kind: 'npz' is already set",
        ),
        (
            "{name: phone, data: phone.npz, engine: graph}",
            "recipe.yaml:7:44: validation[1].engine: 'engine' of 'validation' requires",
        ),
        (
            "{name: phone, data: phone.npz, metric: psnr, max_gap: 1}",
            "recipe.yaml:7:44: validation[1].metric: 'psnr' needs a limit",
        ),
        ("7", "recipe.yaml:7:5: validation[1]: expected a mapping, found the number 7"),
    ],
)
def test_invalid_items(tmp_path: Path, item: str, problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        data_sets_load_target(tmp_path, f"{STUDIO}  - {item}\n")
    assert problem in str(caught.value)


def test_gap_of_the_first_validation(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="this is the first"):
        data_sets_load_target(tmp_path, "  - {name: studio, data: studio.npz, max_gap: 0.1}\n")


def test_gap_of_a_single_validation(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'max_gap' compares data sets, and there is one"):
        data_sets_load_target(tmp_path, "  {data: studio.npz, max_gap: 0.1}\n")


def test_empty_list(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="needs at least 1 item"):
        data_sets_load_target(tmp_path, "  []\n")


def test_closest_metric(tmp_path: Path) -> None:
    first = "  - {name: a, data: a.npz, metric: top5}\n"
    with pytest.raises(RecipeError, match="did you mean 'top5'"):
        data_sets_load_target(
            tmp_path, f"{first}  - {{name: b, data: b.npz, metric: top1, max_gap: 0.1}}\n"
        )


def test_gap_of_a_metric_in_a_list(tmp_path: Path) -> None:
    first = "  - {name: a, data: a.npz, metrics: [{metric: top1}, {metric: top5}]}\n"
    second = "  - {name: b, data: b.npz, metrics: [{metric: top5, max_gap: 0.1}]}\n"
    target = data_sets_load_target(tmp_path, f"{first}{second}")
    assert [c.max_gap for c in target.validations[1].metrics] == [0.1]
    misplaced = "  - {name: c, data: c.npz, metrics: [{metric: top5}], max_gap: 0.1}\n"
    with pytest.raises(RecipeError, match="'max_gap' is of a single metric"):
        data_sets_load_target(tmp_path, f"{first}{misplaced}")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("{validation: [{name: b, data: b.npz}]}", [("b", "b.npz")]),
        ("{validation: null}", []),
        ("{}", [("studio", "studio.npz")]),
    ],
)
def test_targets_replace_the_list(
    tmp_path: Path, target: str, expected: list[tuple[str, str]]
) -> None:
    assert names(data_sets_load_target(tmp_path, STUDIO, target)) == expected


def test_mapping_replaces_a_list(tmp_path: Path) -> None:
    target = data_sets_load_target(tmp_path, STUDIO, "{validation: {data: c.npz}}")
    assert [v.data.file.name for v in target.validations] == ["c.npz"]
    with pytest.raises(RecipeError, match="validation needs a test set"):
        data_sets_load_target(tmp_path, STUDIO, "{validation: {max_drop: 0.1}}")


def test_extending_recipe_replaces_the_list(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(f"{DATA_SETS_HEAD.replace('TARGET', '{}')}{STUDIO}")
    text = "extends: base.yaml\nvalidation: [{name: b, data: b.npz}]\n"
    (target,) = load_recipe(tmp_path / "recipe.yaml", text=text, environ={}).targets
    assert names(target) == [("b", "b.npz")]


def test_missing_files_of_every_data_set(tmp_path: Path) -> None:
    (tmp_path / "m.pb").write_bytes(b"")
    text = f"{DATA_SETS_HEAD.replace('TARGET', '{}')}{STUDIO}  - {{name: b, data: b.npz}}\n"
    recipe = load_recipe(tmp_path / "recipe.yaml", text=text, environ={})
    with pytest.raises(CorruptFileError) as caught:
        check_files(recipe)
    assert "recipe.yaml:6:26: no such file: 'studio.npz'" in str(caught.value)
    assert "recipe.yaml:7:21: no such file: 'b.npz'" in str(caught.value)
