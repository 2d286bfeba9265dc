"""A bucket behind fsspec, here one in memory that can be told to fail."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.pipeline.remote import object_store
from mobileprep.building.pipeline.remote.guarded import Remote
from mobileprep.building.pipeline.remote.object_store import ObjectStoreBackend
from mobileprep.building.pipeline.remote.settings import RemoteSettings
from mobileprep.core.files import sha256_bytes

fsspec = pytest.importorskip("fsspec")

DATA = bytes(range(256)) * 64
KEY = sha256_bytes(DATA)
PATH = f"bucket/prefix/cas/{KEY}"

pytestmark = pytest.mark.usefixtures("_hasty")


class CodeError(Exception):
    """As gcsfs has them."""

    code = 401


class StatusError(Exception):
    """As Azure's library has them."""

    status_code = 403


class NoCredentialsError(Exception):
    """As botocore has it."""


class EndpointConnectionError(Exception):
    """As botocore has it, where nobody listens."""


class ProfileNotFound(Exception):  # noqa: N818 - its name
    """As botocore has it, for a misprint in AWS_PROFILE."""


class ClientAuthenticationError(Exception):
    """As Azure's library has it, where nobody is signed in."""


class Bucket:
    """What of an asynchronous file system is used."""

    def __init__(self, *, streams: bool) -> None:
        from fsspec.asyn import get_loop

        self.loop = get_loop()
        self.streams = streams
        self.objects: dict[str, bytes] = {}
        self.fault: Exception | None = None
        self.pause = 0.0

    async def _act(self, path: str) -> bytes:
        await asyncio.sleep(self.pause)
        if self.fault is not None:
            raise self.fault
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    async def open_async(self, path: str, mode: str) -> Stream:
        if not self.streams:
            raise NotImplementedError
        return Stream(self, path)

    async def _info(self, path: str) -> dict[str, Any]:
        return {"size": len(await self._act(path))}

    async def _cat_file(self, path: str, start: int, end: int) -> bytes:
        return (await self._act(path))[start:end]

    async def _put_file(self, source: str, path: str) -> None:
        self.objects.setdefault(path, b"")
        await self._act(path)
        self.objects[path] = Path(source).read_bytes()


