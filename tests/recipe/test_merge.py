from __future__ import annotations

import pytest

from mobileprep.recipe.sections import merge_sections
from mobileprep.recipe.tree import find, plain
from mobileprep.recipe.yaml_tree import parse_yaml


@pytest.fixture
def merge(source):
    """Merge a YAML text into another."""
    return lambda base, over: merge_sections(parse_yaml(source(base)), parse_yaml(source(over)))


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ("{a: 1, b: 2}", "{b: 3, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("f: {x: 1, y: {z: 2}}", "f: {y: {w: 3}}", {"f": {"x": 1, "y": {"z": 2, "w": 3}}}),
        ("o: [a, b]", "o: [c]", {"o": ["c"]}),
        ("t: [a]", "t: 'a b'", {"t": "a b"}),
        ("f: {x: 1}", "f: 2", {"f": 2}),
        ("f: 2", "f: {x: 1}", {"f": {"x": 1}}),
        ("{v: {x: 1}, w: 1}", "v: null", {"w": 1}),
        ("i: {a: {}, b: {}}", "i: {a: null}", {"i": {"b": {}}}),
        ("x: 1", "i: {a: null}", {"x": 1, "i": {"a": None}}),
        ("x: 1", "{v: null}", {"x": 1, "v": None}),
        ("source: {graph: g, checkpoint: c}", "source: {frozen: f}", {"source": {"frozen": "f"}}),
        ("source: {graph: g}", "source: {checkpoint: c}", {"source": {"checkpoint": "c"}}),
        (
            "targets: {a: {quantize: {mode: weights, minimum_size: 8}, sort: true}, b: {}}",
            "targets: {a: {quantize: {mode: round}}, c: {}}",
            {"targets": {"a": {"quantize": {"mode": "round"}, "sort": True}, "b": {}, "c": {}}},
        ),
        ("targets: {a: {}, b: {}}", "targets: {a: null}", {"targets": {"b": {}}}),
        (
            "models: {m: {source: {graph: g}, targets: {t: {source: {graph: g}}}}}",
            "models: {m: {targets: {t: {source: {frozen: f}}}}}",
            {
                "models": {
                    "m": {"source": {"graph": "g"}, "targets": {"t": {"source": {"frozen": "f"}}}}
                }
            },
        ),
        # A target that is named like a section is merged like any other.
        (
            "targets: {source: {sort: true}}",
            "targets: {source: {obfuscate: true}}",
            {"targets": {"source": {"sort": True, "obfuscate": True}}},
        ),
        ("targets: [a]", "targets: {a: {}}", {"targets": {"a": {}}}),
        ("targets: {a: 1}", "targets: {a: {sort: true}}", {"targets": {"a": {"sort": True}}}),
        ("targets: {a: {sort: true}}", "targets: {a: 1}", {"targets": {"a": 1}}),
    ],
)
def test_sections_are_merged(merge, base, over, merged):
    result = plain(merge(base, over))
    assert result == merged
    assert list(result) == list(merged)


def test_merged_values_keep_their_locations(source):
    base = parse_yaml(source("f:\n  x: 1\n  y: 2\n"))
    over = parse_yaml(source("\n\n\n\nf: {y: 3}\n"))
    merged = merge_sections(base, over)
    assert str(find(merged, ("f", "x")).place) == "recipe.yaml:2:6"
    assert str(find(merged, ("f", "y")).place) == "recipe.yaml:5:8"
    assert str(merged.entries["f"].key_place) == "recipe.yaml:5:1"


def test_order_of_the_base_is_preserved(merge):
    assert list(plain(merge("{a: 1, b: 2}", "{c: 3, a: 4}"))) == ["a", "b", "c"]
