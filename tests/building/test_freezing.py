"""Freezing models whose kind their content tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep import CorruptFileError, FreezeOptions, UsageError, freeze, load_graph, save_graph
from tests.freezing.saved import write_saved_model

DIGITS = Path(__file__).resolve().parents[2] / "recipes" / "digits" / "model"


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    (tmp_path / "exported").mkdir()
    folder: Path = write_saved_model(tmp_path / "exported")
    return folder


def test_a_saved_model_is_named_by_its_folder_or_its_file(exported: Path) -> None:
    whole = freeze(exported)
    assert whole.variables
    assert freeze(str(exported / "saved_model.pb")).outputs == whole.outputs


def test_a_graph_takes_its_checkpoint(tmp_path: Path) -> None:
    path, checkpoint = DIGITS / "graph.pbtxt", DIGITS / "model.ckpt-1000"
    frozen = freeze(path, ["probabilities"], checkpoint=checkpoint)
    assert not any("Variable" in n.op for n in frozen.graph)
    for as_text in (False, True):
        save_graph(frozen.graph, tmp_path / "frozen", as_text=as_text)
        assert load_graph(tmp_path / "frozen").nodes == frozen.graph.nodes


def test_requested_outputs_override_options() -> None:
    path, checkpoint = DIGITS / "graph.pbtxt", DIGITS / "model.ckpt-1000"
    options = FreezeOptions(outputs=("probabilities",))
    assert freeze(path, checkpoint=checkpoint, options=options).outputs == ("probabilities",)
    logits = freeze(path, ["image"], checkpoint=checkpoint, options=options)
    assert [n.name for n in logits.graph] == ["image"]


def test_names_by_themselves_need_no_list(exported: Path) -> None:
    assert freeze(exported, "out", tags="serve").outputs == freeze(exported, ["out"]).outputs


def test_invalid_model_or_output_is_refused(tmp_path: Path, exported: Path) -> None:
    with pytest.raises(CorruptFileError):
        freeze(tmp_path / "none.pb")
    with pytest.raises(UsageError, match="train"):
        freeze(exported, tags=["train"])
