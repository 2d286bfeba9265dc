"""Fingerprints: one digest over everything that a stage's outputs depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mobileprep import __version__
from mobileprep.plan.canonical import canonical
from mobileprep.plan.spec import Stage

Components = dict[str, Any]


def components(stage: Stage, digests: Mapping[str, str]) -> Components:
    """Everything that a stage's outputs depend on, as JSON-able data.

    Args:
        stage: what it is asked to do.
        digests: the sha256 of each input, by ``slot`` or ``slot:name``.
    """
    return {
        "package": __version__,
        "stage": stage.stage_name,
        "version": stage.stage_version,
        "parameters": stage.parameters,
        "inputs": dict(digests),
        "outputs": list(stage.output_files),
    }


def fingerprint(parts: Components) -> str:
    """The full sha256 of the canonical JSON of a stage's components."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def digest_text(digest: str) -> str:
    """The beginning of a digest, for people to tell files apart by; manifests have the whole."""
    return digest[:12]
