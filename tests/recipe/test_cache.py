"""The section ``cache`` of a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import RecipeError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.settings import Cache

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
