"""The environment of the templates of generated code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from mobileprep.errors import InternalError, UnsupportedError
from mobileprep.targets.integration import texts
from mobileprep.targets.integration.texts import Code

if TYPE_CHECKING:
    import jinja2


@cache
def environment() -> jinja2.Environment:
    """Return the template environment. Strings that no filter has quoted are errors, not code."""
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        message = "code for apps needs Jinja, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[integration]'") from error
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.PackageLoader("mobileprep.targets.integration"),
        undefined=jinja2.StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # HTML escapes are useless inside quotes of these languages. _finished checks instead.
        autoescape=False,
    )
    filters: dict[str, Callable[..., Code]] = {
        "java": texts.java_text,
        "kotlin": texts.kotlin_text,
        "c": texts.c_text,
        "swift": texts.swift_text,
        "shell": texts.shell_text,
        "float": texts.float_text,
        "number": texts.number_text,
        "dims": texts.dims_text,
    }
    environment.filters.update(filters)
    return environment


def _finished(value: object) -> object:
    """Return the value of a template expression, if it is safe to write."""
    if isinstance(value, (Code, int)):
        return value
    message = f"a template writes {value!r} without a filter for its language"
    raise InternalError(message)
