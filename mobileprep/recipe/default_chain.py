"""The chain that a first recipe has."""

from __future__ import annotations

from typing import Final

# What every network can go through: its outputs stay, and what matches nothing does nothing.
DEFAULT_CHAIN: Final = """\
transforms:
  - strip_unused_nodes
  - remove_dropout
  - remove_nodes: {op: [Identity, CheckNumerics]}
  - fold_constants: {ignore_errors: true}
  - fold_batch_norms: {ignore_errors: true}
  - fold_old_batch_norms
"""
