"""The chain that a first recipe has, and where it is written down once."""

from __future__ import annotations

from typing import Final

DEFAULT_CHAIN: Final = """\
transforms:
  - choose_inference
  - remove_dropout
  - remove_nodes: {op: [CheckNumerics]}
  - optimize  # unused nodes, constants and batch norms folded, duplicates merged
"""
"""As it stands in a recipe. Behind no convolution or matrix product that nothing else uses does it
leave a batch norm, or more than a bias."""
