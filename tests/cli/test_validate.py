"""``validate`` opens models and data, and reports problems with their line in the recipe."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.engines import engine_version
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from tests.building.stages.jobs import classifier, placeholder
from tests.cli.conftest import Run
from tests.freezing.graphs import placeholder as shaped
from tests.transforms.graphs import const, conv, node, normal

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs:
  x: {}
outputs: [y]
transforms: [remove_device]
targets: {phone: {}, pi: {}}
"""
X, LABEL = np.eye(3, dtype=np.float32), np.arange(3)


@pytest.fixture(autouse=True)
def _folder(workdir: Path) -> None:
    write_graph(Path("model.pb"), classifier())


def validate(run: Run, more: str = "", change: tuple[str, str] = ("", "")) -> tuple[int, str]:
    Path("recipe.yaml").write_text(RECIPE.replace(*change) + more)
    result = run("validate", "recipe.yaml")
    return result.code, result.err or result.out


def test_valid_recipe_is_ok(run: Run) -> None:
    write_arrays(Path("data.npz"), {"x": X, "label": LABEL})
    more = "validation: {data: data.npz}\ncheck: {data: data.npz}\n"
    assert validate(run, more) == (0, "recipe.yaml: ok, 2 targets: phone, pi\n")


def test_wrong_names_are_reported_with_their_lines(run: Run) -> None:
    wrong = "  xx: {}\n  x: {dtype: int8, shape: [1, 4]}\noutputs: [z, yy]"
    code, err = validate(run, change=("  x: {}\noutputs: [y]", wrong))
    assert code == 3
    locations = re.findall(r"(recipe\.yaml:\S+): (\S+): ", err)
    assert locations == [
        ("recipe.yaml:5:3", "inputs.xx"),
        ("recipe.yaml:6:14", "inputs.x.dtype"),
        ("recipe.yaml:6:20", "inputs.x.shape"),
        ("recipe.yaml:7:11", "outputs[0]"),
        ("recipe.yaml:7:14", "outputs[1]"),
    ]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "label": [0, 12, 1]}, "1 of 3 labels 'label' are none of the model's 3 classes"),
        ({"x": X, "label": [0, -1, 1]}, "the first is -1, of sample 1"),
        ({"x": X, "label": np.eye(3)}, "the labels 'label' are one-hot"),
        ({"x": X, "label": [0.5, 1, 2]}, "are float64, not the numbers of classes, and have fra"),
        ({"x": X, "label": LABEL[:2]}, "2 labels, and x has 3"),
        ({"x": X[:0], "label": LABEL[:0]}, "0 labels, and x has 0"),
        ({"x": X, "lable": LABEL}, "has no array 'label'; it has lable, x; did you mean 'lable'?"),
        ({"xs": X, "label": LABEL}, "has no array 'x'"),
        ({"x": X[:, :2], "label": LABEL}, "takes the shape [?, 3], and the array has [3, 2]"),
        ({"x": X.astype("U4"), "label": LABEL}, "takes float32, and the array is text"),
    ],
)
def test_unsuitable_data_is_reported_with_its_line(
    run: Run, arrays: dict[str, Any], message: str
) -> None:
    write_arrays(Path("data.npz"), {k: np.asarray(v) for k, v in arrays.items()})
    code, err = validate(run, "validation:\n  data: data.npz\n")
    assert code == 8
    assert message in err
    assert "recipe.yaml:10:9: validation.data: " in err


def test_unsuitable_check_data_is_reported_with_its_line(run: Run) -> None:
    write_arrays(Path("data.npz"), {"x": X[:, :1]})
    code, err = validate(run, "check: {data: data.npz}\n")
    assert code == 8
    assert "recipe.yaml:9:15: check.data: data.npz: the input 'x' takes the shape [?, 3]" in err


def test_file_without_arrays_is_reported(run: Run) -> None:
    Path("data.npz").write_text("no arrays")
    code, err = validate(run, "check: {data: data.npz}\n")
    assert code == 4
    assert "recipe.yaml:9:15" in err


def test_input_without_random_samples_is_reported(run: Run) -> None:
    decode = Node("y", "DecodeJpeg", (parse_ref("x"),), attrs={"channels": attr.integer(3)})
    write_graph(Path("model.pb"), Graph([placeholder((), DType.STRING), decode]))
    code, err = validate(run, "check: true\n")
    assert code == 3
    assert "recipe.yaml:9:8: check: no sample can be drawn for the input 'x'" in err
    assert "use the output of DecodeJpeg as the input: 'y'" in err


def test_unreadable_model_is_reported_with_its_line(run: Run) -> None:
    Path("model.pb").write_bytes(b"\xff" * 50)
    code, err = validate(run)
    assert code == 4
    assert "recipe.yaml:3:18: " in err
    assert "model.pb, byte 0: " in err


