"""Plans of recipes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, to_builtins

from mobileprep.building.plan import engines
from mobileprep.building.plan.engines import EngineRecord, RunningStage
from mobileprep.building.plan.fingerprints import changes_of, components
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import (
    CacheEntryError,
    Plan,
    PlannedPage,
    StageSpec,
    Upstream,
    read_record,
)
from mobileprep.building.stages.budget.spec import BudgetLine, BudgetRecord
from mobileprep.building.stages.calibrate.spec import CalibrationRecord
from mobileprep.building.stages.check.spec import CheckRecord, DefaultCheckRecord, SamplesRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import (
    CompressRecord,
    KernelsRecord,
    ModelFacts,
    PackageRecord,
)
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.spec import ValidationRecord
from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.recipe.load import load_recipe
from mobileprep.targets.migration.records import Route
from tests.building.stages.kinds import STAGES

HEAD = """
version: 1
name: {name}
source: {{frozen: model.pb}}
inputs: {{x: {{}}}}
outputs: [y]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model.pb", "other.pb", "data.npz", "o.npz", "log.txt"):
        (tmp_path / name).write_text(name)
    return tmp_path


def planned(*texts: str, targets: frozenset[str] = frozenset()) -> Plan:
    """The plan of recipes with the common head and these contents."""
    recipes = []
    for i, text in enumerate(texts):
        path = Path(f"recipe{i}.yaml")
        path.write_text(text if "version" in text else HEAD.format(name=f"r{i}") + text)
        recipes.append(load_recipe(path, environ=os.environ))
    return plan_recipes(recipes, targets)


def tasks(plan: Plan) -> list[str]:
    return [s.task for s in plan.stages]


TWO = """
transforms: [strip_unused_nodes, fold_batch_norms]
targets:
  a: {quantize: weights}
  b: {quantize: round}
"""


def test_targets_share_their_first_steps(folder: Path) -> None:
    assert tasks(planned(TWO)) == [
        "r0/freeze",
        "r0/01-strip_unused_nodes",
        "r0/02-fold_batch_norms",
        "r0/03-quantize_weights",
        "r0/a/package",
        "r0/a/compress",
        "r0/default-samples",
        "r0/03-quantize_weights-check",
        "r0/nodes-source",
        "r0/a/nodes",
        "r0/03-round_weights",
        "r0/b/package",
        "r0/b/compress",
        "r0/03-round_weights-check",
        "r0/b/nodes",
    ]


@pytest.mark.parametrize(
    ("target", "upstream"),
    [
        ("{}", Upstream("r0/freeze", "graph.pb")),
        ("{artifact: text}", Upstream("r0/a/package", "files/r0.pbtxt")),
        ("{artifact: memmapped}", Upstream("r0/a/package", "files/r0.pb")),
        ("{protect: {encrypt: {key: env:K}}}", Upstream("r0/a/encrypt", "files/r0.pb.enc")),
    ],
)
def test_compressed_size_is_of_the_graph_or_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, upstream: Upstream
) -> None:
    monkeypatch.setenv("K", "00" * 32)
    plan = planned(f"targets: {{a: {target}}}\n")
    assert list(plan.stage("r0/a/compress").stage.upstream.values()) == [upstream]


def test_stages_follow_their_dependencies(folder: Path) -> None:
    plan = planned(TWO + "validation: {data: data.npz}\n")
    done: set[str] = set()
    for spec in plan.stages:
        assert set(spec.needs) <= done
        done.add(spec.task)
    for spec in plan.stages:
        for up in spec.stage.upstream.values():
            assert up.output in plan.stage(up.task).stage.output_files
    assert {type(s.stage) for s in plan.stages} <= set(STAGES)


def test_source_is_evaluated_once(folder: Path) -> None:
    plan = planned(TWO + "validation: {data: data.npz}\n")
    assert [t for t in tasks(plan) if "eval" in t or "valid" in t] == [
        "r0/evaluate-source",
        "r0/a/evaluate",
        "r0/a/validate",
        "r0/b/evaluate",
        "r0/b/validate",
    ]


