"""What each kind of channel is sent, and where nothing may be sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import uuid
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import translation

from controlplane.alerts import messages, outgoing
from controlplane.alerts.models import Alert, ChannelKind
from controlplane.clusters.models import Cluster

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
BASE = "https://highwater.example"


def alert(kind: str = "disk_used", **changes: Any) -> Alert:
    values = {"subject": "", "value": 95, "threshold": 85, "since": NOW, **changes}
    return Alert(id=uuid.UUID(int=7), cluster=Cluster(slug="orders"), kind=kind, **values)


def payload(fired: int = 1, resolved: int = 0) -> dict[str, Any]:
    return messages.payload_of("acme", "Acme", [alert()] * fired, [alert(resolved_at=NOW)] * resolved, BASE)


def request(kind: str, secret: str = "", reported: dict[str, Any] | None = None) -> messages.Request:
    return messages.request_of(kind, "https://chat.example/x?access_token=t", secret, reported or payload(), "d1", NOW)


def test_a_webhook_gets_the_alerts_signed() -> None:
    sent = request(ChannelKind.WEBHOOK, "s3cret")
    body = json.loads(sent.body)
    assert (body["id"], body["event"], body["tenant"]) == ("d1", "alerts", "acme")
    assert body["fired"][0]["sentence"] == "The fullest disk of the cluster is 95 % full."
    assert body["fired"][0]["url"] == f"{BASE}/t/acme/alerts/{uuid.UUID(int=7)}/"
    timestamp = sent.headers["Highwater-Timestamp"]
    expected = hmac.new(b"s3cret", timestamp.encode() + b"." + sent.body, hashlib.sha256).hexdigest()
    assert sent.headers["Highwater-Signature"] == f"v1={expected}"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (ChannelKind.SLACK, ("text",)),
        (ChannelKind.DINGTALK, ("text", "content")),
        (ChannelKind.FEISHU, ("content", "text")),
        (ChannelKind.WECOM, ("text", "content")),
    ],
)
def test_a_chat_gets_text_in_its_own_shape(kind: str, path: tuple[str, ...]) -> None:
    body: Any = json.loads(request(kind).body)
    for name in path:
        body = body[name]
    assert "CRITICAL in orders: The fullest disk of the cluster is 95 % full." in body


def test_chats_and_webhooks_get_english_whoever_asked_for_the_message() -> None:
    with translation.override("zh-hans"):
        for kind in ChannelKind:
            assert request(kind).body.decode().replace("…", "").isascii()


def test_dingtalk_is_signed_in_the_address() -> None:
    query = parse_qs(urlsplit(request(ChannelKind.DINGTALK, "SEC1").url).query)
    milliseconds = query["timestamp"][0]
    expected = hmac.new(b"SEC1", f"{milliseconds}\nSEC1".encode(), hashlib.sha256).digest()
    assert query["access_token"] == ["t"]
    assert base64.b64decode(query["sign"][0]) == expected


def test_feishu_is_signed_in_the_body() -> None:
    body = json.loads(request(ChannelKind.FEISHU, "SEC1").body)
    expected = hmac.new(f"{body['timestamp']}\nSEC1".encode(), b"", hashlib.sha256).digest()
    assert base64.b64decode(body["sign"]) == expected


def test_what_people_name_is_no_markup_in_slack() -> None:
    reported = messages.payload_of("acme", "<!channel>", [alert()], [], BASE)
    assert "&lt;!channel&gt;" in json.loads(request(ChannelKind.SLACK, reported=reported).body)["text"]


def test_a_storm_is_one_message_that_fits_every_chat() -> None:
    reported = payload(fired=500, resolved=30)
    assert len(reported["fired"]) == messages.ALERTS_MAX
    assert reported["not_named"] == 480 + 10
    content = json.loads(request(ChannelKind.WECOM, reported=reported).body)["text"]["content"]
    assert len(content.encode()) <= 2048


@pytest.mark.parametrize(
    ("fired", "resolved", "title"),
    [
        (1, 0, "[Highwater] Acme: The disk is filling up in orders"),
        (0, 1, "[Highwater] Acme: ended: The disk is filling up in orders"),
        (2, 1, "[Highwater] Acme: 2 firing, 1 ended"),
    ],
)
def test_the_title_says_what_happened(fired: int, resolved: int, title: str) -> None:
    assert messages.title(payload(fired, resolved)) == title


@pytest.mark.parametrize(
    ("kind", "status", "body", "problem"),
    [
        ("webhook", 204, b"", ""),
        ("webhook", 500, b"oops", "It answered HTTP 500: oops"),
        ("webhook", 302, b"", "It answered HTTP 302"),
        ("slack", 200, b"ok", ""),
        ("dingtalk", 200, b'{"errcode":0,"errmsg":"ok"}', ""),
        ("dingtalk", 200, b'{"errcode":310000,"errmsg":"sign not match"}', "It refused: 310000 sign not match"),
        ("feishu", 200, b'{"StatusCode":0}', ""),
        ("feishu", 200, b'{"code":19021,"msg":"sign match fail"}', "It refused: 19021 sign match fail"),
        ("wecom", 200, b"<html>", "It answered something that is not JSON."),
    ],
)
def test_a_refusal_is_found_in_the_answer(kind: str, status: int, body: bytes, problem: str) -> None:
    assert messages.answer_problem(kind, status, body) == problem


# -- where nothing may be sent


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::80ff:fffe",
        "192.0.0.192",
        "192.88.99.1",
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::7f00:1",
        "fec0::1",
        "3fff::1",
    ],
)
def test_an_address_of_no_public_host_is_refused(address: str) -> None:
    assert not outgoing.may_connect(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_an_address_of_a_public_host_is_taken(address: str) -> None:
    assert outgoing.may_connect(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "https://",
        "https:///path",
        "https://user:password@example.com/",
        "https://example.com:22/",
        "https://example.com:99999/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: inside",
        "https://exämple.com/",
        "https://example.com/\x7f",
        "https://example.com/" + "x" * 2000,
        "",
    ],
)
def test_why_a_url_may_not_be_used_is_reported(url: str) -> None:
    assert outgoing.url_problem(url)


def test_a_name_that_stands_for_an_inner_address_is_refused_when_it_is_used() -> None:
    inner = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.5", 443))]
    with (
        patch("socket.getaddrinfo", return_value=inner),
        patch("socket.create_connection") as connect,
        pytest.raises(outgoing.OutgoingError, match="not on the public internet"),
    ):
        outgoing.post("https://rebinding.example/", {}, b"{}")
    connect.assert_not_called()


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("10.0.0.5", "93.184.216.34")]
    with (
        patch("socket.getaddrinfo", return_value=both) as asked,
        patch("socket.create_connection", side_effect=OSError("closed")) as connect,
        pytest.raises(outgoing.OutgoingError, match="does not answer"),
    ):
        outgoing.post("https://example.com/", {}, b"{}")
    assert asked.call_count == 1
    assert [call.args[0] for call in connect.call_args_list] == [("93.184.216.34", 443)]


@pytest.mark.parametrize("url", ["http://example.com/", "https://example.com:25/"])
def test_a_network_of_the_operators_opens_no_plain_way_to_the_internet(url: str) -> None:
    public = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]
    with (
        patch("socket.getaddrinfo", return_value=public),
        patch("socket.create_connection") as connect,
        pytest.raises(outgoing.OutgoingError),
    ):
        outgoing.post(url, {}, b"{}", [ipaddress.ip_network("10.0.0.0/8")])
    connect.assert_not_called()
