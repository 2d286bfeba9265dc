"""A remote store over HTTP, and what servers and lines do to it: no fault may do harm."""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mobileprep.building.pipeline.remote.base import Kind
from mobileprep.building.pipeline.remote.guarded import Remote, open_remote
from mobileprep.building.pipeline.remote.settings import RemoteSettings
from mobileprep.core.files import sha256_bytes
from tests.building.pipeline.remote import faulty_server as fault
from tests.building.pipeline.remote.faulty_server import Answer, Server, serving

DATA = bytes(range(256)) * 1024
KEY = sha256_bytes(DATA)
OBJECT = f"/store/cas/{KEY}"
ROOM = 1 << 20

pytestmark = pytest.mark.usefixtures("_hasty")


def remote_at(url: str, **settings: object) -> Remote:
    remote = open_remote(RemoteSettings(url, **settings))  # type: ignore[arg-type]
    assert remote is not None
    return remote


@pytest.fixture
def remote(server: Server) -> Remote:
    return remote_at(server.url)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


def test_uploaded_entry_is_downloaded(
    server: Server, remote: Remote, source: Path, target: Path
) -> None:
    assert not remote.has("cas", KEY)
    assert not remote.fetch("cas", KEY, target, limit=ROOM)
    assert not target.exists()
    assert remote.send("cas", KEY, source)
    assert server.entries == {OBJECT: DATA}
    assert remote.has("cas", KEY)
    assert remote.fetch("cas", KEY, target, limit=len(DATA))
    assert target.read_bytes() == DATA
    assert remote.warnings == ()


def test_one_connection_serves_many_exchanges(server: Server, remote: Remote, target: Path) -> None:
    server.entries[OBJECT] = DATA
    ports = set()

    def noted(handler: fault.Handler) -> None:
        ports.add(handler.client_address[1])
        handler.plain(404, b"not here") if len(ports) == 5 else handler.plain(200, DATA)

    server.script = {"GET": [noted], "HEAD": [noted]}
    for _ in range(3):
        assert remote.fetch("cas", KEY, target, limit=ROOM)
        assert remote.has("cas", KEY)
    assert len(ports) == 1


def test_objects_that_are_there_are_not_sent_again_and_records_are(
    server: Server, remote: Remote, source: Path
) -> None:
    for one in (remote, remote, remote_at(server.url)):
        assert one.send("cas", KEY, source)
        assert one.send("ac", "a" * 64, source)
    assert server.methods() == ["HEAD", "PUT", "PUT", "PUT", "HEAD", "PUT"]


def test_an_object_of_another_length_is_sent_again(
    server: Server, remote: Remote, source: Path
) -> None:
    server.entries[OBJECT] = DATA[:100]
    assert remote.send("cas", KEY, source)
    assert server.entries[OBJECT] == DATA


def test_an_object_that_was_found_wrong_is_sent_again(
    server: Server, remote: Remote, source: Path, target: Path
) -> None:
    server.entries[OBJECT] = bytes(len(DATA))
    assert not remote.fetch("cas", KEY, target, limit=ROOM)
    assert remote.send("cas", KEY, source)
    assert server.entries[OBJECT] == DATA


def test_one_object_that_is_wrong_is_asked_for_once_and_costs_no_other(
    server: Server, remote: Remote, source: Path, target: Path
) -> None:
    wrong = "0" * 64
    server.entries = {OBJECT: DATA, f"/store/cas/{wrong}": DATA}
    for _ in range(9):
        assert not remote.fetch("cas", wrong, target, limit=ROOM)
    assert not remote.has("cas", wrong)
    assert server.methods() == ["GET"]
    assert remote.fetch("cas", KEY, target, limit=ROOM)
    [warning] = remote.warnings
    assert warning.endswith("gives wrong bytes, which were not used")


def test_a_store_whose_objects_all_rotted_is_mended(server: Server, tmp_path: Path) -> None:
    data = {sha256_bytes(bytes([i])): bytes([i]) for i in range(9)}
    server.entries = {f"/store/cas/{key}": b"?" for key in data}
    remote = remote_at(server.url)
    done = [remote.fetch("cas", key, tmp_path / "target", limit=1) for key in data]
    assert not any(done)
    [warning] = remote.warnings
    assert warning.endswith("gives wrong bytes, which were not used")
    for key, own in data.items():
        (tmp_path / key).write_bytes(own)
        assert remote.send("cas", key, tmp_path / key)
        assert remote.send("cas", key, tmp_path / key)
    assert server.methods() == ["GET"] * 9 + ["PUT"] * 9
    assert server.entries == {f"/store/cas/{key}": own for key, own in data.items()}


