"""The actions ``import`` and ``fit`` of the verb ``device``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mobileprep
from mobileprep.core.files import sha256_file
from mobileprep.targets.measurements import measurement_from
from tests.cli.conftest import Run, replace_text
from tests.inspection.test_device_logs import HEAD

LOG = f"""\
mobileprep: device=Pixel 3
mobileprep: threads=2
mobileprep: governor=performance
mobileprep: target=phone
count=50 first=251 curr=196 min=190 max=251 avg=201.4 std=11
Average inference timings in us: Warmup: 301, no stats: 201, with stats: 224
============================== Run Order ==============================
{HEAD}
\tConst\t 0.001\t 0.001\t1%\t1%\t0.0\t1\tConv/weights
\t_FusedConv2D\t 0.150\t 0.150\t1%\t1%\t0.0\t1\tConv/Relu6
\tDepthwiseConv2dNative\t 0.040\t 0.040\t1%\t1%\t0.0\t1\tDepthwise/depthwise
"""


@pytest.fixture
def log(built: Path) -> Path:
    """A log of the phone's model, in the working directory of a build of the digits recipe."""
    path = Path("phone.log")
    path.write_text(LOG)
    return path


def imported(run: Run, recipe: Path, *options: str) -> Any:
    result = run("device", "import", "phone.log", "--recipe", recipe, *options)
    assert result.code == 0, result.err
    return json.loads((recipe.parent / "measurements/phone-pixel-3.json").read_text())


@pytest.mark.usefixtures("log")
def test_import_stores_the_measurement_next_to_the_recipe(built: Path, run: Run) -> None:
    data = imported(run, built, "--date", "2026-05-04", "--governor", "schedutil")
    assert data["sha256"] == sha256_file(Path("out/digits/phone/digits.pb"))
    assert (data["device"], data["threads"], data["governor"]) == ("Pixel 3", 2, "schedutil")
    assert (data["date"], data["tool"], data["runs"]) == ("2026-05-04", "tensorflow", 50)
    assert (data["mean_ms"], data["std_ms"], data["min_ms"]) == (0.201, 0.011, 0.19)
    first, second = data["ops"]
    # 8 x 8 x 16 outputs of 9 products and sums each.
    assert first["cost"]["kind"] == "convolution"
    assert first["cost"]["flops"] == 2 * 9 * 8 * 8 * 16
    assert second["cost"]["kind"] == "depthwise"
    assert {cost["kind"]: cost["nodes"] for cost in data["costs"]}["convolution"] == 2


@pytest.mark.usefixtures("log")
def test_measurement_is_used_and_becomes_stale(built: Path, run: Run) -> None:
    imported(run, built)
    phone = "  phone:\n    platform: android\n"
    used = "    measurement: measurements/phone-pixel-3.json\n    device: smartphone\n"
    replace_text(built, phone, f"{phone}{used}    budget: {{latency_ms: 0.3}}\n")
    result = run("build", built, "--target", "phone")
    assert result.code == 0, result.err
    assert "latency_ms: 0.201 of 0.3, 0.099 left (measured, 2 threads" in result.out
    assert "  _FusedConv2D Conv/Relu6: 0.15 ms, estimated 0.001843" in result.out
    report = json.loads(Path("out/digits/phone/report.json").read_text())
    assert report["measured"]["latency_ms"] == 0.201
    assert report["measured"]["ops"][0]["estimated_ms"] == 18432 / 10e9 * 1e3
    assert (
        "Measured: 0.201 ms on Pixel 3"
        in run("report", "out/digits/phone", "--format", "markdown").out
    )
    replace_text(built, "quantize: weights", "quantize: none")
    result = run("build", built, "--target", "phone")
    assert "the measurement is of another model" in result.err
    assert "stale, of another model" in result.out


