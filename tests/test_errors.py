"""The error tree."""

from __future__ import annotations

import pickle
import time

import pytest

from mobileprep import errors
from mobileprep.errors import MobileprepError, did_you_mean, named, nearest_hint

CODES = {
    "UsageError": 2,
    "RecipeError": 3,
    "CorruptFileError": 4,
    "InvalidGraphError": 5,
    "UnsupportedError": 6,
    "TransformError": 7,
    "AccuracyError": 8,
    "ArtifactError": 9,
    "InternalError": 70,
}


def test_exit_codes_of_classes() -> None:
    classes = {
        c.__name__: c.exit_code
        for c in MobileprepError.__subclasses__()
        if c.__module__ == errors.__name__
    }
    assert classes == CODES


@pytest.mark.parametrize("name", sorted(CODES))
def test_errors_survive_pickling(name: str) -> None:
    error = getattr(errors, name)("message", "hint", "where")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.message, copy.hint, copy.where) == ("message", "hint", "where")


def test_location_precedes_the_message() -> None:
    assert str(MobileprepError("is empty", where="a.pb")) == "a.pb: is empty"
    assert str(MobileprepError("is empty")) == "is empty"


def test_nearest_name_is_suggested() -> None:
    assert did_you_mean("Conv2d", ["Relu", "Conv2D", "Conv3D"]) == ["Conv2D"]
    assert nearest_hint("outputz", ["outputs", "inputs"]) == "did you mean 'outputs'?"
    assert nearest_hint("zzz", ["outputs"]) == ""


def test_nearest_of_many_names_is_found_quickly() -> None:
    names = [f"block{i % 97}/layer{i}/weights" for i in range(50_000)]
    started = time.process_time()
    assert did_you_mean("block9/layre9/weights", names) == ["block9/layer9/weights"]
    assert did_you_mean("lock9/layer9/weights", names) == ["block9/layer9/weights"]
    assert time.process_time() - started < 2


def test_relocated_error_keeps_its_class_and_other_fields() -> None:
    error = errors.CorruptFileError("is too short", "copy it again", "a.pb")
    moved = error.at("recipe.yaml:3:1")
    assert type(moved) is errors.CorruptFileError
    assert moved.args == ("is too short", "copy it again", "recipe.yaml:3:1")
    assert error.where == "a.pb"
    assert error.at("b", message="m").args == ("m", "copy it again", "b")
    assert error.at("b", hint="h").args == ("is too short", "h", "b")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "none"),
        (["a", "b c"], "a, b c"),
        (["a\nb"], "'a\\nb'"),
        (["x" * 61], "x" * 57 + "..."),
        ([str(n) for n in range(1_021)], ", ".join(map(str, range(20))) + ", and 1,001 more"),
    ],
)
def test_names_from_files_fit_on_one_line(names: list[str], expected: str) -> None:
    assert named(names) == expected
