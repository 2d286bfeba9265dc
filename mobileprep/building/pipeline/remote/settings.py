"""Settings and credentials of the remote cache from the recipe, the environment, and netrc."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from mobileprep.errors import UsageError
from mobileprep.recipe.settings import CACHE_MODES, Cache

OFF: Final = "off"
HTTP: Final = ("http", "https")
OBJECT_STORES: Final = {"s3": "s3", "gs": "gcs", "az": "azure", "abfs": "azure"}
"""Extra that each URL scheme of an object store needs."""
FOLDER: Final = "file"
_SCHEMES = (*HTTP, *OBJECT_STORES, FOLDER)
_UNSEEN = re.compile(r"[^\x21-\x7e]")


class RemoteSettings(Struct, frozen=True):
    """Settings of a remote cache.

    Args:
        url: URL without user and password.
        read_only: whether to disable uploads.
        authorization: value of the HTTP header, or None; never displayed.
        ca_file: certificates to trust instead of the system's.
        notes: warnings about these settings for the user.
    """

    url: str
    read_only: bool = False
    authorization: str | None = None
    ca_file: Path | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"RemoteSettings({self.url!r})"  # without the secret


def remote_settings(cache: Cache | None, environ: Mapping[str, str]) -> RemoteSettings | None:
    """Return the remote cache of a build, or None. Environment variables override the recipe.

    Raises:
        UsageError: a setting is invalid.
    """
    mode = environ.get(MODE) or (cache.mode if cache is not None else CACHE_MODES[0])
    if mode not in (*CACHE_MODES, OFF):
        message = f"{mode!r} is not a mode of a remote cache"
        raise UsageError(message, f"write one of {', '.join((*CACHE_MODES, OFF))}", MODE)
    named = environ.get(URL) or (cache.remote if cache is not None else None)
    if named is None or mode == OFF:
        return None
    parts = _address(named, URL if environ.get(URL) else "cache.remote")
    read_only = mode == "read-only"
    if parts.scheme not in HTTP:
        return RemoteSettings(named, read_only)
    authorization, notes = _authorization(parts, environ)
    ca_file = environ.get(CA)
    return RemoteSettings(
        parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
        read_only,
        authorization,
        Path(ca_file) if ca_file else None,
        notes,
    )


def _address(named: str, where: str) -> SplitResult:
    hint = "write one such as https://cache.example.com/mobileprep or s3://bucket/prefix"
    if _UNSEEN.search(named):
        message = "the address of the remote store has spaces or letters that no address has"
        raise UsageError(message, hint, where)
    try:
        parts = urlsplit(named)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        # The message may contain the password.
        message = "the address of the remote store cannot be read"
        raise UsageError(message, hint, where) from error
    if parts.scheme not in _SCHEMES:
        message = f"a remote store is at one of {', '.join(f'{s}://' for s in _SCHEMES)}"
        raise UsageError(message, hint, where)
    if parts.scheme not in HTTP and parts.password is not None:
        message = "the address of the remote store has a secret, which such a store does not take"
        hint = "sign in as the tools of that store do, by the environment or their own files"
        raise UsageError(message, hint, where)
    if parts.query or parts.fragment:
        message = "the address of a remote store has no '?' and no '#'"
        raise UsageError(message, "give its folder alone", where)
    is_folder = parts.path.startswith("/") and "\0" not in unquote(parts.path)
    if (parts.scheme == FOLDER) == bool(host) or (parts.scheme == FOLDER and not is_folder):
        message = "the address of the remote store names no host, bucket or folder"
        raise UsageError(message, f"{hint}, or file:///folder", where)
    return parts


def _authorization(
    parts: SplitResult, environ: Mapping[str, str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the header's value from the token, the URL, or netrc (in this order), and warnings."""
    token = environ.get(TOKEN, "").strip()
    header = None
    if token:
        if _UNSEEN.search(token):
            message = "the token has letters that cannot be sent"
            raise UsageError(message, "give the token alone, without spaces or line ends", TOKEN)
        header = f"Bearer {token}"
    elif parts.username is not None:
        header = _basic(unquote(parts.username), unquote(parts.password or ""))
    is_safe = parts.scheme == "https" or _is_loopback(str(parts.hostname))
    is_safe = _is_plain_allowed(environ) or is_safe
    if header is not None:
        if not is_safe:
            message = f"a token or password would go to {parts.hostname} in the clear"
            hint = f"use https://, or set {PLAIN_TOKEN}=1 where the network can be trusted"
            raise UsageError(message, hint, URL)
        return header, ()
    credentials, note = _from_netrc(str(parts.hostname), environ)
    if credentials is not None and not is_safe:
        return None, (f"the password of netrc is not sent to {parts.hostname} in the clear",)
    return credentials, (note,) if note else ()


def _is_plain_allowed(environ: Mapping[str, str]) -> bool:
    """Return whether secrets may be sent unencrypted; reject ambiguous values."""
    setting = environ.get(PLAIN_TOKEN, "")
    if setting not in ("", "1"):
        message = f"{setting!r} is neither 1 nor empty"
        raise UsageError(message, "set it to 1 where the network can be trusted", PLAIN_TOKEN)
    return setting == "1"


def _is_loopback(host: str) -> bool:
    import ipaddress  # slow to import, and few builds need it

    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _from_netrc(host: str, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the host's credentials in netrc and a warning; ignore netrc's ``default`` entry."""
    import netrc  # slow to import

    try:
        file = Path(environ.get("NETRC") or Path.home() / ".netrc")
    except RuntimeError:  # no home directory
        return None, ""
    try:
        # An explicit file name skips netrc's permission check, which covers other hosts too.
        login = netrc.netrc(str(file)).hosts.get(host)
    except FileNotFoundError:
        return None, ""
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError):
        # The reason may contain a password.
        return None, f"{file} cannot be read and is ignored"
    return (_basic(login[0], login[2] or ""), "") if login is not None else (None, "")


URL: Final = "MOBILEPREP_REMOTE_CACHE"
MODE: Final = "MOBILEPREP_REMOTE_CACHE_MODE"
TOKEN: Final = "MOBILEPREP_REMOTE_TOKEN"
PLAIN_TOKEN: Final = "MOBILEPREP_REMOTE_PLAIN_TOKEN"
CA: Final = "MOBILEPREP_REMOTE_CA"