SAME_LABEL = """
targets:
  a: {transforms: [{round_weights: {num_steps: 2}}]}
  b: {transforms: [{round_weights: {num_steps: 3}}]}
  c: {transforms: [{round_weights: {num_steps: 2}}]}
  d: {transforms: [{round_weights: {num_steps: 4}}]}
"""


def test_missing_engine_is_reported_with_its_position(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_version", lambda _name: "")
    text = "engine: openvino\ntargets: {a: {}, b: {engine: auto}}\n"
    assert len(planned(text).targets) == 2  # no graph is run
    with pytest.raises(UnsupportedError, match="not installed") as caught:
        planned(text + "validation: {data: data.npz}\n")
    assert caught.value.where == "recipe0.yaml:7:9"


def test_targets_with_different_engines_evaluate_the_source_each(folder: Path) -> None:
    plan = planned("""
validation: {data: data.npz}
check: true
transforms: [fold_batch_norms]
targets:
  a: {}
  b: {engine: auto}
  c: {engine: numpy}
""")
    running = [s for s in plan.stages if isinstance(s.stage, RunningStage)]
    engine_names = {s.task: s.stage.engine.name for s in running}
    assert engine_names == {
        "r0/samples": "numpy",
        "r0/b/samples": "auto",
        "r0/01-fold_batch_norms-check": "numpy",
        "r0/a/check": "numpy",
        "r0/evaluate-source": "numpy",
        "r0/a/evaluate": "numpy",
        "r0/b/01-fold_batch_norms-check": "auto",
        "r0/b/evaluate-source": "auto",
        "r0/b/evaluate": "auto",
        "r0/b/check": "auto",
    }


def parameters(spec: StageSpec) -> dict[str, Any]:
    return spec.stage.parameters


def samples(plan: Plan) -> StageSpec:
    (spec,) = (s for s in plan.stages if s.kind == "samples")
    return spec


def test_data_of_a_check_is_an_input(folder: Path) -> None:
    plan = planned("""
check: {data: log.txt, samples: 3, max_difference: 0.5}
transforms: [remove_device]
validation: {data: data.npz}
targets: {a: {}}
""")
    spec = samples(plan)
    assert [f.name for f in spec.input_files] == ["log.txt"]
    assert "log.txt" in {f.name for f in plan.targets[0].sources}
    assert (parameters(spec)["section"], parameters(spec)["count"]) == ("check", 3)
    checks = [s for s in plan.stages if s.kind == "check"]
    assert [parameters(check)["max_difference"] for check in checks] == [0.5, 0.5]
    assert plan.targets[0].upstreams(SamplesRecord) == [Upstream(spec.task, "samples.json")]


def test_check_defaults_to_the_validation_data(folder: Path) -> None:
    more = "check: true\ntransforms: [remove_device]\ntargets: {a: {}}\n"
    spec = samples(planned(f"validation: {{data: data.npz}}\n{more}"))
    assert parameters(spec)["section"] == "validation"
    assert [f.name for f in spec.input_files] == ["data.npz"]
    drawn = samples(planned(more))
    assert parameters(drawn)["data"] is None
    assert not drawn.input_files


def test_check_without_transforms_is_of_the_package(folder: Path) -> None:
    plan = planned("check: true\ntargets: {a: {}}\n")
    (check,) = (s for s in plan.stages if s.kind == "check")
    assert check.stage.upstream["graph"] == Upstream("r0/a/package", "files/r0.pb")
    assert plan.targets[0].upstreams(CheckRecord) == [Upstream(check.task, "check.json")]


def test_target_overrides_the_check_of_the_recipe(folder: Path) -> None:
    plan = planned("""
check: {data: data.npz, max_difference: 0.1}
transforms: [remove_device]
targets:
  a: {}
  b: {check: {max_difference: 0.2}}
  c: {check: false}
""")
    limits = {s.task: parameters(s)["max_difference"] for s in plan.stages if s.kind == "check"}
    assert limits == {
        "r0/01-remove_device-check": 0.1,
        "r0/a/check": 0.1,
        "r0/b/01-remove_device-check": 0.2,
        "r0/b/check": 0.2,
    }
    assert samples(plan).task == "r0/samples"


def test_equal_steps_share_a_task_and_others_do_not(folder: Path) -> None:
    plan = planned(SAME_LABEL)
    assert [t for t in tasks(plan) if t.endswith("round_weights")] == [
        "r0/01-round_weights",
        "r0/b/01-round_weights",
        "r0/d/01-round_weights",
    ]
    chains = [t.upstreams(TransformRecord)[0].task for t in plan.targets]
    assert chains[0] == chains[2] == "r0/01-round_weights"


def test_steps_after_different_steps_are_not_shared(folder: Path) -> None:
    plan = planned("""
targets:
  a: {transforms: [strip_unused_nodes, fold_batch_norms]}
  b: {transforms: [remove_device, fold_batch_norms]}
""")
    assert [t for t in tasks(plan) if "02" in t] == [
        "r0/02-fold_batch_norms",
        "r0/b/02-fold_batch_norms",
    ]


def test_models_have_separate_freezes_and_directories(folder: Path) -> None:
    plan = planned("""
version: 1
name: pair
outputs: [y]
models:
  first: {source: {frozen: model.pb}}
  second: {source: {frozen: other.pb}}
targets:
  a: {}
  b: {quantize: weights}
""")
    assert [t.folder for t in plan.targets] == [
        "pair/first/a",
        "pair/first/b",
        "pair/second/a",
        "pair/second/b",
    ]
    freezes = [s for s in plan.stages if s.kind == "freeze"]
    assert [s.input_files[0].name for s in freezes] == ["model.pb", "other.pb"]
    assert len(set(tasks(plan))) == len(plan.stages)
    packages = [parameters(s)["file"] for s in plan.stages if s.kind == "package"]
    assert packages == ["first.pb", "first.pb", "second.pb", "second.pb"]
    # Both targets have the same device and runtime.
    counted = [parameters(s)["model"] for s in plan.stages if s.kind == "candidate"]
    assert counted == ["first", "second"]


def test_recipes_share_equal_stages(folder: Path) -> None:
    plan = planned(TWO, TWO)
    assert len(set(tasks(plan))) == len(plan.stages)
    assert [t.folder for t in plan.targets] == ["r0/a", "r0/b", "r1/a", "r1/b"]
    assert sum(s.kind == "freeze" for s in plan.stages) == 1
    assert [parameters(s)["file"] for s in plan.stages if s.kind == "package"] == [
        "r0.pb",
        "r0.pb",
        "r1.pb",
        "r1.pb",
    ]


def test_only_requested_targets_are_planned(folder: Path) -> None:
    plan = planned(TWO, targets=frozenset({"b"}))
    assert [t.target for t in plan.targets] == ["b"]
    assert not any("quantize" in t for t in tasks(plan))


def test_target_lists_its_tasks_and_files(folder: Path) -> None:
    plan = planned(TWO + "validation: {data: data.npz}\n")
    target = plan.targets[0]
    assert target.tasks == (
        "r0/freeze",
        "r0/01-strip_unused_nodes",
        "r0/02-fold_batch_norms",
        "r0/03-quantize_weights",
        "r0/a/package",
        "r0/a/compress",
        "r0/evaluate-source",
        "r0/a/evaluate",
        "r0/a/validate",
        "r0/nodes-source",
        "r0/a/nodes",
    )
    assert target.page == PlannedPage(
        Upstream("r0/nodes-source", "nodes.json"),
        Upstream("r0/a/nodes", "nodes.json"),
        tuple(Upstream(task, "page.json") for task in target.tasks[:4]),
        ("strip_unused_nodes", "fold_batch_norms", "quantize_weights"),
    )
    assert [up.output for up in target.upstreams(TransformRecord)] == ["step.json"] * 3
    assert target.upstreams(FreezeRecord) == [Upstream("r0/freeze", "freeze.json")]
    assert target.upstreams(PackageRecord) == [Upstream("r0/a/package", "package.json")]
    assert target.upstreams(ValidationRecord) == [Upstream("r0/a/validate", "validation.json")]
    assert target.upstreams(SamplesRecord) == target.upstreams(CheckRecord) == []
    assert [f.name for f in target.sources] == ["model.pb", "data.npz"]
    assert [t["name"] for t in target.settings["transforms"]][-1] == "quantize_weights"


def test_missing_file_is_reported_with_its_position(folder: Path) -> None:
    (folder / "model.pb").rename(folder / "modle.pb")
    with pytest.raises(CorruptFileError, match=r"model.pb does not exist") as caught:
        planned(TWO)
    assert caught.value.where.startswith("recipe0.yaml:4:")
    assert caught.value.hint == "did you mean 'modle.pb'?"


def test_file_of_a_step_is_an_input(folder: Path) -> None:
    text = """
transforms:
  - freeze_requantization_ranges: {min_max_log_file: log.txt}
targets: {a: {}}
"""
    plan = planned(text)
    step = next(s for s in plan.stages if s.kind == "transform")
    assert [(f.name, f.path) for f in step.stage.files["parameter min_max_log_file"].members] == [
        ("log.txt", folder / "log.txt")
    ]
    assert parameters(step)["options"]["min_max_log_file"] == "log.txt"
    assert "log.txt" in [f.name for f in plan.targets[0].sources]
    (folder / "log.txt").unlink()
    with pytest.raises(CorruptFileError, match=r"log\.txt does not exist") as caught:
        planned(text)
    assert caught.value.where.startswith("recipe0.yaml:")


def test_checkpoint_of_a_step_includes_all_its_files(folder: Path) -> None:
    members = ["c.data-00000-of-00002", "c.data-00001-of-00002", "c.index"]
    for name in (*members, "c2.index", "c-1.index"):
        (folder / name).write_text(name)
    plan = planned("""
transforms: 'sparsify_gather(input_checkpoint="c")'
targets: {a: {then: [sort_by_execution_order]}}
""")
    step = next(s for s in plan.stages if s.kind == "transform")
    slot = "parameter input_checkpoint"
    assert [f.name for f in step.stage.files[slot].members] == members
    assert step.stage.files[slot].root == folder / "c"
    assert set(members) < {f.name for f in plan.targets[0].sources}
    assert step.places["transforms"] == "recipe0.yaml:8:14"


def test_implied_step_has_the_position_of_its_key(folder: Path) -> None:
    plan = planned("""
targets:
  a: {quantize: weights}
  b: {sort: true}
""")
    positions = [s.places["transforms"] for s in plan.stages if s.kind == "transform"]
    assert positions == ["recipe0.yaml:9:17", "recipe0.yaml:10:13"]


@pytest.mark.parametrize(
    ("task", "edit", "message"),
    [
        ("r0/b/package", ("ios", "linux"), 'platform: "ios" became "linux" (recipe0.yaml:8:'),
        ("r0/a/package", ("[x86]", "[x86_64]"), 'abis: ["x86"] became ["x86_64"] (recipe0.yaml:8:'),
        ("r0/a/evaluate", ("samples: 9", "samples: 8"), "samples: 9 became 8 (recipe0.yaml:9:1)"),
        (
            "r0/a/evaluate",
            ("data.npz", "o.npz"),
            'data: "data.npz" became "o.npz" (recipe0.yaml:9:1)',
        ),
        ("r0/a/evaluate", ("batch: 9", "batch: 8"), "batch: 9 became 8 (recipe0.yaml:9:1)"),
        ("r0/a/evaluate", ("seed: 9", "seed: 8"), "seed: 9 became 8 (recipe0.yaml:9:1)"),
        ("r0/a/evaluate", ("strict: true", ""), "strict: true became false (recipe0.yaml:9:1)"),
        (
            "r0/a/validate",
            ("max_drop: 0.1", "max_drop: 0.2"),
            "metrics.0.max_drop: 0.1 became 0.2 (recipe0.yaml:9:1)",
        ),
    ],
)
def test_changed_parameter_is_reported_with_its_position(
    folder: Path, task: str, edit: tuple[str, str], message: str
) -> None:
    recipe = """
targets: {a: {platform: android, abis: [x86]}, b: {platform: ios}}
validation:
  data: data.npz
  samples: 9
  batch: 9
  seed: 9
  strict: true
  max_drop: 0.1
"""
    before, after = (planned(text).stage(task) for text in (recipe, recipe.replace(*edit)))
    (change, *_) = changes_of(after, components(before.stage, {}), components(after.stage, {}))
    assert str(change).startswith(message)


def test_fingerprints_do_not_contain_absolute_paths(folder: Path) -> None:
    plan = planned(TWO + "validation: {data: data.npz}\n")
    for spec in plan.stages:
        assert str(folder) not in repr(components(spec.stage, {}))


EDITS = {
    "outputs: [y]": ("outputs: [z]", {"freeze"}),
    "x: {}": ("x: {shape: [1, 2]}", {"evaluate", "freeze", "nodes"}),
    "frozen: model.pb": ("frozen: other.pb", {"freeze"}),
    "[strip_unused_nodes, fold_batch_norms]": ("[strip_unused_nodes]", {"transform"}),
    "quantize: weights": ("quantize: {mode: weights, minimum_size: 5}", {"transform"}),
    "a: {": ("a: {platform: ios, ", {"package"}),
    "b: {": ("b: {budget: {model_bytes: 1 MB}, ", {"budget"}),
    "max_drop: 0.01": ("max_drop: 0.02", {"validate"}),
    "labels: label": ("labels: other", {"evaluate"}),
    "inputs: {x: {}}": ("inputs: {x: {}}\nengine: auto", {"evaluate"}),
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda e: e.strip(": {"))
def test_edit_changes_only_the_affected_stages(folder: Path, edit: str) -> None:
    text = HEAD.format(name="r") + TWO
    text += "validation: {data: data.npz, labels: label, max_drop: 0.01}\n"
    other, kinds = EDITS[edit]
    assert edit in text
    before, after = (stage_texts(planned(t)) for t in (text, text.replace(edit, other)))
    changed = {name.partition(" ")[0] for name in before ^ after}
    assert changed == kinds


def stage_texts(plan: Plan) -> set[str]:
    """Kind and parameters of each stage, without its name."""
    return {f"{s.kind} {own_parameters(s)}" for s in plan.stages}


def own_parameters(spec: StageSpec) -> dict[str, Any]:
    # Steps get the earlier steps only for their warnings.
    return {k: v for k, v in parameters(spec).items() if k != "earlier"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("meta_graph: model.pb, checkpoint: ckpt", ["assets/words", "ckpt.index", "model.pb"]),
        ("graph: model.pb, checkpoint: ckpt", ["ckpt.index", "model.pb"]),
        ("frozen: model.pb", ["model.pb"]),
        ("frozen: model.pb, assets: assets", ["assets/words", "model.pb"]),
        ("frozen: model.pb, assets: assets/words", ["assets/words", "model.pb"]),
    ],
)
def test_only_a_meta_graph_includes_the_assets_next_to_it(
    folder: Path, source: str, names: list[str]
) -> None:
    (folder / "assets").mkdir()
    for name in ("assets/words", "ckpt.index"):
        (folder / name).write_text(name)
    head = HEAD.format(name="r0").replace("frozen: model.pb", source)
    plan = planned(head + "targets: {phone: {}}\n")
    assert sorted(file.name for file in plan.stage("r0/freeze").input_files) == names
    assert sorted(file.name for file in plan.targets[0].sources) == names


