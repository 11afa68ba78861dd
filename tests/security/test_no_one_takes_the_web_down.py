"""One caller's many requests, and bodies that come slowly, leave the web's threads to others: with the platform's own server."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_ports()
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--host", HOST, "--port", str(port)]
    command += ["--workers", "1", "--blocking-threads", str(THREADS), "--no-ws", "tests.security.web_twin:application"]
    variables = {**os.environ, "HIGHWATER_WEB_THREADS": str(THREADS), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=variables) as process:
        try:
            until_s = time.monotonic() + 60
            while not answers(port):
                assert process.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        return ask(port, "/api/read/")[0] == 200
    except OSError:
        return False


def ask(
    port: int, path: str, token: str = "good", body: bytes | None = None, address: str = HOST
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30, source_address=(address, 0))
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers


def slow(port: int, sent: bytes = b"", length: int = 50) -> socket.socket:
    stream = socket.create_connection((HOST, port), timeout=30)
    stream.sendall(f"POST /api/read/ HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {length}\r\n\r\n".encode() + sent)
    return stream


def test_of_600_requests_at_once_another_callers_waits_for_few(port: int) -> None:
    statuses: Counter[int] = Counter()

    def flood() -> None:
        status, _, headers = ask(port, "/api/work/", "many")
        statuses[status] += 1
        assert status == 200 or headers["Retry-After"] == "1"

    callers = [threading.Thread(target=flood) for _ in range(600)]
    for caller in callers:
        caller.start()
    began_s = time.monotonic()
    assert ask(port, "/api/work/")[0] == 200
    waited_s = time.monotonic() - began_s
    for caller in callers:
        caller.join()
    assert statuses.keys() == {200, 429}
    assert statuses[200] >= 60
    assert waited_s < 3  # all of them one after the other, on four threads, take 7.5 s


def test_bodies_that_come_slowly_leave_threads_to_others(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(64):
            stack.enter_context(slow(port, b"a" * (number % 2)))
        began_s = time.monotonic()
        assert ask(port, "/api/work/")[0] == 200
        assert time.monotonic() - began_s < 5
        began_s = time.monotonic()
        assert ask(port, "/api/work/")[0] == 200
        assert ask(port, "/api/read/", body=b"whole", address="127.0.0.2")[:2] == (200, b"5")
        assert time.monotonic() - began_s < 1
        refused = stack.enter_context(slow(port))
        assert refused.recv(12) == b"HTTP/1.1 429"
    until_s = time.monotonic() + 10
    while ask(port, "/api/read/", body=b"whole")[0] != 200:  # those that have hung up are waited for no more
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_body_that_comes_in_pieces_is_read(port: int) -> None:
    with slow(port, b"a" * 20) as stream:
        time.sleep(1)
        stream.sendall(b"b" * 30)
        assert stream.recv(12) == b"HTTP/1.1 200"
    assert ask(port, "/api/read/", body=bytes(100_000))[1] == b"100000"
