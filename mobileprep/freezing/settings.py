"""The options of freezing: keys of a recipe, flags of the verb, and what the freezing works by."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from mobileprep.core.declare import Option


class Freeze(Struct, frozen=True, kw_only=True):
    """How variables become constants; the original ``freeze_graph``'s options keep their names."""

    clear_devices: Annotated[bool, Option("Remove the device of every node.")] = True
    moving_averages: Annotated[
        bool,
        Option("Take each variable's exponential moving average where the checkpoint has one."),
    ] = False
    control_flow: Annotated[
        Literal["keep", "lower"],
        Option(
            "Whether functional loops and conditionals stay (`keep`) or become `Switch`, `Merge` "
            "and their kin (`lower`)."
        ),
    ] = "keep"
    batch_norm: Annotated[
        Literal["inference", "keep"],
        Option(
            "Whether batch normalisation that was left in training mode is switched to its moving "
            "averages (`inference`), with a warning, or stays (`keep`)."
        ),
    ] = "inference"
    remove_dropout: Annotated[
        bool,
        Option("Cut out dropout whose keep probability is constant."),
    ] = True
    initializer_nodes: Annotated[
        tuple[str, ...],
        Option(
            "Ops whose assignments give the variables that no checkpoint holds.",
            min_length=1,
        ),
    ] = ()
    variable_names_whitelist: Annotated[
        tuple[str, ...],
        Option(
            "The only variables that become constants, by the names of their nodes. Without it, "
            "all.",
            min_length=1,
        ),
    ] = ()
    variable_names_blacklist: Annotated[
        tuple[str, ...],
        Option("Variables that stay, by the names of their nodes.", min_length=1),
    ] = ()
    restore_op_name: Annotated[
        str,
        Option(
            "The op that restores a checkpoint in the graph, and so tells under which names the "
            "variables were saved. Without it, the saver's."
        ),
    ] = ""