OBSERVED = """
transforms: [strip_unused_nodes]
calibration: {data: data.npz, workers: 2}
targets:
  a: {quantize: {mode: nodes, ranges: observed}}
  b: {quantize: {mode: nodes, ranges: observed}, calibration: {workers: 4}}
  c: {quantize: nodes}
"""


def test_calibration_precedes_the_step_that_uses_its_ranges(folder: Path) -> None:
    plan = planned(OBSERVED)
    # The number of workers does not matter, so two targets share it.
    assert tasks(plan)[:4] == [
        "r0/freeze",
        "r0/01-strip_unused_nodes",
        "r0/02-quantize_nodes-calibrate",
        "r0/02-quantize_nodes",
    ]
    assert tasks(plan).count("r0/02-quantize_nodes-calibrate") == 1
    calibrate = plan.stage("r0/02-quantize_nodes-calibrate").stage
    assert calibrate.upstream["graph"] == Upstream("r0/01-strip_unused_nodes", "graph.pb")
    assert plan.stage("r0/02-quantize_nodes").stage.upstream["ranges"] == Upstream(
        "r0/02-quantize_nodes-calibrate", "ranges.yaml"
    )
    assert "ranges" not in plan.stage("r0/c/02-quantize_nodes").stage.upstream
    folders = {t.target: {f.name for f in t.sources} for t in plan.targets}
    assert "data.npz" in folders["a"]
    assert "data.npz" not in folders["c"]


