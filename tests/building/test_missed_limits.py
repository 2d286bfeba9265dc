"""A limit that eight-bit nodes miss: the build names the layers to leave in float."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mobileprep import build
from mobileprep.building import builder, quantization_debugging
from mobileprep.errors import AccuracyError, MissedLimitError

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
CRUDE = "{nodes: '^(Conv|Pointwise|Logits)/', mode: nodes, bits: 2}"
HEAD = """\
extends: ../digits/recipe.yaml
name: crude
calibration: {data: ../digits/data/calibration.npz, method: min_max}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECIPES / "digits", "digits")
    Path("crude").mkdir()
    return tmp_path


def built(sections: str, rules: str) -> None:
    quantize = f"{{mode: nodes, ranges: observed, rules: [{rules}]}}"
    targets = f"targets:\n  phone: null\n  download: null\n  eight: {{quantize: {quantize}}}\n"
    Path("crude/recipe.yaml").write_text(HEAD + sections + targets)
    build("crude/recipe.yaml", warn=lambda _: None)


def failure(sections: str, rules: str = CRUDE) -> AccuracyError:
    with pytest.raises(AccuracyError) as error:
        built(sections, rules)
    assert error.value.exit_code == 8
    return error.value


def rule_of(error: AccuracyError) -> str:
    found = re.search(r"\n    rules: \[(.*)\]$", error.hint)
    assert found is not None, error.hint
    return found[1]


def test_suggested_rule_meets_the_limit() -> None:
    error = failure("validation: {max_drop: 0.02}\n")
    assert error.message.startswith("top-1 accuracy fell by ")
    assert error.where.startswith("crude")
    assert "lose most, one at a time on 8 samples: under 'quantize', write" in error.hint
    rule = rule_of(error)
    assert rule.startswith("{mode: float, nodes: '^(")
    assert rule.count("|") == 2  # three layers
    built("validation: {max_drop: 0.02}\n", f"{CRUDE}, {rule}")


def test_a_check_names_them_as_well() -> None:
    error = failure("check: {data: ../digits/data/test.npz, max_difference: 0.2}\n")
    assert "quantize_nodes" in error.message
    assert rule_of(error).startswith("{mode: float, nodes: '^(")


def test_long_analysis_is_stopped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_SECONDS", 0.0)
    error = failure("validation: {max_drop: 0.02}\n")
    assert "on 8 samples of the first 1: under 'quantize'" in error.hint
    assert "|" not in rule_of(error)


def test_a_limit_that_the_source_misses_is_not_for_its_layers() -> None:
    error = failure("validation: {at_least: 0.9999, max_drop: null}\n")
    assert not isinstance(error, MissedLimitError)
    assert "rules:" not in error.hint


def test_failed_ranking_keeps_the_original_error(monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no samples"
        raise AccuracyError(message)

    monkeypatch.setattr(quantization_debugging, "worst_layers", refuse)
    error = failure("validation: {max_drop: 0.02}\n")
    assert error.message.startswith("top-1 accuracy fell by ")
    assert error.hint == "use a gentler quantization, or raise max_drop"