class Stream:
    """An object that is read block by block."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        self._bucket, self._path, self._at = bucket, path, 0

    async def read(self, length: int) -> bytes:
        data = await self._bucket._act(self._path)
        self._at += length
        return data[self._at - length : self._at]

    async def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(params=[True, False], ids=["streams", "ranges"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(streams=request.param)
    monkeypatch.setattr(fsspec, "filesystem", lambda *args, **kwargs: made)
    monkeypatch.setattr(object_store, "_BLOCK", 5000)
    monkeypatch.setattr(object_store, "_RANGE", 5000)
    return made


@pytest.fixture
def remote() -> Remote:
    url = "gs://bucket/prefix/"
    return Remote(RemoteSettings(url), lambda: ObjectStoreBackend(url))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(DATA)
    return tmp_path / "source"


def test_uploaded_entry_is_downloaded(
    bucket: Bucket, remote: Remote, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    assert not remote.has("cas", KEY)
    assert not remote.fetch("cas", KEY, target, limit=1 << 20)
    assert remote.send("cas", KEY, source)
    assert bucket.objects == {PATH: DATA}
    assert remote.has("cas", KEY)
    assert remote.fetch("cas", KEY, target, limit=1 << 20)
    assert target.read_bytes() == DATA
    assert remote.warnings == ()
    assert not remote.fetch("cas", KEY, target, limit=len(DATA) - 1)


def test_wrong_bytes_are_refused(bucket: Bucket, remote: Remote, tmp_path: Path) -> None:
    bucket.objects[PATH] = DATA[:-1] + b"x"
    assert not remote.fetch("cas", KEY, tmp_path / "target", limit=1 << 20)
    assert "wrong bytes" in remote.warnings[0]


def test_a_damaged_object_of_ours_is_not_sent(bucket: Bucket, remote: Remote, source: Path) -> None:
    source.write_bytes(b"x")
    assert not remote.send("cas", KEY, source)
    assert bucket.objects == {}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (PermissionError("secret"), "refuses access: check its credentials; building"),
        (CodeError("secret"), "refuses access: check its credentials; building"),
        (StatusError("secret"), "refuses access: check its credentials; building"),
        (NoCredentialsError("secret"), "refuses access: check its credentials; building"),
        (ClientAuthenticationError("secret"), "refuses access: check its credentials; building"),
        (OSError("Forbidden: secret"), "refuses access: check its credentials; building"),
        (EndpointConnectionError("secret"), "cannot be reached; building"),
        (
            ProfileNotFound("secret"),
            "cannot be used as its library is set up here (ProfileNotFound); building",
        ),
        (Exception("secret"), "fails (Exception)"),
        (OSError("secret"), "fails (OSError)"),
        (KeyError("content-length"), "fails (KeyError)"),
        (TimeoutError(), "is too slow"),
    ],
)
def test_library_errors_are_reported_without_their_messages(
    bucket: Bucket, remote: Remote, tmp_path: Path, fault: Exception, told: str
) -> None:
    bucket.objects[PATH] = DATA
    bucket.fault = fault
    for _ in range(5):
        assert not remote.fetch("cas", KEY, tmp_path / "target", limit=1 << 20)
    assert told in remote.warnings[0]
    assert remote.warnings[-1].endswith("building without it")
    assert "secret" not in "".join(remote.warnings)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ValueError("secret"), "cannot be signed in to (ValueError): check its credentials"),
        (ImportError("secret", name="grpc"), "needs a library that cannot be loaded (grpc)"),
    ],
)
def test_a_library_that_cannot_sign_in_is_asked_once(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, told: str
) -> None:
    asked = []

    def unset(*_: object, **__: object) -> None:
        asked.append(1)
        raise fault

    monkeypatch.setattr(fsspec, "filesystem", unset)
    for _ in range(3):
        assert not remote.fetch("cas", KEY, tmp_path / "target", limit=1 << 20)
    [warning] = remote.warnings
    assert f"{told}; building without it" in warning
    assert asked == [1]


def test_a_library_that_looks_for_credentials_for_ever_is_not_waited_for(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    monkeypatch.setattr(fsspec, "filesystem", lambda *_, **__: found.wait(30))
    begun = time.monotonic()
    assert not remote.has("cas", KEY)
    found.set()
    assert time.monotonic() - begun < 10
    [warning] = remote.warnings
    assert "takes too long to be signed in to; building without it" in warning


@pytest.mark.usefixtures("bucket")
def test_library_logs_are_not_printed(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not remote.has("cas", KEY)
    monkeypatch.setattr(logging.root, "handlers", [])
    for name in ("gcsfs", "azure.identity", "asyncio", "aiobotocore", "fsspec"):
        logging.getLogger(name).error("secret", exc_info=OSError("secret"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("refusal", [PermissionError(), StatusError(), OSError("Forbidden: x")])
def test_a_bucket_that_may_not_be_written_is_still_read(
    bucket: Bucket,
    remote: Remote,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
) -> None:
    async def refused(*_: object) -> None:
        raise refusal

    bucket.objects[PATH] = DATA
    monkeypatch.setattr(bucket, "_put_file", refused)
    for _ in range(2):
        assert not remote.send("ac", KEY, source)
        assert remote.fetch("cas", KEY, tmp_path / "target", limit=1 << 20)
    [warning] = remote.warnings
    assert "does not let these credentials write; nothing more is sent" in warning


def test_a_bucket_that_does_not_answer_is_too_slow(
    bucket: Bucket, remote: Remote, source: Path, tmp_path: Path
) -> None:
    bucket.objects[PATH] = DATA
    bucket.pause = 30
    assert not remote.fetch("cas", KEY, tmp_path / "target", limit=1 << 20)
    assert not remote.send("ac", KEY, source)
    assert "is too slow" in remote.warnings[0]
