"""From settings to a remote store."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.pipeline.remote.base import Backend, Remote
from mobileprep.pipeline.remote.guarded import GuardedRemote
from mobileprep.pipeline.remote.settings import FOLDER, HTTP, OBJECT_STORES, RemoteSettings
from mobileprep.pipeline.remote.variables import CA

# What each extra brings; the schemes of HTTP need "remote".
_LIBRARIES = {
    "remote": ("urllib3",),
    "s3": ("fsspec", "s3fs"),
    "gcs": ("fsspec", "gcsfs"),
    "azure": ("fsspec", "adlfs"),
}


def open_remote(settings: RemoteSettings | None) -> Remote | None:
    """The store that settings name; None for none. Nothing is sent before it is first used.

    Raises:
        UnsupportedError: the library for such a store is not installed.
        UsageError: the file of certificates cannot be read.
    """
    if settings is None:
        return None
    scheme = urlsplit(settings.url).scheme
    if scheme != FOLDER:
        _check_installed("remote" if scheme in HTTP else OBJECT_STORES[scheme], settings.url)
    if settings.ca_file is not None:
        _check_certificates(settings.ca_file)
    return GuardedRemote(settings, lambda: _backend(settings, scheme))


def _check_installed(extra: str, url: str) -> None:
    for library in _LIBRARIES[extra]:
        if find_spec(library) is None:
            message = f"the remote store needs {library}, which is not installed"
            raise UnsupportedError(message, f"pip install 'mobileprep[{extra}]'", url)


def _check_certificates(file: Path) -> None:
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        message = f"{file} holds no certificates that can be read: {error.strerror or error}"
        raise UsageError(message, "name a file of certificates in PEM form", CA) from error


def _backend(settings: RemoteSettings, scheme: str) -> Backend:
    if scheme in HTTP:
        from mobileprep.pipeline.remote.http import HttpBackend

        return HttpBackend(settings)
    if scheme == FOLDER:
        from mobileprep.pipeline.remote.folder import FolderBackend

        return FolderBackend(Path(unquote(urlsplit(settings.url).path)))
    from mobileprep.pipeline.remote.object_store import ObjectStoreBackend

    return ObjectStoreBackend(settings.url)
