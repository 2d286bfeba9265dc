"""An edit of any key of a recipe: the next build gives what one with an empty store gives."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml

from mobileprep import build
from mobileprep.building.report.page.render import PAGE
from mobileprep.formats.arrays import write_arrays
from mobileprep.recipe.schemas import recipe_schema

DIGITS: Final = Path(__file__).resolve().parents[2] / "recipes" / "digits"
BASE: Final[Mapping[str, Any]] = {
    "version": 1,
    "name": "digits",
    "source": {"graph": "model/graph.pbtxt", "checkpoint": "model/model.ckpt-1000"},
    "inputs": {"image": {"dtype": "float32", "shape": [-1, 8, 8, 1]}},
    "outputs": ["probabilities"],
    "transforms": [{"fold_constants": {"ignore_errors": True}}, "fold_old_batch_norms"],
    "check": {"samples": 2},
    "calibration": {"data": "data/calibration.npz", "samples": 8},
    "validation": {
        "data": "data/test.npz",
        "metric": "top1",
        "max_drop": 0.9,
        "samples": 20,
    },
    "integration": {"languages": ["cpp"]},
    "targets": {
        "phone": {
            "platform": "android",
            "abis": ["arm64-v8a"],
            "quantize": {"mode": "nodes", "ranges": "observed"},
            "budget": {"model_bytes": "1 MB"},
        },
        "lite": {"quantize": "weights", "artifact": "tflite"},
    },
}
TARGET: Final = "targets.*."
PHONE: Final = "targets.phone."

# By key: what it is changed to, None to remove it, where a target is meant without its name.
EDITS: Final[Mapping[str, Any]] = {
    "source": {"graph": "other/graph.pbtxt", "checkpoint": "model/model.ckpt-1000"},
    "source.graph": "other/graph.pbtxt",
    "source.checkpoint": "other/model.ckpt-1000",
    "freeze": {"clear_devices": False},
    "freeze.clear_devices": False,
    "freeze.moving_averages": True,
    "freeze.control_flow": "lower",
    "freeze.batch_norm": "keep",
    "freeze.remove_dropout": False,
    "freeze.variable_names_blacklist": ["none"],
    "inputs": {"image": {}},
    "inputs.*.dtype": None,
    "inputs.*.shape": [1, 8, 8, 1],
    "outputs": ["probabilities:0"],
    "transforms": "strip_unused_nodes fold_constants(ignore_errors=true) downgrade",
    "check": False,
    "check.data": "data/other.npz",
    "check.samples": 3,
    "check.max_difference": 0.9,
    "engine": "auto",
    "quantization_report": False,
    "migration_report": True,
    "device": "smartphone",
    "calibration": {"data": "data/other.npz"},
    "calibration.data": "data/other.npz",
    "calibration.method": "min_max",
    "calibration.percentile": 90,
    "calibration.samples": 5,
    "calibration.seed": 1,
    "calibration.batch": 3,
    "calibration.strict": True,
    "calibration.range_file": "ranges.json",
    "validation": None,
    "validation.data": "data/other.npz",
    "validation.samples": 9,
    "validation.seed": 1,
    "validation.batch": 3,
    "validation.strict": True,
    "validation.metric": "top5",
    "validation.output": "probabilities",
    "validation.labels": "again",
    "validation.max_drop": 0.8,
    "validation.at_least": 0.01,
    "integration": None,
    "integration.languages": ["cpp", "java"],
    "integration.package": "com.example.other",
    "integration.class_name": "Other",
    "integration.threads": 3,
    "protect": {"obfuscate": True},
    "protect.obfuscate": True,
    "platform": "ios",
    "abis": ["x86_64", "arm64-v8a"],
    "then": ["share_constants"],
    "quantize": {"mode": "weights", "bits": 4},
    "obfuscate": True,
    "sort": True,
    "artifact": "memmapped",
    "registration": {"tensorflow": ["2.21"]},
    "registration.tensorflow": ["2.21", "1.15"],
    "registration.allow": ["Sin"],
    "ops": {"FancyOp": {"kernel": "FancyOp<float>"}},
    "budget": None,
    "budget.model_bytes": "2 MB",
    "budget.compressed_bytes": "2 MB",
    "budget.parameters": 1_000_000,
    "budget.flops": "9 GFLOP",
    "budget.activation_bytes": "9 MB",
    "budget.ram": "99 MB",
    "budget.kernels": 100,
    "budget.kernel_bytes": "9 MB",
    "budget.ops": {"forbid": ["Sin"]},
    "budget.ops.forbid": ["Sin"],
}
# What decides no result, and runs nothing.
IDLE: Final[Mapping[str, Any]] = {
    "description": "another",
    "memory": "3 GB",
    "calibration.workers": 2,
    "source.sha256": {},
}
# Also given with a key, where it means nothing alone.
BESIDE: Final[Mapping[str, Mapping[str, Any]]] = {
    "platform": {PHONE + "abis": None},
    "artifact": {PHONE + "integration": None},
    "validation": {"check": False},
    "calibration.percentile": {"calibration.method": "percentile"},
}
# Keys without an edit here, and why.
ELSEWHERE: Final[Mapping[str, str]] = {
    "version": "there is one",
    "name": "another is another recipe",
    "extends": "what it brings is of other keys",
    "cache": "where results are kept is no part of them: tests of the remote store",
    "models": "each is a recipe of its own; its keys are those of a recipe",
    "targets": "its keys are here",
    "plugins": "tests of plugins edit them",
    "source.frozen": "a source of another kind",
    "source.meta_graph": "a source of another kind",
    "source.saved_model": "a source of another kind",
    "source.saver": "of sources with one",
    "source.assets": "of graphs that read files",
    "source.tags": "of a SavedModel",
    "source.signature": "of a SavedModel",
    "freeze.initializer_nodes": "of graphs with such ops",
    "freeze.variable_names_whitelist": "of graphs with variables that stay",
    "freeze.restore_op_name": "of graphs with several savers",
    "calibration.decay": "of another method",
    "calibration.dask": "needs a cluster",
    "preprocessing": "of graphs that decode images or audio",
    "decoding": "of graphs with a CTC decoder",
    "integration.labels": "needs a label for each score",
    "check.engine": "needs LiteRT",
    "validation.engine": "needs LiteRT",
    "validation.metrics": "its keys are those of a validation",
    "validation.max_gap": "of a list of validations: tests of data sets",
    "validation.outputs": "of metrics of several outputs",
    "validation.at_most": "of errors",
    "validation.peak": "of another metric",
    "validation.threshold": "of another metric",
    "validation.ignore": "of another metric",
    "validation.characters": "of another metric",
    "protect.encrypt": "needs a key",
    "ops.*.kernel": "tests of targets that load edit it",
    "ops.*.source": "tests of targets that load edit it",
    "flex": "runs nothing here",
    "litert": "of files for LiteRT",
    "litert.min_runtime": "of files for LiteRT",
    "streaming": "of recurrent networks",
    "streaming.steps": "of recurrent networks",
    "budget.ops.allow": "needs every op of the model",
    "budget.latency_ms": "needs a device",
    "budget.download_bytes": "needs an installed model",
    "measurement": "needs the published model: tests of the verb device edit it",
    "download": "needs an installed model: tests of downloads edit it",
    **dict.fromkeys(
        (
            "pipeline",
            *("pipeline.steps", "pipeline.keep_loaded", "pipeline.budget"),
            *("pipeline.budget.latency_ms", "pipeline.budget.flops", "pipeline.budget.ram"),
            *(f"pipeline.budget.latency_ms.{case}" for case in ("expected", "p95", "worst")),
            *(f"pipeline.budget.flops.{case}" for case in ("expected", "p95", "worst")),
        ),
        "of several models: tests of pipelines",
    ),
}
Tree = dict[str, bytes]


@dataclass
class Bench:
    """Builds of one recipe as it is edited, into one folder by one store."""

    recipe: Path
    monkeypatch: pytest.MonkeyPatch

    def build(self, data: Mapping[str, Any], store: str, out: str) -> tuple[Tree, tuple[str, ...]]:
        """What a build leaves but for the page, which tells times, and the stages that ran."""
        self.recipe.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        self.monkeypatch.setenv("MOBILEPREP_CACHE", store)
        done = build(self.recipe, out, warn=lambda _: None)
        files = [p for p in Path(out).rglob("*") if p.is_file() and p.name != PAGE]
        return {str(p.relative_to(out)): p.read_bytes() for p in files}, done.ran


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(DIGITS, folder / "digits")
        shutil.copytree(DIGITS / "model", folder / "digits/other")
        with (folder / "digits/other/graph.pbtxt").open("a", encoding="utf-8") as graph:
            graph.write("\n")
        with np.load(DIGITS / "data/test.npz") as arrays:
            held = {name: arrays[name] for name in arrays.files}
        held["again"] = held["label"][::-1].copy()
        write_arrays(folder / "digits/data/test.npz", held)
        some = {name: array[:30] for name, array in held.items()}
        write_arrays(folder / "digits/data/other.npz", some)
        bench = Bench(folder / "digits/recipe.yaml", patch)
        bench.build(BASE, "store", "out")
        yield bench


def keys(node: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The keys of a schema, those of an entry of a mapping by ``*``."""
    schema = recipe_schema()
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    for kind in ("anyOf", "oneOf", "allOf"):
        for one in node.get(kind, ()):
            yield from keys(one, path)
    for name, value in node.get("properties", {}).items():
        yield f"{path}{name}"
        if f"{path}{name}" not in {"models", "validation.metrics"} and ".targets" not in path:
            yield from keys(value, f"{path}{name}.")
    if isinstance(others := node.get("additionalProperties"), dict):
        yield from keys(others, f"{path}*.")


