"""Scripts that benchmark a model on a device, run with fake devices."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.targets.integration.device_script import (
    LOG_PREFIX,
    MODEL_FILES,
    DeviceInput,
    DeviceModel,
    device_files,
)
from tests.targets.integration.fake_devices import BENCHMARK, fake_device, write_program

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="there is no POSIX shell")
MODEL = b"a model"
DIGEST = hashlib.sha256(MODEL).hexdigest()
HOSTILE = ("$(touch x)", "`touch x`", "a'b\"c", "end\\", "two words; touch x", "*")
IMAGE = DeviceInput("image", DType.FLOAT, (-1, 8, 8, 1))


def device_model(**changes: Any) -> DeviceModel:
    values: dict[str, Any] = {
        "target": "phone",
        "platform": "android",
        "abis": ("arm64-v8a", "armeabi-v7a"),
        "tool": "tensorflow",
        "sha256": DIGEST,
        "inputs": (IMAGE,),
        "outputs": ("probabilities",),
    }
    return DeviceModel(**{**values, **changes})


BOARD = {"platform": "raspberry-pi", "abis": ("armhf", "aarch64")}
LITE = {"tool": "litert", "inputs": (DeviceInput("image", None, (1, 8, 8, 1)),)}


class Device:
    """A script in ``script``, and a fake device to run it with."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder / "my app's scripts"
        self.folder.mkdir()
        self.device = fake_device(folder)
        model = device_model(**changes)
        (self.folder / MODEL_FILES[model.tool]).write_bytes(MODEL)
        for name, text in device_files(model).items():
            (self.folder / name).write_text(text)
        write_program(self.folder / "benchmark_model", BENCHMARK)
        self.log = self.folder / "benchmark.log"
        (folder / "temporary").mkdir()

    def run(self, state: str = "ok", shell: str = "sh", **environ: str) -> tuple[int, str]:
        host = self.folder.parent / "host"
        variables = {
            "PATH": f"{host}:{os.environ['PATH']}",
            "DEVICE": str(self.device),
            "STATE": state,
            "TMPDIR": str(self.folder.parent / "temporary"),
            "HOST": "pi@board",
            **environ,
        }
        done = subprocess.run(
            [shell, str(self.folder / "benchmark.sh")],
            env=variables,
            cwd=self.folder.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        # Everything is cleaned up, unless the connection was lost, also after a failure.
        assert list((self.folder.parent / "temporary").iterdir()) == []
        assert list((self.device / "tmp").iterdir()) == [] or state == "lost"
        assert not list(self.folder.glob("*.part"))
        assert not list(self.folder.parent.rglob("x"))
        return done.returncode, done.stdout + done.stderr


def log_lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


@pytest.fixture
def phone(tmp_path: Path) -> Device:
    return Device(tmp_path)


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_adb_writes_a_log_with_a_header(phone: Device, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert phone.run(shell=shell, THREADS="4", RUNS="20") == (0, f"Created {phone.log}.\n")
    lines = log_lines(phone.log)
    date = lines.pop(4)
    assert date.startswith("mobileprep: date=20") and date.endswith("Z")
    assert lines == [
        "mobileprep: device=Google Pixel 4a",
        "mobileprep: build=google/sunfish/sunfish:13/TQ3A.230805.001/1:user/release-keys",
        "mobileprep: threads=4",
        "mobileprep: governor=performance schedutil",
        f"mobileprep: sha256={DIGEST}",
        "mobileprep: tool=tensorflow",
        "mobileprep: target=phone",
        "[--graph=model.pb]",
        "[--num_threads=4]",
        "[--max_num_runs=20]",
        "[--show_flops=true]",
        "[--input_layer=image]",
        "[--input_layer_shape=1,8,8,1]",
        "[--input_layer_type=float]",
        "[--output_layer=probabilities]",
        "Inference timings in us: Init: 10, First inference: 9, Inference (avg): 7",
    ]


def test_adb_without_exit_codes(phone: Device) -> None:
    assert phone.run("old")[0] == 0
    lines = log_lines(phone.log)
    assert lines[0] == "mobileprep: device=Google Pixel 4a"
    assert lines[3] == "mobileprep: governor=performance schedutil"


@pytest.mark.parametrize(
    ("state", "message", "fix"),
    [
        ("none", "no device is connected", "enable USB debugging"),
        ("unauthorized", "the device does not trust this computer", "accept 'Allow USB"),
        ("offline", "the device is offline", "adb reconnect"),
        ("two", "several devices are connected", "set ANDROID_SERIAL"),
        ("recovery", "adb cannot use the device: recovery", "until it prints 'device'"),
        ("full", "the device has no space left for ", "or uninstall apps"),
        ("killed", "killed benchmark_model (exit code 137), probably because memory", "smaller"),
        ("failing", "benchmark_model failed with exit code 1", "its last lines are above"),
        ("lost", "the device has no complete log", "check the connection"),
    ],
)
def test_adb_failures(phone: Device, state: str, message: str, fix: str) -> None:
    phone.log.write_text("an earlier log\n")
    code, output = phone.run(state)
    error, help_line = output.splitlines()[-2:]
    assert (code, error.startswith("error: "), help_line.startswith("help: ")) == (1, True, True)
    assert message in error and fix in help_line
    assert phone.log.read_text() == "an earlier log\n"


def test_output_of_a_failed_benchmark_is_printed(phone: Device) -> None:
    assert "ERROR: Failed to apply the default" in phone.run("failing")[1]


def test_one_of_several_devices(phone: Device) -> None:
    assert phone.run("two", ANDROID_SERIAL="R58M")[0] == 0
    code, output = phone.run("two", ANDROID_SERIAL="other")
    assert (code, "error: the device other is not connected" in output) == (1, True)


def test_missing_programs(phone: Device) -> None:
    assert "error: adb not found: none/adb\n" in phone.run(ADB="none/adb")[1]
    code, output = phone.run(BENCHMARK_MODEL="none")
    assert (
        code,
        output.startswith("error: none does not exist\nhelp: in TensorFlow 1.15, run "),
    ) == (
        1,
        True,
    )


def test_invalid_variables(phone: Device) -> None:
    for value in ("0", "-1", "4; touch x", "two"):
        code, output = phone.run(THREADS=value)
        assert (code, "THREADS and RUNS are positive integers" in output) == (1, True)


def test_changed_model_is_an_error(phone: Device) -> None:
    (phone.folder / "model.pb").write_bytes(b"another model")
    code, output = phone.run()
    assert (code, "is not the model of this script" in output) == (1, True)


def elf(machine: int) -> bytes:
    """The start of an ELF file, little-endian."""
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")


def test_wrong_abi_is_an_error(tmp_path: Path) -> None:
    phone = Device(tmp_path)
    (phone.folder / "benchmark_model").write_bytes(elf(62))
    code, output = phone.run()
    assert code == 1
    assert "is for x86_64, and the device runs arm64-v8a,armeabi-v7a,armeabi" in output
    (phone.folder / "benchmark_model").write_bytes(elf(183))
    assert "is for arm64-v8a, and the device runs armeabi-v7a" in phone.run("old")[1]


def test_target_for_other_abis(tmp_path: Path) -> None:
    code, output = Device(tmp_path, abis=("x86", "x86_64")).run()
    assert code == 1
    assert "the target is for x86, x86_64, and the device runs arm64-v8a" in output


def test_interrupted_script_cleans_up(phone: Device) -> None:
    write_program(phone.folder / "benchmark_model", '#!/bin/sh\nkill -TERM "$SCRIPT"\nsleep 0.2\n')
    starter = write_program(
        phone.folder.parent / "start", '#!/bin/sh\nexport SCRIPT=$$\nexec sh "$1"\n'
    )
    assert phone.run(shell=str(starter))[0] == 143


def test_names_are_not_executed(tmp_path: Path) -> None:
    inputs = [DeviceInput(name, DType.FLOAT, (2,)) for name in HOSTILE]
    phone = Device(tmp_path, inputs=inputs, outputs=HOSTILE, init_ops=HOSTILE, target="$(touch x)")
    assert phone.run()[0] == 0
    lines = log_lines(phone.log)
    assert lines[7] == "mobileprep: target=$(touch x)"
    names = ",".join(HOSTILE)
    assert lines[12] == f"[--input_layer={names}]"
    assert lines[15:17] == [f"[--output_layer={names}]", f"[--init_ops={names}]"]


@pytest.mark.parametrize("name", ["a,b", "a\nEND_OF_SCRIPT\ntouch x", "a\0"])
def test_names_that_flags_cannot_have(name: str) -> None:
    with pytest.raises(UnsupportedError, match="does not support the name"):
        device_files(device_model(outputs=(name,)))


def test_dtypes_that_benchmark_model_cannot_create() -> None:
    with pytest.raises(UnsupportedError, match="does not support double, as 'x' is"):
        device_files(device_model(inputs=(DeviceInput("x", DType.DOUBLE, ()),)))


def test_litert_needs_shapes_only_if_they_are_open(tmp_path: Path) -> None:
    phone = Device(tmp_path, **LITE)
    assert phone.run(shell="bash")[0] == 0
    assert log_lines(phone.log)[6] == "mobileprep: tool=litert"
    flags = ["[--graph=model.tflite]", "[--num_threads=1]", "[--num_runs=50]"]
    assert log_lines(phone.log)[8:-1] == [*flags, "[--enable_op_profiling=true]"]
    text = device_files(device_model(**{**LITE, "inputs": (IMAGE,)}))["benchmark.sh"]
    assert "  --input_layer=image \\\n  --input_layer_shape=1,8,8,1 \\\n" in text
    assert "latest, and set BENCHMARK_MODEL to it" in text


def test_ssh_writes_a_log_with_a_header(tmp_path: Path) -> None:
    board = Device(tmp_path, **BOARD, **LITE)
    assert board.run() == (0, f"Created {board.log}.\n")
    lines = log_lines(board.log)
    assert lines[:4] == [
        "mobileprep: device=Raspberry Pi 4 Model B Rev 1.4",
        "mobileprep: build=Debian GNU/Linux 12 (bookworm) aarch64",
        "mobileprep: threads=1",
        "mobileprep: governor=performance schedutil",
    ]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("unreachable", "cannot connect to pi@board: ssh: connect to host pi@board port 22: No"),
        ("full", "the device has no space left for "),
        ("killed", "killed benchmark_model (exit code 137)"),
        ("lost", "the device has no complete log"),
    ],
)
def test_ssh_failures(tmp_path: Path, state: str, message: str) -> None:
    board = Device(tmp_path, **BOARD, **LITE)
    code, output = board.run(state)
    assert (code, message in output, board.log.exists()) == (1, True, False)


