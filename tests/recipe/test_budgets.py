"""Budgets of targets and the memory limit of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import ValidationError

from mobileprep.data.options import Reading
from mobileprep.errors import RecipeError
from mobileprep.recipe.decode import Decoder
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.settings import Budget, Cache, Check, Data, InputFile, OpLimits
from mobileprep.recipe.tree import SourceText
from mobileprep.recipe.validation_settings import Calibration
from mobileprep.recipe.yaml_tree import parse_yaml

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\ntargets:\n  a:\n    budget: "


def budget(folder: Path, text: str) -> Budget:
    (folder / "r.yaml").write_text(HEAD + text)
    return load_recipe(folder / "r.yaml", environ={}).targets[0].budget


def test_limits_have_units(tmp_path: Path) -> None:
    text = (
        "{flops: 20 MFLOP, activation_bytes: 1 MiB, kernel_bytes: 500 KB, parameters: 1000, "
        "kernels: 40, ops: {forbid: [Cast]}}"
    )
    assert budget(tmp_path, text) == Budget(
        parameters=1000,
        flops=20_000_000,
        activation_bytes=1 << 20,
        kernels=40,
        kernel_bytes=500_000,
        ops=OpLimits(forbid=("Cast",)),
    )
    assert budget(tmp_path, "{flops: 7}").flops == 7
    counted = budget(tmp_path, "{parameters: 1e3, kernels: 40.0}")
    assert repr((counted.parameters, counted.kernels)) == "(1000, 40)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{flops: 20 MB}", "'20 MB' is not a number of operations; write a number with KFLOP"),
        ("{flops: 0.1 FLOP}", "must be at least one operation"),
        ("{activation_bytes: 3 MFLOP}", "'3 MFLOP' is not a size"),
        ("{parameters: 1 M}", "expected a whole number"),
        ("{ops: {}}", "needs at least 1 key"),
        ("{ops: {forbid: []}}", "needs at least 1 item"),
        ("{ops: {deny: [A]}}", "unknown key 'deny'"),
        ("{kernels: 0}", "must be at least 1"),
    ],
)
def test_invalid_limits_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        budget(tmp_path, text)
    assert message in caught.value.message


def test_memory_limit_of_runs(tmp_path: Path) -> None:
    def memory(line: str) -> int | None:
        text = f"version: 1\nname: r\n{line}source: {{frozen: m.pb}}\ntargets: {{a: {{}}}}\n"
        (tmp_path / "r.yaml").write_text(text)
        return load_recipe(tmp_path / "r.yaml", environ={}).memory

    assert memory("") is None
    assert memory("memory: 4 GB\n") == 4 * 10**9
    assert memory("memory: 1000\n") == 1000
    for value, message in (
        ("much", "'much' is not a size; write a number with B, KB, MB"),
        ("0 MB", "must be at least one byte"),
        ("0", "must be at least 1"),
        ("[1]", "expected a whole number"),
    ):
        with pytest.raises(RecipeError) as caught:
            memory(f"memory: {value}\n")
        assert message in caught.value.message


RECIPE = """version: 1
name: digits
source: {frozen: model.pb}
targets: {phone: {}}
"""


def load_with(directory: Path, cache: str) -> Recipe:
    (directory / "recipe.yaml").write_text(RECIPE + cache)
    return load_recipe(directory / "recipe.yaml")


@pytest.mark.parametrize(
    ("section", "cache"),
    [
        ("", None),
        ("cache: null", None),
        ("cache: {remote: 'https://host/x'}", Cache("https://host/x", "read-write")),
        ("cache: {remote: 's3://b/x', mode: read-only}", Cache("s3://b/x", "read-only")),
        ("cache: {remote: file:///shared}", Cache("file:///shared")),
        ("cache: {remote: abfs://c@account.dfs.core.windows.net/x}", ...),
    ],
)
def test_remote_cache(tmp_path: Path, section: str, cache: object) -> None:
    recipe = load_with(tmp_path, section)
    assert recipe.cache == cache or (cache is ... and recipe.cache is not None)


def test_cache_does_not_change_the_targets(tmp_path: Path) -> None:
    assert load_with(tmp_path, "").targets == load_with(tmp_path, "cache: {remote: s3://b}").targets


def test_extending_recipe_disables_the_cache_or_changes_its_mode(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(RECIPE + "cache: {remote: s3://b}\n")
    (tmp_path / "own.yaml").write_text("extends: base.yaml\ncache: {mode: read-only}\n")
    (tmp_path / "off.yaml").write_text("extends: base.yaml\ncache: null\n")
    assert load_recipe(tmp_path / "own.yaml").cache == Cache("s3://b", "read-only")
    assert load_recipe(tmp_path / "off.yaml").cache is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("cache: {mode: read-only}", "the key 'remote' is missing"),
        ("cache: {remote: 'ftp://host'}", "a remote store is at an address such as"),
        ("cache: {remote: 'https://host/?token=1'}", "a remote store is at an address such as"),
        ("cache: {remote: 'https://'}", "a remote store is at an address such as"),
        ("cache: {remote: 's3://b', mode: write}", "expected one of read-write, read-only"),
        ("cache: {remote: 's3://b', token: x}", "unknown key 'token'"),
        ("cache: 's3://b'", "expected a mapping"),
    ],
)
def test_invalid_cache_is_reported_at_its_location(
    tmp_path: Path, section: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=r"recipe\.yaml:5:") as caught:
        load_with(tmp_path, section)
    assert message in caught.value.message


@pytest.mark.parametrize("user", ["me:secret", "secret"])
def test_password_is_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(RecipeError, match="cannot contain a user name or a password") as caught:
        load_with(tmp_path, f"cache: {{remote: 'https://{user}@host/x'}}")
    assert "set MOBILEPREP_REMOTE_TOKEN" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "abfs", "http", "https"])
@pytest.mark.parametrize("secret", ["secret", "sec/ret+secret", ""])
def test_password_is_refused_for_every_scheme(tmp_path: Path, scheme: str, secret: str) -> None:
    with pytest.raises(RecipeError, match="cannot contain a user name or a password") as caught:
        load_with(tmp_path, f"cache: {{remote: '{scheme}://key:{secret}@bucket/x'}}")
    assert "secret" not in caught.value.message
    assert ("TOKEN" in caught.value.message) == scheme.startswith("http")


@pytest.mark.parametrize(
    "url",
    [
        "abfs://container@account.example.com/x",
        "http://host:8080/a@b",
        "https://[::1]:8080/a@b",
        "s3://bucket/a:b@c",
        "file:///a:b@c",
    ],
)
def test_other_at_signs_are_allowed(tmp_path: Path, url: str) -> None:
    assert load_with(tmp_path, f"cache: {{remote: '{url}'}}").cache == Cache(url)


def test_model_cannot_have_a_cache(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="unknown key 'cache'"):
        load_with(tmp_path, "models: {m: {cache: {remote: 's3://b'}}}")


DOWNLOAD_HEAD = "version: 1\nname: net\nsource: {frozen: model.pb}\n"


def steps_of(load, target: str) -> list[tuple[str, dict[str, object]]]:
    (resolved,) = load(f"{DOWNLOAD_HEAD}targets: {{a: {{{target}}}}}\n").targets
    return [(step.name, step.options) for step in resolved.transforms]


OLD = "download: {previous: old.pb}"
ALIGN = ("align_with_previous", {"previous": "old.pb", "tolerance": 0.5})


def test_weights_are_aligned_before_their_scale_is_chosen(load) -> None:
    weights = ("quantize_weights", {"minimum_size": 1024})
    assert steps_of(load, f"{OLD}, quantize: weights, sort: true") == [
        ALIGN,
        weights,
        ("sort_by_execution_order", {}),
    ]
    assert steps_of(load, f"{OLD}, quantize: weights, obfuscate: true") == [
        ALIGN,
        weights,
        ("obfuscate_names", {}),
    ]
    names = [name for name, _ in steps_of(load, f"{OLD}, quantize: {{mode: weights, bits: 4}}")]
    assert names == ["align_with_previous", "linear_quantize_weights"]
    names = [name for name, _ in steps_of(load, f"{OLD}, quantize: nodes")]
    assert names == ["align_with_previous", "quantize_nodes"]


def test_rounded_weights_are_aligned_afterwards(load) -> None:
    steps = steps_of(load, f"{OLD}, quantize: {{mode: round, num_steps: 32}}")
    align = (ALIGN[0], {**ALIGN[1], "steps": 32})
    assert steps == [("round_weights", {"num_steps": 32}), align]


def test_litert_weights_are_aligned_before_the_conversion(load) -> None:
    tflite = "artifact: tflite, download: {previous: old.tflite}, quantize: weights"
    options = {"previous": "old.tflite", "tolerance": 0.5}
    assert steps_of(load, tflite) == [("align_with_previous", options)]


@pytest.mark.parametrize("mode", ["none", "float16", "bfloat16"])
def test_float_weights_are_not_aligned(load, mode: str) -> None:
    names = {name for name, _ in steps_of(load, f"{OLD}, quantize: {mode}")}
    assert "align_with_previous" not in names


def test_tolerance_of_zero_ships_every_change(load) -> None:
    target = "download: {previous: old.pb, tolerance: 0}, quantize: weights"
    assert [name for name, _ in steps_of(load, target)] == ["quantize_weights"]


def test_null_turns_it_off(load) -> None:
    (target,) = load(DOWNLOAD_HEAD + "targets: {a: {download: null}}\n").targets
    assert (target.download, target.transforms) == (None, ())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("download: {}", "previous"),
        ("download: {tolerance: 1}", "previous"),
        ("download: {previous: 3}", "previous"),
        (f"{OLD[:-1]}, tolerance: -1}}", "tolerance"),
        (f"{OLD[:-1]}, tolerance: .nan}}", "tolerance"),
        (f"{OLD}, protect: {{encrypt: {{key: env:KEY}}}}", "an encrypted model differs"),
        ("budget: {download_bytes: 20 KB}", "needs the installed model"),
        (f"{OLD}, budget: {{download_bytes: 20 XB}}", "not a size"),
    ],
)
def test_invalid_sections_are_refused(load, target: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(f"{DOWNLOAD_HEAD}targets: {{a: {{{target}}}}}\n")


DECODE_RECIPE = "version: 1\nname: x\nsource: {frozen: m.pb}\noutputs: [y]\ntargets:\n"


def decode(text: str, kind: type) -> tuple[object, list[ValidationError]]:
    decoder = Decoder()
    node = parse_yaml(SourceText("recipe.yaml", Path("app"), text))
    return decoder.decode(node, kind), decoder.errors


def test_fields_have_the_declared_types() -> None:
    text = "{data: {pictures: d, std: 2, resize: [8, 8.0]}, samples: 1e1, percentile: 99}"
    calibration, errors = decode(text, Calibration)
    file = InputFile("d", Path("app/d"), "recipe.yaml:1:19")
    data = Data(file, "pictures", Reading(std=(2.0,), resize=(8, 8)))
    assert calibration == Calibration(data, percentile=99.0, samples=10)
    assert not errors


def test_value_that_does_not_fit_has_its_default() -> None:
    check, errors = decode("{samples: [1], max_difference: 1, engine: other}", Check)
    assert check == Check(max_difference=1.0)
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("quantize: [int8], artifact: tflite", "expected text or a mapping, found a list"),
        ("quantize: {mode: int4, bits: [1]}", "is a mode for LiteRT"),
        ("calibration: {data: [1], decay: 0.5}", "'decay' applies only to 'moving_average'"),
        ("validation: {data: [1], at_most: 1}", "'at_most' is not a limit of 'auto'"),
        ("ops: {A: {kernel: [[1]], source: [a/b.cc, c/b.cc]}}", "have the same file name"),
    ],
)
def test_checks_of_other_keys_go_on(
    problems: Callable[..., list[str]], target: str, expected: str
) -> None:
    messages = problems(f"{DECODE_RECIPE}  p: {{{target}}}\n")
    assert any(expected in message for message in messages)
    assert any("expected" in message and "found" in message for message in messages)
