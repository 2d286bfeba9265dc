"""Which store, in which mode, with which secret, and to whom it goes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from mobileprep.building.pipeline.remote import guarded
from mobileprep.building.pipeline.remote.guarded import open_remote
from mobileprep.building.pipeline.remote.settings import RemoteSettings, remote_settings
from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.recipe.settings import Cache

URL = "https://store.example.com/mobileprep"


@pytest.fixture
def netrc(tmp_path: Path) -> Path:
    return tmp_path / "netrc"


def of(netrc: Path, url: str = URL, **more: str) -> RemoteSettings:
    environ = {"MOBILEPREP_REMOTE_CACHE": url, "NETRC": str(netrc)}
    found = remote_settings(None, environ | {f"MOBILEPREP_REMOTE_{k}": v for k, v in more.items()})
    assert found is not None
    return found


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_without_an_address_there_is_none() -> None:
    assert remote_settings(None, {}) is None
    assert remote_settings(None, {"MOBILEPREP_REMOTE_CACHE": ""}) is None
    assert open_remote(None) is None


RECIPE, ENVIRON = "MOBILEPREP_REMOTE_CACHE", "MOBILEPREP_REMOTE_CACHE_MODE"


@pytest.mark.parametrize(
    ("cache", "environ", "url", "read_only"),
    [
        (Cache(URL), {}, URL, False),
        (Cache(URL, "read-only"), {}, URL, True),
        (Cache(URL), {ENVIRON: "read-only"}, URL, True),
        (Cache(URL, "read-only"), {ENVIRON: "read-write"}, URL, False),
        (Cache(URL, "read-only"), {RECIPE: "https://other"}, "https://other", True),
        (None, {RECIPE: "file:///shared", ENVIRON: "read-only"}, "file:///shared", True),
        (None, {RECIPE: "s3://bucket/a"}, "s3://bucket/a", False),
    ],
)
def test_the_environment_goes_before_the_recipe(
    cache: Cache | None, environ: Mapping[str, str], url: str, read_only: bool, netrc: Path
) -> None:
    found = remote_settings(cache, {"NETRC": str(netrc), **environ})
    assert found == RemoteSettings(url, read_only)


def test_the_environment_can_turn_it_off() -> None:
    assert remote_settings(Cache(URL), {ENVIRON: "off"}) is None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "store.example.com",
        "https://",
        "https:///path",
        "file://host/x",
        "file:x",
        "file:///x%00",
        "s3:///x",
        "https://host/x?token=1",
        "https://host/x#y",
        "https://host:port/x",
        "https://host/a b",
        "https://host/a\nb",
        "https://[::1/x",
        "https://user:secret@[::1/x",
    ],
)
def test_invalid_address_is_refused_and_not_printed(url: str, netrc: Path) -> None:
    with pytest.raises(UsageError) as caught:
        of(netrc, url)
    assert caught.value.where == RECIPE
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "abfs", "file"])
@pytest.mark.parametrize("secret", ["secret", "sec/ret+secret", ""])
def test_only_addresses_of_http_may_have_a_password(scheme: str, secret: str, netrc: Path) -> None:
    with pytest.raises(UsageError) as caught:
        of(netrc, f"{scheme}://key:{secret}@bucket/x")
    assert "secret" not in str(caught.value).replace("has a secret,", "")
    assert of(netrc, "abfs://container@account/x").url == "abfs://container@account/x"


def test_a_mode_that_there_is_not_is_refused(netrc: Path) -> None:
    with pytest.raises(UsageError, match="'write' is not a mode"):
        of(netrc, CACHE_MODE="write")


def test_a_token_is_sent_as_bearer_and_never_shown(netrc: Path) -> None:
    found = of(netrc, TOKEN=" secret\n")
    assert found.authorization == "Bearer secret"
    assert "secret" not in repr(found)


def test_a_token_cannot_hold_a_header(netrc: Path) -> None:
    with pytest.raises(UsageError) as caught:
        of(netrc, TOKEN="secret\r\nX: y")
    assert "secret" not in str(caught.value)


def test_a_password_in_the_address_leaves_it(netrc: Path) -> None:
    found = of(netrc, "https://me:a%40b@store.example.com:8443/x")
    assert found.url == "https://store.example.com:8443/x"
    assert found.authorization == basic("me:a@b")


@pytest.mark.parametrize("url", ["http://host/x", "http://me:secret@host/x"])
def test_no_secret_goes_out_in_the_clear(url: str, netrc: Path) -> None:
    with pytest.raises(UsageError, match="in the clear") as caught:
        of(netrc, url, TOKEN="secret")
    assert "secret" not in str(caught.value)
    assert of(netrc, url, TOKEN="secret", PLAIN_TOKEN="1").authorization == "Bearer secret"


@pytest.mark.parametrize("text", ["0", "false", "no", "yes", " 1"])
@pytest.mark.parametrize("url", ["http://host/x", URL])
def test_only_a_one_lets_secrets_out_in_the_clear(text: str, url: str, netrc: Path) -> None:
    with pytest.raises(UsageError, match="neither 1 nor empty") as caught:
        of(netrc, url, TOKEN="secret", PLAIN_TOKEN=text)
    assert caught.value.where == "MOBILEPREP_REMOTE_PLAIN_TOKEN"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9:80", "[::1]:99"])
def test_loopback_needs_no_encryption(host: str, netrc: Path) -> None:
    assert of(netrc, f"http://{host}/x", TOKEN="t").authorization == "Bearer t"


def test_netrc_has_passwords_of_hosts(netrc: Path) -> None:
    netrc.write_text(
        "machine store.example.com login me password secret\ndefault login x password y\n"
    )
    assert of(netrc).authorization == basic("me:secret")
    assert of(netrc, TOKEN="t").authorization == "Bearer t"
    assert of(netrc, "https://other.example.com").authorization is None
    plain = of(netrc, "http://store.example.com")
    assert plain.authorization is None
    assert plain.notes == ("the password of netrc is not sent to store.example.com in the clear",)


def test_a_user_without_a_home_has_no_netrc(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", unknown)
    assert remote_settings(Cache(URL), {}) == RemoteSettings(URL)


@pytest.mark.parametrize("text", [b"machine store.example.com secret\n", b"\xff\xfe secret"])
def test_unreadable_netrc_is_reported_without_its_content(netrc: Path, text: bytes) -> None:
    netrc.write_bytes(text)
    found = of(netrc)
    assert found.authorization is None
    remote = open_remote(found)
    assert remote is not None
    [note] = remote.warnings
    assert note == f"the remote store {URL}: {netrc} cannot be read and is ignored"


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "find_spec", lambda name: None)
    extras = {"https://h": "remote", "s3://b": "s3", "gs://b": "gcs", "az://b": "azure"}
    for url, extra in extras.items():
        with pytest.raises(UnsupportedError, match="is not installed") as caught:
            open_remote(RemoteSettings(url))
        assert caught.value.hint == f"pip install 'mobileprep[{extra}]'"
    assert open_remote(RemoteSettings("file:///shared")) is not None


def test_invalid_certificates_are_reported_immediately(tmp_path: Path) -> None:
    for file in (tmp_path / "none", tmp_path, Path(__file__)):
        with pytest.raises(UsageError, match="no certificates that can be read") as caught:
            open_remote(RemoteSettings(URL, ca_file=file))
        assert caught.value.where == "MOBILEPREP_REMOTE_CA"
