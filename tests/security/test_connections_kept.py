"""A client of the console that keeps its connection loses no request, though its bodies come late and are not read."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from controlplane.common.unread_bodies import READ_BYTES_MAX
from tests.support.platform_stack import PlatformStack

REFUSED = "/api/v1/tenants/"  # without a token: refused before anyone looks at the body
BODY_LATE_S = 0.05


def answers(platform: PlatformStack, length: str, body: bytes, requests: int) -> list[bytes]:
    """The heads of the answers to so many requests on one connection, whose bodies come after their heads."""
    address = urlsplit(platform.console_url)
    assert address.hostname
    heads = []
    with socket.create_connection((address.hostname, address.port or 80), timeout=30) as connection:
        stream = connection.makefile("rb")
        for _ in range(requests):
            connection.sendall(f"POST {REFUSED} HTTP/1.1\r\nHost: {address.netloc}\r\n{length}\r\n\r\n".encode())
            time.sleep(BODY_LATE_S)
            connection.sendall(body)
            head = b""
            while (line := stream.readline()) != b"\r\n":
                assert line, "the connection ended without an answer"
                head += line.lower()
            heads.append(head)
            if b"connection: close" not in head:
                stream.read(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    return heads


def test_a_body_that_comes_late_and_is_not_read_ends_no_connection(platform_stack: PlatformStack) -> None:
    first, second = answers(platform_stack, "Content-Length: 2", b"{}", requests=2)
    assert first.startswith(b"http/1.1 401")
    assert second.startswith(b"http/1.1 401")


def test_an_answer_to_a_large_body_that_is_not_read_says_that_the_connection_ends(
    platform_stack: PlatformStack,
) -> None:
    [head] = answers(platform_stack, f"Content-Length: {READ_BYTES_MAX + 1}", b"", requests=1)
    assert b"connection: close" in head


def test_an_answer_to_a_body_without_a_length_says_that_the_connection_ends(platform_stack: PlatformStack) -> None:
    [head] = answers(platform_stack, "Transfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n", requests=1)
    assert b"connection: close" in head
