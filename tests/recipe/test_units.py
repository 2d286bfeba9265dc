from __future__ import annotations

import pytest

from mobileprep.recipe.units import parse_bytes, parse_flops


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("17 B", 17),
        ("60 KB", 60_000),
        ("60kb", 60_000),
        ("60 KiB", 61_440),
        ("1.5 MiB", 1_572_864),
        ("0.1 MB", 100_000),
        ("0.1 KiB", 102),
        ("2 GB", 2 * 10**9),
        ("1 TiB", 1 << 40),
        (" 3 MB ", 3_000_000),
        ("999999999999999.999999999999999 TB", 999999999999999999999999999),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("20 MFLOP", 20000000),
        ("20 mflops", 20000000),
        ("1.25 GFLOP", 1250000000),
        ("7", 7),
        ("3 FLOP", 3),
        ("0.0001 KFLOP", 0),
    ],
)
def test_operation_counts(text, count):
    assert parse_flops(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KB",
        "-1 KB",
        "+1",
        "1e3",
        "1 KBB",
        "1 K",
        "1,5 KB",
        "1. KB",
        ".5 KB",
        "1  KB",
        "0x10",
        "1 MFLOP",
        "1_000",
        "٣ KB",
        "1" * 16,
        "1 KB\nx",
        "inf",
        "1 YB",
    ],
)
def test_invalid_sizes(text):
    assert parse_bytes(text) is None


@pytest.mark.parametrize("text", ["1 KB", "1 MiFLOP", "1 flo", ""])
def test_invalid_operation_counts(text):
    assert parse_flops(text) is None
