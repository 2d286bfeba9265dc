"""The recipe as later layers see it: frozen dataclasses, every override resolved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from mobileprep.recipe.tree import Key, MappingNode, Plain, place_of

SourceKind: TypeAlias = Literal["frozen", "graph", "meta_graph", "saved_model"]
Platform: TypeAlias = Literal["android", "ios", "raspberry-pi", "linux", "generic"]
QuantizeMode: TypeAlias = Literal["none", "weights", "round"]
ControlFlow: TypeAlias = Literal["keep", "lower"]
Artifact: TypeAlias = Literal["frozen", "text"]
Metric: TypeAlias = Literal["top1"]
Engine: TypeAlias = Literal["auto", "numpy", "openvino", "tensorflow"]
StepFileKind: TypeAlias = Literal["path", "checkpoint"]
ParameterValue: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]

# Where things lie and were written: no part of what decides a result.
_ASIDE: dict[str, bool] = {"aside": True}


@dataclass(frozen=True)
class InputFile:
    """A file or folder that a recipe names.

    Args:
        name: as written, with ``/``.
        path: where it lies; a checkpoint's is its prefix.
        place: where the recipe names it, ``file:line:column``.
    """

    name: str
    path: Path = field(compare=False, metadata=_ASIDE)
    place: str = field(default="", compare=False, metadata=_ASIDE)


@dataclass(frozen=True)
class Pin:
    """A digest that a file must have.

    Args:
        file: the file.
        sha256: 64 hexadecimal digits in lower case.
    """

    file: InputFile
    sha256: str


# As savers name a checkpoint of the first format that is in several files: ``m-?????-of-00004``.
EVERY_SHARD: Final = "-?????-of-"


@dataclass(frozen=True)
class Source:
    """A trained model.

    Args:
        kind: what ``file`` is.
        file: the graph, MetaGraph or SavedModel folder.
        checkpoint: the prefix of the variables' values.
        tags: of the MetaGraph to take from a SavedModel; empty for ``serve``.
        signature: whose inputs and outputs are meant.
        saver: a SaverDef that names the op by which the graph restores.
        pins: digests to check, sorted by name.
    """

    kind: SourceKind
    file: InputFile
    checkpoint: InputFile | None = None
    tags: tuple[str, ...] = ()
    signature: str | None = None
    saver: InputFile | None = None
    pins: tuple[Pin, ...] = ()


@dataclass(frozen=True)
class Freeze:
    """How variables become constants.

    Args:
        clear_devices: remove the device of every node.
        moving_averages: take exponential moving averages where the checkpoint has them.
        control_flow: whether functional loops and conditionals stay or are lowered.
        batch_norm: whether batch normalisation left in training mode is switched to inference.
        remove_dropout: cut out dropout whose keep probability is constant.
        initializer_nodes: ops whose assignments give variables that no checkpoint holds.
        variable_names_whitelist: the only variables to convert; empty for all.
        variable_names_blacklist: variables to leave as they are.
        restore_op_name: of the op that restores a checkpoint; empty for the saver's.
    """

    clear_devices: bool = True
    moving_averages: bool = False
    control_flow: ControlFlow = "keep"
    batch_norm: Literal["inference", "keep"] = "inference"
    remove_dropout: bool = True
    initializer_nodes: tuple[str, ...] = ()
    variable_names_whitelist: tuple[str, ...] = ()
    variable_names_blacklist: tuple[str, ...] = ()
    restore_op_name: str = ""


@dataclass(frozen=True)
class InputSpec:
    """A tensor that the app feeds.

    Args:
        name: as in the graph, ``node`` or ``node:0``.
        dtype: its element type's name, or None for that of the graph.
        shape: sizes, -1 where not fixed; None for that of the graph.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Plugin:
    """A transform from outside the package.

    Args:
        name: the transform's.
        file: the Python file that holds it.
        schema: the JSON Schema of its parameters.
    """

    name: str
    file: InputFile
    schema: InputFile


@dataclass(frozen=True)
class StepFile:
    """A file that a parameter of a transform names.

    Args:
        parameter: the parameter.
        index: which of the parameter's files, where it takes a list; else None.
        kind: ``path`` for one file, ``checkpoint`` for all files of a checkpoint.
        file: the file.
    """

    parameter: str
    index: int | None
    kind: StepFileKind
    file: InputFile