def test_a_damaged_object_of_ours_is_not_sent(server: Server, remote: Remote, source: Path) -> None:
    source.write_bytes(bytes(len(DATA)))
    assert not remote.send("cas", KEY, source)
    assert server.entries == {}
    [warning] = remote.warnings
    assert "damaged" in warning


def test_an_empty_object_goes_there_and_back(
    server: Server, remote: Remote, source: Path, target: Path
) -> None:
    source.write_bytes(b"")
    assert remote.send("cas", sha256_bytes(b""), source)
    assert remote.fetch("cas", sha256_bytes(b""), target, limit=0)
    assert target.read_bytes() == b""


def test_missing_source_is_reported(server: Server, remote: Remote, tmp_path: Path) -> None:
    assert not remote.send("ac", KEY, tmp_path / "none")
    assert not remote.send("cas", KEY, tmp_path / "none")
    assert server.entries == {}
    [warning] = remote.warnings
    assert warning.endswith(f"with the remote store {server.url}: No such file or directory")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_full_disk_does_not_disable_the_remote_cache(
    server: Server, remote: Remote, target: Path
) -> None:
    server.entries[OBJECT] = DATA
    for _ in range(5):
        target.symlink_to("/dev/full")  # the link is what a failed fetch removes
        assert not remote.fetch("cas", KEY, target, limit=ROOM)
        assert not target.is_symlink()
    [warning] = remote.warnings
    assert "No space left" in warning
    assert remote.has("cas", KEY)


def test_a_read_only_store_gets_nothing(server: Server, source: Path, target: Path) -> None:
    remote = remote_at(server.url, read_only=True)
    assert not remote.send("cas", KEY, source)
    assert server.requests == []
    server.entries[OBJECT] = DATA
    assert remote.fetch("cas", KEY, target, limit=ROOM)


@pytest.mark.parametrize("key", ["", "x", "../../etc/passwd", KEY.upper(), KEY + "\n", f"{KEY}/x"])
def test_invalid_key_is_not_requested(
    server: Server, remote: Remote, source: Path, target: Path, key: str
) -> None:
    assert not remote.fetch("cas", key, target, limit=ROOM)
    assert not remote.has("ac", key)
    assert not remote.send("cas", key, source)
    assert server.requests == []


def test_entry_over_the_limit_is_refused(server: Server, remote: Remote, target: Path) -> None:
    server.entries["/store/ac/" + KEY] = server.entries[OBJECT] = DATA
    kinds: tuple[Kind, ...] = ("ac", "cas")
    for kind in kinds:
        assert not remote.fetch(kind, KEY, target, limit=len(DATA) - 1)
        assert not target.exists()
    assert remote_at(server.url).fetch("ac", KEY, target, limit=len(DATA))


PASSING: dict[str, Answer] = {
    "cut": fault.cut,
    "reset": fault.reset,
    "503": fault.status(503),
    "429": fault.status(429),
    "short": fault.shorter_than_told,
    "no HTTP": fault.raw(b"SSH-2.0-OpenSSH\r\n"),
}


@pytest.mark.parametrize("name", PASSING)
def test_temporary_status_is_retried(
    server: Server, remote: Remote, target: Path, name: str
) -> None:
    server.entries[OBJECT] = DATA
    server.script["GET"] = [PASSING[name], PASSING[name], fault.KEEP["GET"]]
    assert remote.fetch("cas", KEY, target, limit=ROOM)
    assert target.read_bytes() == DATA
    assert remote.warnings == ()


@pytest.mark.parametrize("code", [408, 425, 429, 503])
def test_upload_is_retried_after_a_temporary_status(
    server: Server, remote: Remote, source: Path, code: int
) -> None:
    server.script["PUT"] = [fault.status(code), fault.KEEP["PUT"]]
    assert remote.send("cas", KEY, source)
    assert server.entries[OBJECT] == DATA
    assert remote.warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["GET", "PUT"])
def test_retry_after_is_respected(
    server: Server, remote: Remote, source: Path, target: Path, way: str
) -> None:
    asked = [fault.status(503, Retry_After="1"), fault.KEEP[way]]
    server.entries[OBJECT] = DATA if way == "GET" else b""
    server.script[way] = asked
    begun = time.monotonic()
    if way == "GET":
        assert remote.fetch("cas", KEY, target, limit=ROOM)
    else:
        assert remote.send("cas", KEY, source)
    assert time.monotonic() - begun >= 1
    assert remote.warnings == ()