@pytest.mark.usefixtures("log")
def test_fit_writes_a_profile(built: Path, run: Run) -> None:
    imported(run, built)
    measured = str(built.parent / "measurements/phone-pixel-3.json")
    result = run("device", "fit", measured, "--out", "pixel.yaml")
    assert (result.code, result.out) == (
        0,
        "pixel.yaml: Pixel 3, fitted to 1 measurement, error unknown\n",
    )
    model = "out/digits/phone/digits.pb"
    assert "About 0.2" in run("summarize", model, "--device", "pixel.yaml").out
    device = mobileprep.fit_profile([measured], "again.yaml")
    assert Path("again.yaml").read_text() == Path("pixel.yaml").read_text()
    assert device.title == "Pixel 3"
    result = run("device", "fit", measured, "--out", "pixel.json")
    assert (result.code, "a profile has the extension .yaml, not '.json'" in result.err) == (
        2,
        True,
    )
    result = run("device", "fit", measured)
    assert (result.code, "the file of the profile is missing" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("changed", "options", "code", "message"),
    [
        ("mobileprep: device=Pixel 3\n", (), 2, "the log does not name the device"),
        ("mobileprep: target=phone\n", (), 2, "the recipe has 2 targets"),
        ("mobileprep: target=phone\n", ("--target", "pad"), 2, "there is no target 'pad'"),
        ("", ("--threads", "many"), 2, "invalid number of threads 'many'"),
        ("", ("--out", "elsewhere"), 4, "the target is not built"),
        ("Average inference timings", (), 4, "no timings"),
    ],
)
@pytest.mark.usefixtures("log")
def test_mistakes_are_errors(
    built: Path, run: Run, changed: str, options: tuple[str, ...], code: int, message: str
) -> None:
    table = LOG.index("=====")
    text = LOG if changed != "Average inference timings" else LOG[:table]
    Path("phone.log").write_text(text.replace(changed, "" if changed else changed))
    result = run("device", "import", "phone.log", "--recipe", built, *options)
    assert (result.code, message in result.err) == (code, True), result.err


@pytest.mark.usefixtures("log")
def test_log_of_another_model_is_an_error(built: Path, run: Run) -> None:
    Path("phone.log").write_text(f"mobileprep: sha256={'0' * 64}\n{LOG}")
    result = run("device", "import", "phone.log", "--recipe", built)
    assert (result.code, "the log is of a model with SHA-256 00000000" in result.err) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"device": 3}',
        "[" * 100_000,
        json.dumps({"mean_ms": -1}),
        '{"mean_ms": 1e999}',
        json.dumps({"sha256": "../../x"}),
        json.dumps({"unknown": 1}),
    ],
)
def test_hostile_measurements_are_errors(digits: Path, run: Run, text: str) -> None:
    folder = digits.parent / "measurements"
    folder.mkdir()
    (folder / "m.json").write_text(text)
    phone = "  phone:\n    platform: android\n"
    replace_text(digits, phone, f"{phone}    measurement: measurements/m.json\n")
    result = run("validate", digits)
    assert (result.code, "is not a measurement" in result.err) == (3, True), result.err
    assert "recipe.yaml:" in result.err
    result = run("device", "fit", folder / "m.json", "--out", "p.yaml")
    assert (result.code, "is not a measurement" in result.err) == (4, True)


def test_missing_measurement_is_an_error(digits: Path, run: Run) -> None:
    phone = "  phone:\n    platform: android\n"
    replace_text(digits, phone, f"{phone}    measurement: measurements/m.json\n")
    result = run("validate", digits)
    assert result.code == 3
    assert "measurements/m.json" in result.err


def test_numbers_of_measurements_are_bounded() -> None:
    text = json.dumps(
        {
            **dict.fromkeys(("target", "device", "build", "governor", "date", "tool"), "x"),
            "sha256": "0" * 64,
            "mean_ms": 1,
        }
    )
    assert measurement_from(text.encode(), "m.json").mean_ms == 1.0
    huge = text.replace('"mean_ms": 1', '"mean_ms": 1e300')
    with pytest.raises(mobileprep.CorruptFileError, match="is not a measurement"):
        measurement_from(huge.encode(), "m.json")