LITE = """
transforms: [strip_unused_nodes]
calibration: {data: data.npz}
targets:
  a: {artifact: tflite, quantize: int8}
  b: {artifact: tflite, quantize: {mode: int16x8, repair: [fold_constants]}}
  c: {artifact: tflite, quantize: {mode: int8, rules: [{nodes: ^y, mode: float}]}}
  d: {artifact: tflite, quantize: weights}
  e: {artifact: tflite, quantize: {mode: int8, ranges: trained}, calibration: null}
  f: {quantize: weights}
"""


def test_integer_tflite_file_uses_the_ranges_of_its_graph(
    folder: Path,
) -> None:
    plan = planned(LITE)
    shared = "r0/02-tflite-calibrate"
    assert [t for t in tasks(plan) if "calibrate" in t] == [shared, "r0/03-tflite-calibrate"]
    assert plan.stage(shared).stage.upstream["graph"] == Upstream(
        "r0/01-strip_unused_nodes", "graph.pb"
    )
    packages = {name: plan.stage(f"r0/{name}/package").stage for name in "abcdef"}
    ranges = {name: p.upstream.get("ranges") for name, p in packages.items()}
    assert ranges["a"] == ranges["c"] == Upstream(shared, "ranges.yaml")
    assert ranges["b"] == Upstream("r0/03-tflite-calibrate", "ranges.yaml")
    assert ranges["d"] is ranges["e"] is ranges["f"] is None
    # Only rules use regular expressions.
    assert [bool(p.parameters["regular_expressions"]) for p in packages.values()] == [
        *(False, False, True, False, False, False)
    ]
    modes = {name: p.parameters["quantize"]["mode"] for name, p in packages.items()}
    assert (modes["d"], modes["f"]) == ("weights", "none")
    folders = {t.target: {f.name for f in t.sources} for t in plan.targets}
    assert "data.npz" in folders["a"]
    assert "data.npz" not in folders["d"]


