"""What docs/remote-cache.md says, against what is there."""

from __future__ import annotations

import re
from pathlib import Path

from mobileprep.building.pipeline.remote import base, guarded, settings
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.settings import Cache

PAGE = Path(__file__).resolve().parents[4] / "docs" / "remote-cache.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_recipe_of_the_page_is_one(tmp_path: Path) -> None:
    [shown] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "recipe.yaml"
    file.write_text(f"version: 1\nname: a\nsource: {{frozen: m.pb}}\ntargets: {{t: {{}}}}\n{shown}")
    cache = load_recipe(file).cache
    assert cache == Cache("https://cache.example.com/mobileprep", "read-write")


def test_the_setting_of_ci_is_read_only() -> None:
    environ = dict(re.findall(r"^export (\w+)=(\S+)$", TEXT, re.MULTILINE))
    found = settings.remote_settings(None, environ | {"NETRC": "none"})
    assert found == settings.RemoteSettings("https://cache.example.com/mobileprep", read_only=True)


def test_the_table_has_every_variable_and_every_kind_of_address() -> None:
    named = {settings.URL, settings.MODE, settings.TOKEN, settings.CA, settings.PLAIN_TOKEN}
    assert set(re.findall(r"^\| `(MOBILEPREP_\w+)`", TEXT, re.MULTILINE)) == named
    extras = dict(re.findall(r"^\| `(\w+)://.*'mobileprep\[(\w+)\]'", TEXT, re.MULTILINE))
    stores = {scheme: extra for scheme, extra in settings.OBJECT_STORES.items() if scheme != "abfs"}
    assert extras == {"https": "remote", **stores}


def test_the_figures_are_those_of_the_code() -> None:
    flat = " ".join(TEXT.split())
    assert f"{base.CONNECT_SECONDS:.0f} seconds to connect" in flat
    assert f"{base.SILENT_SECONDS:.0f} of silence" in flat
    assert f"below {base._LEAST_RATE >> 10} KiB a second" in flat
    assert f"or {guarded._MOST_SECONDS_LOST:.0f} seconds lost" in flat
    assert guarded._TRIES == 3
    assert "three tries" in flat
    assert guarded._MOST_IN_A_ROW == 3
    assert "after three failures in a row" in flat