@pytest.mark.parametrize("after", ["3600", "9" * 40, "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_pause_longer_than_a_build_waits_ends_the_store(
    server: Server, remote: Remote, target: Path, after: str
) -> None:
    server.script["GET"] = [fault.status(429, Retry_After=after)]
    assert not remote.fetch("cas", KEY, target, limit=ROOM)
    assert not remote.has("cas", KEY)
    assert server.methods() == ["GET"]
    [warning] = remote.warnings
    assert "answers 429 and asks clients to wait for" in warning
    assert warning.endswith("; building without it")


@pytest.mark.parametrize("after", ["", "soon", "-5", "0", "9" * 5000, "Fri, 31 Dec 1999"])
def test_a_pause_that_says_nothing_is_passed_over(
    server: Server, remote: Remote, target: Path, after: str
) -> None:
    server.entries[OBJECT] = DATA
    server.script["GET"] = [fault.status(503, Retry_After=after), fault.KEEP["GET"]]
    assert remote.fetch("cas", KEY, target, limit=ROOM)
    assert remote.warnings == ()


def test_a_pause_is_broken_off(server: Server, remote: Remote, target: Path) -> None:
    server.script["GET"] = [fault.status(503, Retry_After="15")]
    done: list[bool] = []
    fetching = threading.Thread(
        target=lambda: done.append(remote.fetch("cas", KEY, target, limit=ROOM))
    )
    fetching.start()
    while not server.requests:
        time.sleep(0.01)
    remote.stop()
    fetching.join(10)
    assert done == [False]


@pytest.mark.parametrize(
    ("code", "is_taken"), [(200, True), (201, True), (204, True), (299, True), (202, False)]
)
def test_accepted_upload_is_not_complete(
    server: Server, remote: Remote, source: Path, code: int, is_taken: bool
) -> None:
    server.script["PUT"] = [fault.status(code, b"")]
    assert remote.send("cas", KEY, source) == is_taken
    assert bool(remote.warnings) != is_taken


LASTING: dict[str, tuple[Answer, str]] = {
    "cut": (fault.cut, "breaks off"),
    "reset": (fault.reset, "breaks off"),
    "500": (fault.status(500), "answers 500"),
    "206": (fault.status(206, DATA), "answers 206"),
    "204": (fault.status(204, b""), "answers 204"),
    "101": (fault.raw(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), "answers 101"),
    "103": (fault.raw(b"HTTP/1.1 103 Early Hints\r\n\r\n"), "answers 103"),
    "401": (fault.status(401), "refuses access"),
    "302": (fault.status(302, Location="http://127.0.0.2/x"), "sends elsewhere"),
    "304": (fault.status(304, b""), "sends elsewhere"),
    "loop": (fault.status(301, Location=OBJECT), "sends elsewhere"),
    "shorter": (fault.shorter_than_told, "breaks off"),
    "lengths": (
        fault.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        "breaks off",
    ),
    "negative chunk": (
        fault.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n" + bytes(99)),
        "",
    ),
    "gzip": (fault.status(200, DATA, Content_Encoding="gzip"), ""),
    "no answer": (lambda handler: time.sleep(1), "is too slow"),
    "drip": (
        fault.repeated(b"HTTP/1.1 200 OK\r\nContent-Length: 262144\r\n\r\n", b"x", 0.05, most=99),
        "is too slow",
    ),
}


WRONG: dict[str, tuple[Answer, str]] = {
    "flipped": (fault.flipped, "wrong bytes"),
    "error page": (fault.status(200), "wrong bytes"),
    "longer": (fault.longer_than_told, "wrong bytes"),
    "endless": (fault.endless, "longer than they can be"),
    "huge": (fault.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), "longer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LASTING | WRONG)
def test_permanent_failure_is_reported_once(
    server: Server, remote: Remote, target: Path, name: str
) -> None:
    data = {sha256_bytes(DATA[i:]): DATA[i:] for i in range(20)}
    server.entries = {f"/store/cas/{key}": own for key, own in data.items()}
    answer, told = (LASTING | WRONG)[name]
    server.script["GET"] = [answer]
    begun = time.monotonic()
    for key, own in data.items():
        if remote.fetch("cas", key, target, limit=ROOM):
            assert target.read_bytes() == own
        else:
            assert not target.exists()
    assert time.monotonic() - begun < 5
    if told:
        assert told in remote.warnings[0]
        assert server.url in remote.warnings[0]
    if name in WRONG:
        assert len(remote.warnings) == 1
    elif told:
        assert len(remote.warnings) <= 2
        assert remote.warnings[-1].endswith("; building without it")
        assert len(server.requests) <= 9


@pytest.mark.parametrize("code", [401, 403, 405, 507])
def test_a_store_that_takes_nothing_is_still_read(
    server: Server, remote: Remote, source: Path, target: Path, code: int
) -> None:
    server.script["PUT"] = [fault.status(code)]
    for _ in range(5):
        assert not remote.send("cas", KEY, source)
    assert server.methods().count("PUT") == 1
    [warning] = remote.warnings
    assert f"({code})" in warning
    assert warning.endswith("; nothing more is sent to it")
    server.entries[OBJECT] = DATA
    assert remote.fetch("cas", KEY, target, limit=ROOM)


def test_a_file_that_is_too_large_keeps_no_other_from_going(
    server: Server, remote: Remote, source: Path
) -> None:
    server.script["PUT"] = [fault.status(413), fault.KEEP["PUT"]]
    assert not remote.send("cas", KEY, source)
    assert remote.send("cas", KEY, source)


def test_missing_collection_is_created_once(server: Server, remote: Remote, source: Path) -> None:
    server.script["PUT"] = [fault.status(409), fault.KEEP["PUT"]]
    assert remote.send("cas", KEY, source)
    assert server.methods() == ["HEAD", "PUT", "MKCOL", "PUT"]
    assert server.requests[2][1] == "/store/cas/"


def test_a_server_that_takes_no_bytes_costs_little(source: Path, target: Path) -> None:
    source.write_bytes(bytes(64 << 20))
    key = sha256_bytes(bytes(64 << 20))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = remote_at(f"http://127.0.0.1:{listener.getsockname()[1]}")
        begun = time.monotonic()
        for _ in range(20):
            assert not remote.send("ac", key, source)
        assert time.monotonic() - begun < 60
    assert remote.warnings[-1].endswith("is too slow; building without it")


def test_unreachable_server_is_reported_once(target: Path, source: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    remote = remote_at(f"http://127.0.0.1:{port}/store")
    begun = time.monotonic()
    for _ in range(100):
        assert not remote.fetch("cas", KEY, target, limit=ROOM)
        assert not remote.has("ac", KEY)
        assert not remote.send("cas", KEY, source)
    assert time.monotonic() - begun < 2
    assert remote.warnings == (
        f"the remote store http://127.0.0.1:{port}/store cannot be reached; building without it",
    )


@pytest.mark.parametrize("host", ["a" * 70, "..", "a..b", "%zz"])
def test_invalid_host_is_reported(host: str) -> None:
    remote = remote_at(f"http://{host}")
    assert not remote.has("cas", KEY)
    assert remote.warnings == (
        f"the remote store http://{host} has an address that cannot be used; building without it",
    )


def test_unknown_host_is_reported() -> None:
    remote = remote_at("http://store.invalid")
    assert not remote.has("cas", KEY)
    assert remote.warnings == (
        "the remote store http://store.invalid cannot be reached; building without it",
    )


def test_the_token_goes_to_its_server_and_to_no_other(server: Server, target: Path) -> None:
    with serving() as other:
        server.script["GET"] = [fault.status(307, Location=f"{other.url}/cas/{KEY}")]
        remote = remote_at(server.url, authorization="Bearer secret")
        assert not remote.fetch("cas", KEY, target, limit=ROOM)
        assert other.requests == []
    assert server.requests[0][2]["Authorization"] == "Bearer secret"
    assert "secret" not in "".join(remote.warnings)


def test_answers_are_asked_for_as_they_are(server: Server, remote: Remote) -> None:
    remote.has("cas", KEY)
    assert server.requests[0][2]["Accept-Encoding"] == "identity"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30), damage=st.integers(0, 3))
def test_no_answer_falsifies_anything(
    server: Server, tmp_path: Path, seed: int, damage: int
) -> None:
    """Answers cut, flipped, repeated and mixed at random places, head and body."""
    generator = random.Random(seed)
    data = generator.randbytes(generator.randrange(1, 3000))
    head = generator.choice(
        [
            f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode(),
            f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(data):x}\r\n".encode(),
            b"HTTP/1.0 200 OK\r\n\r\n",
        ]
    )
    answer = bytearray(head + data + b"\r\n0\r\n\r\n" * (b"chunked" in head))
    for _ in range(damage):
        at = generator.randrange(len(answer))
        match generator.randrange(4):
            case 0:
                answer[at] ^= 1 << generator.randrange(8)
            case 1:
                del answer[at : at + generator.randrange(1, 50)]
            case 2:
                answer[at:at] = generator.randbytes(20)
            case _:
                answer[at:at] = answer[:at]
        answer = answer or bytearray(b"\0")
    server.script["GET"] = [fault.raw(bytes(answer))]
    target, key = tmp_path / "target", sha256_bytes(data)
    remote = remote_at(server.url)
    done = remote.fetch("cas", key, target, limit=1 << 20)
    assert done == target.exists()
    if done:
        assert target.read_bytes() == data
    else:
        assert damage, remote.warnings