def test_range_file_replaces_the_data(folder: Path) -> None:
    text = OBSERVED.replace("workers: 2", "range_file: ranges.yaml")

    def files() -> set[str]:
        return set(planned(text).stage("r0/02-quantize_nodes-calibrate").stage.files)

    assert files() == {"data"}
    (folder / "ranges.yaml").write_text("version: 1")
    assert files() == {"data", "range_file"}
    (folder / "data.npz").unlink()
    assert files() == {"range_file"}
    (folder / "ranges.yaml").unlink()
    with pytest.raises(CorruptFileError, match=r"data\.npz does not exist"):
        planned(text)
    with pytest.raises(CorruptFileError, match=r"the range file ranges\.yaml does not exist"):
        planned(text.replace("data: data.npz, ", ""))


QUANTIZED = """
transforms: [%s]
targets:
  bare: {%s}
  checked: {check: true, %s}
  validated: {validation: {data: data.npz}, %s}
  declined: {check: false, %s}
"""


@pytest.mark.parametrize(
    ("steps", "quantize"),
    [
        ("remove_device", "quantize: weights"),
        ("remove_device", "quantize: float16"),
        ("remove_device", "quantize: round"),
        ("remove_device", "quantize: nodes"),
        ("remove_device", "artifact: tflite, quantize: weights"),
        ("linear_quantize_weights", "sort: true"),
        ("remove_device", ""),
    ],
)
def test_quantized_targets_get_a_default_check(folder: Path, steps: str, quantize: str) -> None:
    plan = planned(QUANTIZED % (steps, *[quantize] * 4))
    kinds = {spec.task: spec.kind for spec in plan.stages}
    checked = [
        target.target
        for target in plan.targets
        if "default_check" in {kinds[task] for task in target.tasks}
    ]
    assert checked == (["bare"] if quantize else [])
    assert [bool(target.upstreams(DefaultCheckRecord)) for target in plan.targets] == [
        *(bool(quantize), False, False, False)
    ]