def test_ssh_needs_a_host_and_a_program_for_it(tmp_path: Path) -> None:
    board = Device(tmp_path, platform="linux", abis=())
    assert "error: HOST is not set\n" in board.run(HOST="")[1]
    (board.folder / "benchmark_model").write_bytes(elf(62))
    assert "is for x86_64, and the device runs aarch64,armhf" in board.run()[1]


def test_ios_gets_a_test_in_swift() -> None:
    inputs = (DeviceInput("a", None, (1, 4)), DeviceInput("b", None, (-1, 4)))
    model = device_model(
        platform="ios", abis=("arm64",), tool="litert", inputs=inputs, target="\\(x)"
    )
    files = device_files(model)
    assert set(files) == {"ModelBenchmark.swift", "README.md"}
    text = files["ModelBenchmark.swift"]
    assert "try interpreter.resizeInput(at: 1, to: Tensor.Shape([1, 4]))" in text
    assert text.count("resizeInput") == 1
    assert '"mobileprep: target=" + "\\u{5c}(x)")' in text
    assert f"sed -n 's/^.*{LOG_PREFIX}//p'" in files["README.md"]
    check_brackets(text)


def test_ios_gets_a_test_in_objective_cpp() -> None:
    model = device_model(platform="ios", abis=("arm64",), outputs=('"; exit(1); "',))
    text = device_files(model)["ModelBenchmark.mm"]
    assert '{"image", Zeros(tensorflow::DT_FLOAT, {1, 8, 8, 1})},' in text
    assert 'outputs = {"\\042; exit(1); \\042"};' in text
    check_brackets(text)


def check_brackets(code: str) -> None:
    """Check that brackets outside of strings and comments match."""
    pairs, stack, is_string = {")": "(", "]": "[", "}": "{"}, [], False
    for line in code.splitlines():
        if line.lstrip().startswith(("//", "#")):
            continue
        for at, character in enumerate(line):
            if character == '"' and line[at - 1] != "\\":
                is_string = not is_string
            elif not is_string and character in pairs.values():
                stack.append(character)
            elif not is_string and character in pairs:
                assert stack.pop() == pairs[character]
    assert not stack and not is_string
