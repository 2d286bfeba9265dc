"""The page's bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from typing import Any

import pytest

from mobileprep.building.report.page.render import (
    StageTime,
    bundle_digest,
    page_data,
    page_key,
    render_page,
)
from tests.building.report.page.browser import HOSTILE
from tests.building.report.reports import made


def data(recipe: str = "digits") -> dict[str, Any]:
    stages = [StageTime("digits/freeze", "freeze", 0.1, ran=True)]
    return page_data(recipe, "mobileprep 1", [(made(), {})], stages)


def held(page: bytes, name: str = "data") -> Any:
    found = re.search(
        rf'<script type="application/json" id="{name}">([^<]*)</script>', page.decode()
    )
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_what_it_is_given() -> None:
    page = render_page(data(), key="abc")
    assert page_key(page) == "abc"
    assert held(page)["recipe"] == "digits"
    assert held(page)["targets"][0]["report"]["model"]["file"] == "digits.pb"
    assert held(page)["stages"][0]["ran"] is True


def test_equal_data_gives_equal_bytes() -> None:
    assert render_page(data()) == render_page(data())


def test_a_page_that_was_edited_or_cut_has_no_key() -> None:
    page = render_page(data(), key="abc")
    assert page_key(page.replace(b"digits", b"digit5")) == ""
    assert page_key(page[:-1]) == ""
    assert page_key(page[:60]) == ""
    assert page_key(b"<!doctype html>\n<p>mine</p>") is None
    assert page_key(b"") is None


def test_a_compared_build_lies_beside() -> None:
    page = render_page(data(), compared=data("other"))
    assert held(page, "compared")["recipe"] == "other"
    assert b'id="compared"' not in render_page(data())


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup(name: str) -> None:
    page = render_page(data(name))
    assert held(page)["recipe"] == name
    harmless = render_page(data("harmless"))
    assert page.count(b"<") == harmless.count(b"<")
    assert page.count(b"-->") == harmless.count(b"-->")


def test_half_a_character_is_no_obstacle() -> None:
    assert held(render_page(data("\ud800")))["recipe"] == "\ud800"


def test_numbers_that_json_has_not_are_null() -> None:
    page = render_page({**data("m"), "odd": [math.nan, {"x": math.inf}, 1.5]})
    assert held(page)["odd"] == [None, {"x": None}, 1.5]


def test_the_policy_lets_only_the_program_and_the_style_of_the_page_in() -> None:
    page = render_page(data()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        found = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert found is not None
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not re.search(r"<[a-z]+[^>]*\s(on[a-z]+|style)=", page.partition("<script")[0])


def test_program_and_style_take_less_than_two_megabytes() -> None:
    assert len(render_page({"recipe": "", "targets": []})) < 2 << 20


def test_the_digest_is_of_what_every_page_has() -> None:
    assert bundle_digest() == bundle_digest()
    assert re.fullmatch(r"[0-9a-f]{64}", bundle_digest())
