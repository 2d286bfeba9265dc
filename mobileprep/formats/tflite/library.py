"""Importing flatbuffers and the classes of the format, which need not be installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from mobileprep.errors import UnsupportedError

_INSTALL: Final = "pip install 'mobileprep[tflite]'"


def flatbuffers_module() -> Any:  # noqa: ANN401 - a module of a library without types
    """The library flatbuffers.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return importlib.import_module("flatbuffers")
    except ImportError as error:
        message = "flatbuffers is not installed, which .tflite files are read and written with"
        raise UnsupportedError(message, _INSTALL) from error


def schema_module() -> Any:  # noqa: ANN401 - made by flatc, without types
    """The classes of the format.

    Raises:
        UnsupportedError: flatbuffers is not installed.
    """
    flatbuffers_module()
    return importlib.import_module("mobileprep.formats.tflite.schema_generated")


def flexbuffer(options: Mapping[str, int | bool | float]) -> bytes:
    """Options of a custom operator as it reads them: a map in FlexBuffers.

    Raises:
        UnsupportedError: flatbuffers is not installed.
    """
    flatbuffers_module()
    dumps = importlib.import_module("flatbuffers.flexbuffers").Dumps
    return bytes(dumps(dict(sorted(options.items()))))
