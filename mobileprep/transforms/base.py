"""Transforms: a frozen Struct of options with one method from graph to graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from msgspec import Struct, field, structs

from mobileprep.core.loading import import_on_demand, module_names
from mobileprep.errors import InternalError, TransformError, UsageError, nearest_hint
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import nodes_of
from mobileprep.transforms.tf115.node_hashes import SerialNames

if TYPE_CHECKING:
    from mobileprep.graph.rewrite import Rewritten
    from mobileprep.graph.tensor import Tensor


def _leave_in_memory(_: Tensor) -> None:
    """Where nothing is written before the end."""


class Context(Struct, frozen=True):
    """What a transform may know besides the graph.

    Args:
        inputs: the names of the tensors that will be fed, as the user gave them.
        outputs: the names of the tensors that will be fetched.
        tf115: do what the tool of TensorFlow 1.15 does, its harmless faults included. A
            recipe's chain runs with False and gets the right thing instead.
        serials: the numbers in names that 1.15 gives; steps of a recipe, which do not all run
            in one process, have no use for them.
        offload: called, in any thread, with a large constant as soon as it is made, by transforms
            that make many: what will write it to disk in any case may do so now, and let go of the
            memory.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    tf115: bool = False
    serials: SerialNames = field(default_factory=SerialNames)
    offload: Callable[[Tensor], None] = _leave_in_memory

    @property
    def protected(self) -> frozenset[str]:
        """The nodes that the user feeds or fetches, which no transform may take away."""
        return nodes_of((*self.inputs, *self.outputs))


class Result(Struct, frozen=True):
    """What a transform did.

    Args:
        graph: the graph afterwards; the very same object where nothing changed.
        matched: how many places the transform acted on.
        skipped: how many places looked alike but were left, by reason.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    matched: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, done: Rewritten, before: Graph, context: Context, warnings: tuple[str, ...] = ()
    ) -> Result:
        """The result of a rewriting.

        1.15 puts the nodes of a place that it looked at and left in another order; only with
        ``tf115`` does that count as a change.
        """
        graph = done.graph if done.matched or context.tf115 else before
        return cls(graph, done.matched, done.skipped, warnings)


class Transform(Struct, frozen=True):
    """Base of all transforms.

    The fields of a subclass are its options, named as the original tool names its parameters.
    """

    transform_name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    """Description in one or two sentences, for the reference page and editors."""
    of_graph_transform_tool: ClassVar[bool] = False
    """Whether the original tool has a transform of that name."""

    @abstractmethod
    def apply(self, graph: Graph, context: Context) -> Result:
        """Transform a graph.

        Raises:
            TransformError: the transform cannot do its work on this graph.
        """


TransformType = TypeVar("TransformType", bound=type[Transform])

_PACKAGE: Final = "mobileprep.transforms"
_NOT_TRANSFORMS: Final = frozenset({"base", "chains", "rewriting", "tf115"})


def transform(name: str) -> Callable[[TransformType], TransformType]:
    """A decorator that gives a transform its name.

    It only marks the class: whoever looks for a transform looks into the module that should hold
    it. There is no table that modules imported at the same time could get mixed up in.
    """

    def mark(kind: TransformType) -> TransformType:
        kind.transform_name = name
        return kind

    return mark


def transforms_in(module: ModuleType) -> dict[str, type[Transform]]:
    """The transforms that a module holds by their names, those that it has imported included.

    Of classes with the same name the last one counts.
    """
    return {
        kind.transform_name: kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        # A subclass inherits the name without being the transform.
        if issubclass(kind, Transform) and vars(kind).get("transform_name")
    }


def is_built_in(kind: type[Transform]) -> bool:
    """Whether a transform is one of this package."""
    return kind.__module__.startswith(f"{_PACKAGE}.")


def transform_names() -> list[str]:
    """The names of all transforms of this package, found by file name, none imported."""
    return [n for n in module_names(_PACKAGE) if n not in _NOT_TRANSFORMS]


@cache
def transform_class(name: str) -> type[Transform]:
    """The class of a transform; only its own module is imported."""
    known = transform_names()
    if name not in known:
        message = f"unknown transform {name!r}"
        raise UsageError(message, nearest_hint(name, known))
    module = f"{_PACKAGE}.{name}"
    found = transforms_in(import_on_demand(module)).get(name)
    if found is None:
        message = f"the module {module} holds no transform {name!r}"
        raise InternalError(message)
    return found


def make_transform(
    name: str, options: Mapping[str, Any], kind: type[Transform] | None = None
) -> Transform:
    """A transform with options of the types that its schema names; lists become tuples."""
    if kind is None:
        kind = transform_class(name)
    declared = structs.fields(kind)
    fields = [f.name for f in declared]
    for option in options:
        if option not in fields:
            message = f"the transform {name} has no parameter {option!r}"
            raise UsageError(message, nearest_hint(option, fields))
    for missing in (f.name for f in declared if f.required and f.name not in options):
        message = f"the transform {name} needs the parameter {missing!r}"
        raise UsageError(message, f"give it: {name}({missing}=...)")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(**values)


def refuse(name: str, message: str, hint: str = "") -> TransformError:
    """The error of a transform that cannot do its work."""
    return TransformError(f"{name}: {message}", hint)
