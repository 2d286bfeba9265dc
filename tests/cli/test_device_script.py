"""The action ``script`` of the verb ``device``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import mobileprep
from mobileprep.core.files import sha256_file
from tests.cli.conftest import Run, replace_text
from tests.targets.integration.fake_devices import BENCHMARK, fake_device, write_program


def log_of(folder: Path, **environ: str) -> list[str]:
    """Run a script with a fake device, and return its log."""
    device = fake_device(Path("fake").absolute())
    program = write_program(Path("fake/benchmark_model").absolute(), BENCHMARK)
    variables = {
        "PATH": f"{device.parent / 'host'}:{os.environ['PATH']}",
        "DEVICE": str(device),
        "STATE": "ok",
        "BENCHMARK_MODEL": str(program),
        **environ,
    }
    subprocess.run(["sh", folder / "benchmark.sh"], env=variables, check=True)
    return (folder / "benchmark.log").read_text().splitlines()


def test_script_runs_the_built_model(built: Path, run: Run) -> None:
    result = run("device", "script", built, "--target", "download")
    folder = Path("device-download")
    created = [f"Created {folder / name}.\n" for name in ("model.pb", "benchmark.sh")]
    assert (result.code, result.out) == (0, "".join(created))
    model = Path("out/digits/download/digits.pb")
    assert (folder / "model.pb").read_bytes() == model.read_bytes()
    log = log_of(folder)
    assert f"mobileprep: sha256={sha256_file(model)}" in log
    assert log[7:9] == ["mobileprep: target=download", "[--graph=model.pb]"]
    assert log[12:16] == [
        "[--input_layer=image]",
        "[--input_layer_shape=1,8,8,1]",
        "[--input_layer_type=float]",
        "[--output_layer=probabilities]",
    ]
    assert run("verify", "out", "--quick").code == 0


def test_litert_model_on_a_board(digits: Path, run: Run) -> None:
    replace_text(
        digits, "platform: android\n    abis: [arm64-v8a, armeabi-v7a]\n", "platform: linux\n"
    )
    replace_text(digits, '    registration: {tensorflow: ["1.15", "2.21"]}\n', "")
    replace_text(digits, "    quantize: weights\n", "    artifact: tflite\n")
    assert run("build", digits, "--target", "phone").code == 0
    assert run("device", "script", digits, "--target", "phone", "--script", "board").code == 0
    log = log_of(Path("board"), HOST="pi@board")
    assert log[6:10] == [
        "mobileprep: tool=litert",
        "mobileprep: target=phone",
        "[--graph=model.tflite]",
        "[--num_threads=1]",
    ]
    assert log[12:14] == ["[--input_layer=image]", "[--input_layer_shape=1,8,8,1]"]


def test_target_must_be_named_and_built(digits: Path, run: Run) -> None:
    result = run("device", "script", digits)
    assert (result.code, result.out) == (2, "")
    assert "the recipe has 2 targets" in result.err
    assert "add --target with one of phone, download" in result.err
    result = run("device", "script", digits, "--target", "phnoe")
    assert (result.code, "did you mean 'phone'?" in result.err) == (2, True)
    result = run("device", "script", digits, "--target", "phone")
    assert (result.code, "the target is not built" in result.err) == (4, True)
    assert not Path("device-phone").exists()


def test_options_and_recipes_of_another_action(digits: Path, run: Run) -> None:
    result = run("device", "script", digits, digits.parent.parent / "other.yaml")
    assert (result.code, "script reads one recipe, not 2" in result.err) == (2, True)
    result = run("device", "import", digits, "--script", "phone")
    assert (result.code, "--script needs the action script, not import" in result.err) == (2, True)


def test_python_function_loads_the_recipe(built: Path) -> None:
    files = mobileprep.device_script(built, "scripts", target="phone")
    assert files == [Path("scripts/model.pb"), Path("scripts/benchmark.sh")]


def test_changed_model_is_an_error(built: Path, run: Run) -> None:
    with Path("out/digits/phone/digits.pb").open("ab") as stream:
        stream.write(b"x")
    result = run("device", "script", built, "--target", "phone")
    assert (result.code, "'digits.pb' differs from the manifest" in result.err) == (4, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("artifact: memmapped", "does not load 'artifact: memmapped'"),
        ("protect: {encrypt: {key: env:KEY}}", "cannot load an encrypted model"),
    ],
)
def test_models_that_benchmark_model_cannot_load(
    built: Path, run: Run, settings: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "00" * 32)
    replace_text(built, "    sort: true\n    registration", f"    {settings}\n    registration")
    result = run("device", "script", built, "--target", "phone")
    assert (result.code, message in result.err) == (6, True), result.err
