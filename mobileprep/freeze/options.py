"""What freezing is asked to do, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mobileprep.ir.graph import Graph

RESTORE_OP_NAME: Final = "save/restore_all"
FILENAME_TENSOR_NAME: Final = "save/Const:0"


@dataclass(frozen=True)
class FreezeOptions:
    """The choices of a freeze; those of the original ``freeze_graph`` keep their names.

    Args:
        outputs: tensors to keep, by tensor name ("probabilities", "split:1"), by the name of a
            signature's output, or by the name of a signature, which stands for all its outputs.
            Without any, the outputs of the only signature are taken.
        clear_devices: take the device off every node, those inside functions too.
        initializer_nodes: ops whose assignments give variables that no checkpoint holds.
        variable_names_whitelist: the only variables to turn into constants; empty for all.
        variable_names_blacklist: variables to leave as they are.
        restore_op_name: the op that restores a checkpoint in the graph; the names under which
            it does so are looked up first.
        filename_tensor_name: the tensor that takes the checkpoint's name, for graphs in which
            ``restore_op_name`` is not there.
        moving_averages: take each variable's exponential moving average where there is one.
        batch_norm: "inference" switches batch normalisation left in training mode; "keep" does not.
        control_flow: "lower" turns functional loops and conditionals into Switch, Merge and their
            kin; "keep" leaves them.
        remove_dropout: cut out dropout whose keep probability is constant.
    """

    outputs: tuple[str, ...] = ()
    clear_devices: bool = True
    initializer_nodes: tuple[str, ...] = ()
    variable_names_whitelist: tuple[str, ...] = ()
    variable_names_blacklist: tuple[str, ...] = ()
    restore_op_name: str = RESTORE_OP_NAME
    filename_tensor_name: str = FILENAME_TENSOR_NAME
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
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
