"""The table of platforms."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.recipe.settings import ABIS
from mobileprep.targets.targets import PLATFORMS, platform_named


def test_platforms_and_abis_match_the_recipe_schema() -> None:
    text = resources.files("mobileprep").joinpath("schemas/recipe.json").read_text()
    target = json.loads(text)["$defs"]["target"]["properties"]
    assert list(PLATFORMS) == target["platform"]["enum"]
    of_platforms = {name: tuple(abi.name for abi in p.abis) for name, p in PLATFORMS.items()}
    assert {name: abis for name, abis in of_platforms.items() if abis} == ABIS
    assert set(target["abis"]["items"]["enum"]) == {abi for abis in ABIS.values() for abi in abis}


def test_unknown_platform_suggests_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="andriod") as caught:
        platform_named("andriod")
    assert caught.value.hint == "did you mean 'android'?"