KERNELS = KernelsRecord("1.15", 3, None)
ENGINE = EngineRecord("openvino", 1e-4, "9.1", 3, 1e-5)


@pytest.mark.parametrize(
    "record",
    [
        BudgetRecord((BudgetLine("flops", 5, 7), BudgetLine("latency_ms", 0.5, 1.5, "a rate"))),
        CompressRecord(7, "deflate"),
        PackageRecord(ModelFacts("m.pb", 1, 2, 3, 4), {"Relu": 1}, ("careful",), (KERNELS,)),
        CheckRecord("fold_constants", "y", 0.5, 0.25, None, ENGINE),
        CheckRecord("fold_constants", "y", 0.5, 0.25, 1.0, EngineRecord("numpy", 1e-4)),
        FreezeRecord(1, 2, 3, 4, {"Add": 1}, 5, ("a", "b"), (), {}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_round_trip(record: Any) -> None:
    data = json.loads(json.dumps(to_builtins(record)))
    again = convert(data, type(record))
    assert again == record
    assert repr(again) == repr(record)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CompressRecord, "[]"),
        (CompressRecord, "{"),
        (CompressRecord, "[" * 50_000),
        (CompressRecord, '{"bytes": 1}'),
        (CompressRecord, '{"bytes": true, "compressor": ""}'),
        (CompressRecord, '{"bytes": null, "compressor": ""}'),
        (CompressRecord, '{"bytes": 1.5, "compressor": ""}'),
        (CompressRecord, '{"bytes": 1, "compressor": 2}'),
        (CompressRecord, f'{{"bytes": {10**400}, "compressor": ""}}'),
        (BudgetRecord, '{"lines": "ab"}'),
        (BudgetRecord, '{"lines": [7]}'),
        (BudgetRecord, '{"lines": [{"name": "flops", "found": "5", "limit": 7}]}'),
        (CalibrationRecord, '{"ranges": [1]}'),
        (CalibrationRecord, '{"ranges": {"a": [1, "b"]}}'),
        (CalibrationRecord, f'{{"ranges": {{"a": [1, {10**400}]}}}}'),
        (Route, '{"runtime": "none", "verdict": "as-is"}'),
    ],
    ids=str,
)
def test_invalid_json_is_refused(kind: type, text: str) -> None:
    upstream = Upstream("r/task", "output.json")
    with pytest.raises(CacheEntryError, match=r"output\.json makes no sense") as caught:
        read_record(kind, text.encode(), upstream)
    assert caught.value.tasks == (upstream.task,)
