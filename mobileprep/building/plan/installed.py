"""Whether what a target is built with is installed, where an installation need not have it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from mobileprep.building.plan.engines import engine_choice, litert_choice
from mobileprep.errors import UnsupportedError
from mobileprep.recipe.model import Target
from mobileprep.recipe.tree import Key


def check_installed(target: Target) -> None:
    """Make sure that the packages and engines are installed that a target asks for.

    A build tells of packages when a stage needs them: another machine may have run it.
    """
    for keys, module, package, extra in _packages(target):
        if importlib.util.find_spec(module) is None:
            message = f"this needs the package {package}, which is not installed"
            hint = f"pip install 'mobileprep[{extra}]'"
            raise UnsupportedError(message, hint, target.place(keys))
    if target.validation is not None or target.check is not None:
        engine_choice(target)
    litert_choice(target, "check")
    litert_choice(target, "validation")


def _packages(target: Target) -> Iterator[tuple[tuple[Key, ...], str, str, str]]:
    """The keys that tell of each need, the module, its package, and the extra that brings it."""
    if target.integration is not None:
        yield ("integration",), "jinja2", "Jinja", "integration"
    if target.protect.key is not None:
        yield ("protect", "encrypt"), "cryptography", "cryptography", "encrypt"