def edited(key: str, value: Any) -> dict[str, Any]:
    """The recipe with a key changed; of a target, that of the first."""
    data = copy.deepcopy(dict(BASE))
    of_target = key.split(".")[0] not in recipe_schema()["properties"]
    for path, told in {PHONE * of_target + key: value, **BESIDE.get(key, {})}.items():
        *above, last = path.replace("inputs.*", "inputs.image").split(".")
        section = data
        for name in above:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                pytest.fail(f"{path}: {name} is no mapping")
        section.pop(last, None)
        if told is not None:
            section[last] = told
    return data


def test_every_key_is_edited_or_said_not_to_be() -> None:
    found = {key.removeprefix(TARGET) for key in keys(recipe_schema())}
    named = {*EDITS, *IDLE, *ELSEWHERE}
    above = {key for key in found if any(key.startswith(f"{other}.") for other in ELSEWHERE)}
    assert found - above <= named
    assert named <= found


@pytest.mark.slow
@pytest.mark.parametrize("key", EDITS)
def test_build_after_an_edit_equals_a_cold_build(built: Bench, tmp_path: Path, key: str) -> None:
    data = edited(key, EDITS[key])
    shutil.copytree("out", tmp_path / "out")
    shutil.copytree("store", tmp_path / "store")
    left, ran = built.build(data, str(tmp_path / "store"), str(tmp_path / "out"))
    cold, all_of_it = built.build(data, str(tmp_path / "cold"), str(tmp_path / "anew"))
    assert left == cold
    assert len(ran) <= len(all_of_it)
    again, none = built.build(data, str(tmp_path / "store"), str(tmp_path / "out"))
    assert (again, none) == (left, ())


@pytest.mark.parametrize("key", IDLE)
def test_irrelevant_edit_runs_no_stage(built: Bench, key: str) -> None:
    before, _ = built.build(BASE, "store", "out")
    assert built.build(edited(key, IDLE[key]), "store", "out") == (before, ())
