"""What freezing is asked to do, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mobileprep.freezing.model import Asset
from mobileprep.ir.graph import Graph


@dataclass(frozen=True)
class FreezeOptions:
    """The choices of a freeze; those of the original ``freeze_graph`` keep their names.

    Args:
        outputs: tensors to keep, by tensor name ("probabilities", "split:1"), by the name of an
            output of the signature, or by the name of a signature, which stands for all of its
            outputs. Without any, all outputs of the signature are taken.
        signature: the signature that is meant; without it "serving_default", or the only one.
        clear_devices: take the device off every node, those inside functions too.
        initializer_nodes: ops whose assignments give variables that no checkpoint holds.
        variable_names_whitelist: the only variables to turn into constants; empty for all.
        variable_names_blacklist: variables to leave as they are.
        restore_op_name: the op that restores a checkpoint in the graph; the names under which
            it does so are looked up first. Without it the saver's, or "save/restore_all".
        moving_averages: take each variable's exponential moving average where there is one.
        batch_norm: "inference" switches batch normalisation left in training mode; "keep" does not.
        control_flow: "lower" turns functional loops and conditionals into Switch, Merge and their
            kin; "keep" leaves them.
        remove_dropout: cut out dropout whose keep probability is constant.
    """

    outputs: tuple[str, ...] = ()
    signature: str = ""
    clear_devices: bool = True
    initializer_nodes: tuple[str, ...] = ()
    variable_names_whitelist: tuple[str, ...] = ()
    variable_names_blacklist: tuple[str, ...] = ()
    restore_op_name: str = ""
    moving_averages: bool = False
    batch_norm: Literal["inference", "keep"] = "inference"
    control_flow: Literal["keep", "lower"] = "keep"
    remove_dropout: bool = True

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
