"""What freezing is asked to do, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mobileprep.freezing.model import Asset
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.options.freeze import Freeze


@dataclass(frozen=True)
class FreezeOptions(Freeze):
    """What freezing is asked to do: its options, and what to keep.

    Args:
        outputs: tensors to keep, by tensor name ("probabilities", "split:1"), by the name of an
            output of the signature, or by the name of a signature, which stands for all of its
            outputs. Without any, all outputs of the signature are taken.
        signature: the signature that is meant; without it "serving_default", or the only one.
    """

    outputs: tuple[str, ...] = ()
    signature: str = ""

    def converts(self, variable: str) -> bool:
        """Whether a variable, named by its node, is to become a constant."""
        wanted = self.variable_names_whitelist
        return (not wanted or variable in wanted) and variable not in self.variable_names_blacklist


@dataclass(frozen=True)
class FreezeResult:
    """A frozen graph and what was done to get it.

    Args:
        graph: the nodes that the outputs need, variables replaced by constants.
        inputs: the tensors of the chosen signature's inputs, or none without a signature.
        outputs: the tensor names of the outputs, signature names resolved.
        variables: for each converted variable node the checkpoint key that it was read from;
            an empty text for one that an initializer gave.
        init_ops: the ops that the app runs once after loading: they fill lookup tables.
        assets: the files that those read, and the tensors that hold their paths.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    init_ops: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    warnings: tuple[str, ...] = ()
