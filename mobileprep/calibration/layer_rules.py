"""Rules of ``quantize_nodes`` for layers of some names."""

from __future__ import annotations

import re
from collections.abc import Collection


def layers_expression(names: Collection[str]) -> str:
    """A regular expression for the layers of some names, and no others."""
    escaped = "|".join(re.escape(name) for name in names)
    return f"^({escaped})$" if len(names) > 1 else f"^{escaped}$"


def rule_text(mode: str, names: Collection[str]) -> str:
    """A rule as ``quantize_nodes`` takes it.

    Args:
        mode: ``nodes``, ``weights`` or ``float``.
        names: of the layers, at least one.
    """
    return f"mode={mode} nodes={layers_expression(names)}"


def recipe_rule(mode: str, names: Collection[str]) -> str:
    """A rule for a recipe; in single quotes nothing of a regular expression is YAML's."""
    quoted = layers_expression(names).replace("'", "''")
    return f"{{mode: {mode}, nodes: '{quoted}'}}"
