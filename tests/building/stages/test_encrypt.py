"""The encrypt stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.package.run import run_encrypt
from mobileprep.building.stages.package.spec import EncryptStage
from mobileprep.core.keys import Key
from mobileprep.errors import RecipeError
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.targets.memmapped import decrypt
from tests.building.stages.jobs import classifier, job, slots

pytest.importorskip("cryptography")

KEY = Key(bytes(range(32)))


def encrypt_job(folder: Path, model: Any, artifact: str) -> Job[EncryptStage]:
    stage = EncryptStage(
        file="m.pb.enc",
        artifact=artifact,  # type: ignore[arg-type]
        variable="MODEL_KEY",
        key_id=KEY.id.hex(),
        **slots("model"),
    )
    return job(folder, stage, model=model)


@pytest.mark.parametrize("artifact", ["frozen", "text"])
def test_model_is_encrypted(tmp_path: Path, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY.secret.hex())
    text = tmp_path / "m.pbtxt"
    text.write_text('node { name: "x" op: "Placeholder" }\n')
    done = encrypt_job(tmp_path, classifier() if artifact == "frozen" else text, artifact)
    run_encrypt(done)
    data = (done.folder / "files/m.pb.enc").read_bytes()
    expected = graph_to_bytes(classifier()) if artifact == "frozen" else text.read_bytes()
    assert decrypt(data, KEY, "m.pb.enc") == expected


def test_changed_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY.secret[::-1].hex())
    with pytest.raises(RecipeError, match="the key in MODEL_KEY changed during the build"):
        run_encrypt(encrypt_job(tmp_path, classifier(), "frozen"))
