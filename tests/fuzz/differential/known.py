"""Faults of LiteRT's runtime that the fuzzer finds, each with a proof."""

from __future__ import annotations

from tests.fuzz.differential.check import Finding
from tests.fuzz.differential.generate import Case


def known_fault(case: Case, finding: Finding) -> str | None:
    """The name of the runtime's fault that explains a finding."""
    return None