@dataclass(frozen=True)
class Step:
    """One transform of a chain.

    Args:
        name: the transform's.
        params: parameters in the order written, typed as the transform's schema says.
        plugin: where the transform comes from, unless it is one of the package's.
        files: those that the parameters name; what they hold decides results, and not this.
        place: where the step is written, ``file:line:column``.
        note: what the user should know of how it is written, or an empty text.
    """

    name: str
    params: tuple[tuple[str, ParameterValue], ...] = ()
    plugin: Plugin | None = None
    files: tuple[StepFile, ...] = field(default=(), compare=False, metadata=_ASIDE)
    place: str = field(default="", compare=False, metadata=_ASIDE)
    note: str = field(default="", compare=False, metadata=_ASIDE)

    @property
    def options(self) -> dict[str, ParameterValue]:
        """The transform's own parameters."""
        return {key: value for key, value in self.params if key != "ignore_errors"}

    @property
    def ignore_errors(self) -> bool:
        """Whether a failure leaves the graph as it was instead of ending the build."""
        return dict(self.params).get("ignore_errors", False) is True


@dataclass(frozen=True)
class Check:
    """How the model is compared with the source after each transform.

    Args:
        data: an ``.npz`` file of samples; None for the validation's, or drawn ones without it.
        samples: how many are run.
        max_difference: how far an output may be, as a share of the largest magnitude that the
            source gives for it; None for no limit.
    """

    data: InputFile | None = None
    samples: int = 8
    max_difference: float | None = None


@dataclass(frozen=True)
class Validation:
    """How a target's model is compared with the source.

    Args:
        data: an ``.npz`` file with an array for each input and one of labels.
        labels: the name of the array of labels.
        metric: what is measured.
        max_drop: how far the metric may fall, as a share of the samples.
    """

    data: InputFile
    labels: str = "label"
    metric: Metric = "top1"
    max_drop: float = 0.01


@dataclass(frozen=True)
class Quantize:
    """How constants are made smaller; its step is part of the target's transforms already.

    Args:
        mode: ``weights`` stores 8 bits, ``round`` rounds for compression.
        minimum_size: with ``weights``, the fewest elements a quantized constant has.
        num_steps: with ``round``, how many values a constant may take.
    """

    mode: QuantizeMode = "none"
    minimum_size: int = 1024
    num_steps: int = 256


@dataclass(frozen=True)
class Budget:
    """Limits in bytes; None for none."""

    model_bytes: int | None = None
    compressed_bytes: int | None = None


@dataclass(frozen=True)
class Target:
    """One device and the whole of what is done for it.

    Args:
        name: the target's.
        folder: of its outputs, below the recipe's: the name, or ``model/name``.
        model: the model's name where the recipe has several, else None.
        source: what to start from.
        freeze: how to freeze it.
        inputs: what is fed; empty where the recipe names none.
        outputs: what is fetched; empty where the recipe names none.
        transforms: the whole chain: shared or own, ``then``, quantize, obfuscate and sort.
        check: how to run the model after each transform and compare, or None.
        engine: what runs the model for that and for the validation.
        validation: how to check the result, or None.
        platform: what it runs.
        abis: of an Android app.
        quantize: what ``transforms`` does to constants.
        artifact: the form of the model file.
        registration: the TensorFlow versions to write ``ops_to_register.h`` for.
        budget: limits.
    """

    name: str
    folder: str
    model: str | None
    source: Source
    freeze: Freeze = Freeze()
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    transforms: tuple[Step, ...] = ()
    check: Check | None = None
    engine: Engine = "numpy"
    validation: Validation | None = None
    platform: Platform = "generic"
    abis: tuple[str, ...] = ()
    quantize: Quantize = Quantize()
    artifact: Artifact = "frozen"
    registration: tuple[str, ...] = ("1.15",)
    budget: Budget = Budget()
    tree: MappingNode | None = field(default=None, repr=False, compare=False, metadata=_ASIDE)

    def place(self, keys: Iterable[Key] = ()) -> str:
        """``file:line:column`` of a key path such as ``("outputs", 0)``, or of the nearest above.

        The path starts at the target's sections, overrides applied.
        """
        return str(place_of(self.tree, keys)) if self.tree is not None else ""


@dataclass(frozen=True)
class Recipe:
    """A recipe, ready to plan.

    Args:
        version: of the format.
        name: the recipe's, and its output folder's.
        file: the recipe's path as it was given.
        targets: in the order written, model by model.
        variables: the names that ``${NAME}`` references use, sorted.
    """

    version: int
    name: str
    file: str = field(metadata=_ASIDE)
    targets: tuple[Target, ...]
    variables: tuple[str, ...] = field(default=(), metadata=_ASIDE)
    tree: MappingNode | None = field(default=None, repr=False, compare=False, metadata=_ASIDE)

    def place(self, keys: Iterable[Key] = ()) -> str:
        """``file:line:column`` of a key path such as ``("targets", "phone")``."""
        return str(place_of(self.tree, keys)) if self.tree is not None else self.file


def digestible(value: object) -> Plain:
    """What of a model object decides results, as JSON can hold it: no paths, no places."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: digestible(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not f.metadata.get("aside")
        }
    if isinstance(value, tuple):
        return [digestible(item) for item in value]
    return value
