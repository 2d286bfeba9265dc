"""A target's settings as manifests state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mobileprep.plan.engines import engine_choice, litert_choice
from mobileprep.recipe.model import Step, Target, digestible


def target_settings(target: Target) -> Mapping[str, Any]:
    """What decides a target's folder beside the bytes of files, as JSON can hold it."""
    return {
        "source": {k: v for k, v in digestible(target.source).items() if k != "pins"},
        "platform": target.platform,
        "abis": list(target.abis),
        "artifact": target.artifact,
        **({"flex": True} if target.flex else {}),
        **({"min_runtime": target.min_runtime} if target.min_runtime else {}),
        # In other artifacts the transforms below do it.
        **({"quantize": digestible(target.quantize)} if target.artifact == "tflite" else {}),
        "registration": list(target.registration),
        **({"allow": list(target.allow)} if target.allow else {}),
        **({"ops": digestible(target.ops)} if target.ops else {}),
        "integration": digestible(target.integration),
        "protect": digestible(target.protect),
        "inputs": [digestible(i) for i in target.inputs],
        "outputs": list(target.outputs),
        "freeze": digestible(target.freeze),
        "engine": target.engine,
        "engine_versions": _engine_versions(target) if _runs_graphs(target) else {},
        "check": digestible(target.check),
        "calibration": digestible(target.calibration),
        "validation": digestible(target.validation),
        "budget": digestible(target.budget),
        "device": digestible(target.device),
        "transforms": [
            {"name": s.name, "options": _options(s), "ignore_errors": s.ignore_errors}
            | ({"trials": s.trials} if s.trials else {})
            for s in target.transforms
        ],
    }


def _engine_versions(target: Target) -> Mapping[str, str]:
    lite = litert_choice(target, "check") or litert_choice(target, "validation")
    return {**engine_choice(target).versions, **({} if lite is None else lite.versions)}


def _runs_graphs(target: Target) -> bool:
    """Whether the report of a target depends on the installed engines."""
    return target.check is not None or target.validation is not None


def _options(step: Step) -> Mapping[str, Any]:
    """A step's options as JSON can hold them."""
    return {key: digestible(value) for key, value in step.options.items()}