def test_no_files_option_opens_no_files(run: Run) -> None:
    Path("model.pb").unlink()
    Path("recipe.yaml").write_text(RECIPE)
    assert run("validate", "recipe.yaml").code == 4
    assert run("validate", "--no-files", "recipe.yaml").code == 0


def test_no_files_option_does_not_import_numpy() -> None:
    Path("recipe.yaml").write_text(RECIPE)
    script = (
        "import sys; from mobileprep.cli.main import main; "
        "code = main(['validate', '--no-files', 'recipe.yaml']); "
        "sys.exit(code or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def _with_norm(op: str) -> Graph:
    """A graph with a convolution and a batch norm."""
    statistics = [const(n, abs(normal(3, seed=i)) + 0.5) for i, n in enumerate("gbmv")]
    kinds = {"U": DType.FLOAT} if op == "FusedBatchNormV3" else {}
    norm = node("y", op, "layer g b m v", is_training=False, epsilon=0.001, **kinds)
    weights = const("w", normal(1, 1, 3, 3))
    return Graph([shaped("x", 1, 4, 4, 3), weights, conv("layer", "x w"), *statistics, norm])


@pytest.mark.parametrize(
    ("op", "chain", "has_warning"),
    [
        ("FusedBatchNormV3", "[remove_device]", True),
        ("FusedBatchNormV3", "[fold_batch_norms, fold_old_batch_norms]", True),
        ("FusedBatchNormV3", "[remove_device, fuse_batch_norms]", False),
        ("FusedBatchNorm", "[remove_device]", True),
        ("FusedBatchNorm", "[fold_old_batch_norms]", False),
        ("FusedBatchNorm", "[]", True),
    ],
)
def test_unfolded_batch_norms_cause_one_warning(
    run: Run, op: str, chain: str, has_warning: bool
) -> None:
    write_graph(Path("model.pb"), _with_norm(op))
    code, err = validate(run, change=("[remove_device]", chain))
    warning = (
        f"warning: recipe.yaml:7:1: no step of the chain folds 1 {op} of the model: "
        "put fuse_batch_norms, or optimize, which contains it, into it [MP001]\n"
    )
    assert code == 0
    assert err == (warning if has_warning else "recipe.yaml: ok, 2 targets: phone, pi\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("d.csv", ""),
        ("{csv: d.csv, labels: lable}", "d.csv has no column 'lable'"),
        ("{csv: d.csv, inputs: {y: a}}", "'inputs' names the input 'y'; the model has x"),
        ("folder", "the folder folder holds neither images nor audio nor TFRecords"),
        ("no.csv", "no such file: 'no.csv'"),
        ("data.py", ""),
    ],
)
def test_other_data_is_opened_and_user_code_is_not_run(run: Run, data: str, message: str) -> None:
    Path("d.csv").write_text("a,b,c,label\n1,2,3,0\n")
    Path("data.py").write_text("raise RuntimeError\n")
    Path("folder").mkdir()
    code, err = validate(run, f"validation:\n  data: {data}\n")
    assert (code == 0) == (not message)
    assert message in err


@pytest.mark.parametrize("base", ["version: 1\nnothing: 1\n", "version: 1\n  name: [\n"])
def test_problems_of_a_shared_base_recipe_are_reported_once(run: Run, base: str) -> None:
    Path("base.yaml").write_text(base)
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text(f"extends: base.yaml\nname: {name}\nnone_of_{name}: 1\n")
    result = run("validate", "a.yaml", "b.yaml")
    assert result.code == 3
    assert result.err.count("base.yaml:2:") == 1
    assert [result.err.count(f"none_of_{name}: unknown") for name in "ab"] == [
        1 - ("[" in base)
    ] * 2


@pytest.mark.parametrize(
    ("more", "module", "place", "extra"),
    [
        ("integration: {languages: [cpp]}", "jinja2", "9:11", "integration"),
        ("protect: {encrypt: {key: env:K}}", "cryptography", "9:21", "encrypt"),
        ("check: true, engine: openvino", "openvino", "9:32", "openvino"),
    ],
)
def test_missing_packages_are_reported_with_their_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch, more: str, module: str, place: str, extra: str
) -> None:
    real_find_spec = importlib.util.find_spec

    def find_spec(name: str, *rest: str) -> object:
        return None if name == module else real_find_spec(name, *rest)

    monkeypatch.setenv("K", "07" * 32)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    engine_version.cache_clear()
    targets = f"targets:\n  phone: {{{more}}}"
    code, err = validate(run, change=("targets: {phone: {}, pi: {}}", targets))
    engine_version.cache_clear()
    assert code == 6, err
    assert f"recipe.yaml:{place}: " in err
    assert "which is not installed" in err
    assert f"pip install 'mobileprep[{extra}]'" in err
    assert run("validate", "recipe.yaml", "--no-files").code == 0
