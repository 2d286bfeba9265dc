"""The remote cache with real servers, behind a proxy that injects faults."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mobileprep.building.pipeline.remote import base, guarded
from mobileprep.building.pipeline.remote.guarded import Remote, open_remote
from mobileprep.building.pipeline.remote.settings import RemoteSettings, remote_settings
from mobileprep.core.files import sha256_bytes
from tests.building.pipeline.remote.transfers import Offered, Wanted, fetch_many, send_many
from tests.reference.fault_proxy import FAULTS, FaultProxy, proxy_to
from tests.reference.remote_servers import free_port, nginx, s3

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to/remote-cache.md"
PLAIN_DAV = """server {{
    listen 127.0.0.1:{port}; root {root}; client_max_body_size 2m;
    location / {{ dav_methods PUT MKCOL; }}
}}"""
ROOM = 8 << 20


class Place(NamedTuple):
    """A server behind a proxy."""

    url: str
    proxy: FaultProxy


@pytest.fixture
def files(tmp_path: Path) -> list[Offered]:
    """Objects of several sizes, and a record."""
    generator, objects = random.Random(3), []
    (tmp_path / "own").mkdir()
    for size in (0, 1, 1000, 70_000, 1_000_000, *[20_000] * 20):
        data = generator.randbytes(size)
        path = tmp_path / "own" / sha256_bytes(data)
        path.write_bytes(data)
        objects.append(Offered("cas", path.name, path))
    return [*objects, Offered("ac", "5" * 64, objects[3].source)]


@pytest.fixture(params=["nginx", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    (tmp_path / "served").mkdir()
    (tmp_path / "server").mkdir()
    if request.param == "nginx":
        port = free_port()
        served = PLAIN_DAV.format(port=port, root=tmp_path / "served")
        with nginx(tmp_path / "server", served, port), proxy_to("127.0.0.1", port) as proxy:
            yield Place(f"http://{proxy.address}", proxy)
        return
    with s3(tmp_path / "server") as port, proxy_to("127.0.0.1", port) as proxy:
        import s3fs

        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        direct = s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}")
        direct.mkdir("bucket")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{proxy.address}")
        yield Place("s3://bucket/prefix", proxy)


def open_checked(url: str, **settings: object) -> Remote:
    remote = open_remote(RemoteSettings(url, **settings))  # type: ignore[arg-type]
    assert remote is not None
    return remote


def fetch_requests(files: list[Offered], folder: Path) -> list[Wanted]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return [Wanted(f.kind, f.key, folder / f"{f.kind}-{f.key}", ROOM) for f in files]


def check(files: list[Offered], requests: list[Wanted], done: list[bool]) -> None:
    """Check that fetched objects are correct, and that failed ones leave no file."""
    for file, entry, came in zip(files, requests, done, strict=True):
        assert came == entry.target.exists()
        if came and file.kind == "cas":
            assert sha256_bytes(entry.target.read_bytes()) == file.key


def test_machines_share_objects(place: Place, files: list[Offered], tmp_path: Path) -> None:
    one, other = open_checked(place.url), open_checked(place.url, read_only=True)
    requests = fetch_requests(files, tmp_path / "other")
    assert not any(fetch_many(other, requests))
    assert not any(send_many(other, files))
    assert all(send_many(one, files))
    assert all(send_many(one, files))
    assert all(one.has(f.kind, f.key) for f in files)
    assert not one.has("cas", "0" * 64)
    assert all(fetch_many(other, requests))
    for file, entry in zip(files, requests, strict=True):
        assert entry.target.read_bytes() == file.source.read_bytes()
    assert not other.fetch("cas", files[4].key, tmp_path / "small", limit=999_999)
    assert one.warnings == ()
    assert [w.split(" ", 4)[4] for w in other.warnings] == [
        "has entries that are longer than they can be"
    ]


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("fault", FAULTS)
def test_network_faults_are_harmless(
    place: Place,
    files: list[Offered],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    share: float,
) -> None:
    assert all(send_many(open_checked(place.url), files))
    place.proxy.fault, place.proxy.share = fault, share
    remote, requests = open_checked(place.url), fetch_requests(files, tmp_path / "other")
    start = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(base, "SILENT_SECONDS", 1.0)
        patch.setattr(guarded, "FIRST_PAUSE", 0.001)
        done = fetch_many(remote, requests)
        send_many(remote, files)
    assert time.monotonic() - start < 60
    check(files, requests, done)
    assert all(place.url in warning for warning in remote.warnings)
    assert len(remote.warnings) <= 6
    place.proxy.fault = None
    requests = fetch_requests(files, tmp_path / "other")
    healthy = open_checked(place.url)
    done = fetch_many(healthy, requests)
    check(files, requests, done)
    assert healthy.warnings == ()
    assert all(done)


def test_rejected_upload_is_reported(tmp_path: Path, files: list[Offered]) -> None:
    port = free_port()
    (tmp_path / "served").mkdir()
    with nginx(tmp_path, PLAIN_DAV.format(port=port, root=tmp_path / "served"), port):
        remote = open_checked(f"http://127.0.0.1:{port}")
        data = bytes(3 << 20)
        (tmp_path / "large").write_bytes(data)
        assert not remote.send("cas", sha256_bytes(data), tmp_path / "large")
        assert "does not take" in remote.warnings[0]
        assert all(send_many(remote, files))


def test_lost_server_is_reported(tmp_path: Path, files: list[Offered]) -> None:
    port = free_port()
    (tmp_path / "served").mkdir()
    with nginx(tmp_path, PLAIN_DAV.format(port=port, root=tmp_path / "served"), port) as server:
        remote = open_checked(f"http://127.0.0.1:{port}")
        assert all(send_many(remote, files))
        server.kill()
        server.wait()
        requests = fetch_requests(files, tmp_path / "other")
        assert not any(fetch_many(remote, requests))
    assert remote.warnings == (
        f"the remote store http://127.0.0.1:{port} cannot be reached; building without it",
    )


def test_missing_bucket_is_reported(place: Place, files: list[Offered]) -> None:
    if not place.url.startswith("s3"):
        pytest.skip("applies to S3 only")
    remote = open_checked("s3://no-such-bucket/x")
    assert not any(send_many(remote, files))
    assert any("bucket" in w or "nothing more is sent" in w for w in remote.warnings)


def test_documented_nginx_configuration(tmp_path: Path, files: list[Offered]) -> None:
    """TLS with a self-signed certificate, public reads, and writes with a token."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "cert"]
    subprocess.run([*make.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    port, root = free_port(), tmp_path / "served"
    root.mkdir()
    [shown] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for place, ours in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/cache.pem": str(tmp_path / "cert"),
        "/etc/ssl/cache.key": str(tmp_path / "key"),
        "/srv/mobileprep": str(root),
    }.items():
        assert place in shown
        shown = shown.replace(place, ours)
    environ = {
        "MOBILEPREP_REMOTE_CACHE": f"https://localhost:{port}/mobileprep",
        "MOBILEPREP_REMOTE_CA": str(tmp_path / "cert"),
        "NETRC": str(tmp_path / "none"),
    }
    with nginx(tmp_path, shown, port):
        reader = open_remote(remote_settings(None, environ))
        writer = open_remote(
            remote_settings(None, {**environ, "MOBILEPREP_REMOTE_TOKEN": "change-me"})
        )
        untrusting = open_checked(environ["MOBILEPREP_REMOTE_CACHE"])
        assert reader is not None
        assert writer is not None
        assert all(send_many(writer, files))
        assert not reader.send("ac", "7" * 64, files[2].source)
        assert all(fetch_many(reader, fetch_requests(files, tmp_path / "other")))
        assert not any(fetch_many(untrusting, fetch_requests(files, tmp_path / "other")))
    assert "refuses uploads (403)" in reader.warnings[0]
    assert "cannot be trusted" in untrusting.warnings[0]
