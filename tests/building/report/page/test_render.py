"""The bytes of the report page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from typing import Any

import pytest

from mobileprep.building.report.page.render import (
    bundle_digest,
    page_data,
    page_key,
    render_page,
)
from tests.building.report.page.browser import HOSTILE
from tests.building.report.reports import make_report


def data(recipe: str = "digits") -> dict[str, Any]:
    stages = [{"task": "digits/freeze", "kind": "freeze", "seconds": 0.1, "ran": True}]
    return page_data(recipe, "mobileprep 1", [(make_report(), {})], stages)


def embedded(page: bytes, name: str = "data") -> Any:
    match = re.search(
        rf'<script type="application/json" id="{name}">([^<]*)</script>', page.decode()
    )
    assert match is not None
    return json.loads(match[1])


def test_page_contains_its_data_and_key() -> None:
    page = render_page(data(), key="abc")
    assert page_key(page) == "abc"
    assert embedded(page)["recipe"] == "digits"
    assert embedded(page)["targets"][0]["report"]["model"]["file"] == "digits.pb"
    assert embedded(page)["stages"][0]["ran"] is True


def test_equal_data_gives_equal_bytes() -> None:
    assert render_page(data()) == render_page(data())


def test_edited_or_truncated_page_has_no_key() -> None:
    page = render_page(data(), key="abc")
    assert page_key(page.replace(b"digits", b"digit5")) == ""
    assert page_key(page[:-1]) == ""
    assert page_key(page[:60]) == ""
    assert page_key(b"<!doctype html>\n<p>mine</p>") is None
    assert page_key(b"") is None


def test_page_contains_the_compared_build() -> None:
    page = render_page(data(), compared=data("other"))
    assert embedded(page, "compared")["recipe"] == "other"
    assert b'id="compared"' not in render_page(data())


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped(name: str) -> None:
    page = render_page(data(name))
    assert embedded(page)["recipe"] == name
    harmless = render_page(data("harmless"))
    assert page.count(b"<") == harmless.count(b"<")
    assert page.count(b"-->") == harmless.count(b"-->")


def test_lone_surrogates_are_preserved() -> None:
    assert embedded(render_page(data("\ud800")))["recipe"] == "\ud800"


def test_nan_and_infinity_are_null() -> None:
    page = render_page({**data("m"), "odd": [math.nan, {"x": math.inf}, 1.5]})
    assert embedded(page)["odd"] == [None, {"x": None}, 1.5]


def test_content_policy_allows_only_the_script_and_style_of_the_page() -> None:
    page = render_page(data()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        element = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert element is not None
        digest = base64.b64encode(hashlib.sha256(element[1].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not re.search(r"<[a-z]+[^>]*\s(on[a-z]+|style)=", page.partition("<script")[0])


def test_page_without_data_is_smaller_than_2_mib() -> None:
    assert len(render_page({"recipe": "", "targets": []})) < 2 << 20


def test_bundle_digest_is_stable() -> None:
    assert bundle_digest() == bundle_digest()
    assert re.fullmatch(r"[0-9a-f]{64}", bundle_digest())
