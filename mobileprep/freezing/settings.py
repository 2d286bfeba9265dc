"""Options of freezing: keys of a recipe and flags of the command."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from mobileprep.core.declare import Option


class Freeze(Struct, frozen=True, kw_only=True):
    """Options for converting variables to constants, named as in the original ``freeze_graph``."""

    clear_devices: Annotated[bool, Option("Remove the device of every node.")] = True
    moving_averages: Annotated[
        bool,
        Option("Use the exponential moving average of each variable if the checkpoint has one."),
    ] = False
    control_flow: Annotated[
        Literal["keep", "lower"],
        Option(
            "Whether functional loops and conditionals are kept (`keep`), or become `Switch`, "
            "`Merge`, and related ops (`lower`)."
        ),
    ] = "keep"
    batch_norm: Annotated[
        Literal["inference", "keep"],
        Option(
            "Whether batch normalization in training mode is switched to its moving averages "
            "(`inference`), with a warning, or kept (`keep`)."
        ),
    ] = "inference"
    remove_dropout: Annotated[
        bool,
        Option("Remove dropout with a constant keep probability."),
    ] = True
    initializer_nodes: Annotated[
        tuple[str, ...],
        Option(
            "Ops that initialize variables which the checkpoint does not contain.",
            min_length=1,
        ),
    ] = ()
    variable_names_whitelist: Annotated[
        tuple[str, ...],
        Option(
            "Names of the only variables to freeze. Default: all.",
            min_length=1,
        ),
    ] = ()
    variable_names_blacklist: Annotated[
        tuple[str, ...],
        Option("Names of variables to keep.", min_length=1),
    ] = ()
    restore_op_name: Annotated[
        str,
        Option(
            "Op that restores a checkpoint in the graph, and so defines the names of saved "
            "variables. Default: that of the saver."
        ),
    ] = ""
