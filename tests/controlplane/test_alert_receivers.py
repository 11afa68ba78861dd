"""Receivers that mean harm: whatever they answer, a message ends, and no other waits for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts import deliveries, outgoing
from controlplane.alerts.channels import channel_create
from controlplane.alerts.deliveries import PAUSES_S, deliveries_resume, delivery_try, tenant_deliver
from controlplane.alerts.messages import trial_payload
from controlplane.alerts.models import AlertDelivery
from controlplane.common.turns import turn
from tests.controlplane.world import SYSTEM, World

Answering = Callable[[bytes], str]


@pytest.fixture
def answering(settings: Any) -> Iterator[Answering]:
    """Start a server that answers every connection with these bytes; returns its address."""
    settings.HIGHWATER_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, answer: bytes) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:  # the test is over
                return
            with closing(accepted):
                accepted.recv(65536)
                accepted.sendall(answer)

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=serve, args=(listener, answer)))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/hook"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(10)


def message(world: World, address: str, kind: str = "webhook", name: str = "pager") -> AlertDelivery:
    channel, _ = channel_create(actor=SYSTEM, tenant=world.acme, kind=kind, name=name, address=address)
    payload = trial_payload("acme", "Acme", "https://highwater.example")
    return AlertDelivery.objects.create(channel=channel, payload=payload, not_before=timezone.now())


def answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("webhook", answer(b"\0\0 no", 500)),
        ("webhook", b"HTTP/\0\0 nonsense\r\n\r\n"),
        ("dingtalk", answer(b'{"errcode": 1, "errmsg": "\\u0000"}')),
        ("dingtalk", answer(b'{"errcode": 1, "errmsg": "\\ud800"}')),
        ("dingtalk", answer(b"[" * 4000)),
        ("dingtalk", answer(b'{"errcode": %s}' % (b"9" * 4000))),
    ],
    ids=["NUL", "status line", "NUL in JSON", "half a character", "deep JSON", "long number"],
)
def test_an_answer_that_can_not_be_stored_is_a_try_that_failed(
    world: World, answering: Answering, kind: str, raw: bytes
) -> None:
    row = message(world, answering(raw), kind)
    assert delivery_try(row.pk) == "queued"
    row.refresh_from_db()
    assert row.attempts == 1
    assert row.error
    assert row.not_before > timezone.now() + timedelta(seconds=PAUSES_S[0] - 10)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_but_a_try_that_failed(world: World, answering: Answering, status: int) -> None:
    inner = socket.create_server(("127.0.0.1", 0))
    inner.settimeout(0.3)
    with closing(inner):
        place = f"http://127.0.0.1:{inner.getsockname()[1]}/latest/meta-data/"
        raw = f"HTTP/1.1 {status} X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        sent = message(world, answering(raw.encode()))
        delivery_try(sent.pk)
        with pytest.raises(TimeoutError):
            inner.accept()
    sent.refresh_from_db()
    assert sent.delivered_at is None
    assert (sent.attempts, sent.http_status) == (1, status)


def test_a_message_that_can_not_be_sent_is_given_up_like_others(world: World, settings: Any) -> None:
    row = message(world, "https://example.com/hook")
    settings.HIGHWATER_WEBHOOK_NETWORKS = ["nonsense"]
    now = timezone.now()
    states = []
    for _ in range(len(PAUSES_S) + 1):
        states.append(delivery_try(row.pk, now))
        now += timedelta(hours=2)
    assert states == ["queued"] * len(PAUSES_S) + ["failed"]


def test_a_message_whose_worker_dies_with_each_try_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    row = message(world, "https://example.com/hook")

    def die(*_: object) -> tuple[int | None, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(deliveries, "_send", die)
    now = timezone.now()
    for _ in range(len(PAUSES_S) + 1):
        with pytest.raises(KeyboardInterrupt):
            delivery_try(row.pk, now)
        now += timedelta(hours=2)
    assert delivery_try(row.pk, now) == "failed"


def test_a_receiver_that_drips_is_cut_off(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "TRY_S", 0.5)
    settings.HIGHWATER_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    was_cut_off = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def drip() -> None:
            accepted, _ = listener.accept()
            with closing(accepted):
                accepted.recv(65536)
                accepted.sendall(b"HTTP/1.1 200 X\r\nX: ")
                for _ in range(100):
                    try:
                        accepted.sendall(b"x")
                    except OSError:
                        was_cut_off.set()
                        return
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        row = message(world, f"http://127.0.0.1:{listener.getsockname()[1]}/")
        assert delivery_try(row.pk) == "queued"
        thread.join(20)
    assert was_cut_off.is_set()


def test_one_tenant_has_one_worker_however_many_receivers_it_has(world: World, answering: Answering) -> None:
    message(world, answering(answer(b"")), name="a")
    other = message(world, answering(answer(b"")), name="b")
    with turn("alerts", world.acme.pk, world.acme.pk) as mine:
        assert mine
        assert tenant_deliver(world.acme.pk) == 0
    assert tenant_deliver(world.acme.pk) == 2
    other.refresh_from_db()
    assert other.state == "delivered"


def test_a_receiver_that_fails_does_not_keep_the_others_waiting(world: World, answering: Answering) -> None:
    dead = message(world, answering(answer(b"", 500)), name="dead")
    for _ in range(5):
        AlertDelivery.objects.create(channel=dead.channel, payload=dead.payload, not_before=dead.not_before)
    well = message(world, answering(answer(b"")), name="well")
    assert tenant_deliver(world.acme.pk) == 2
    well.refresh_from_db()
    assert well.state == "delivered"


def test_a_tenant_with_many_late_messages_delays_no_other(world: World) -> None:
    row = message(world, "https://example.com/hook")
    early = timezone.now() - timedelta(hours=1)
    AlertDelivery.objects.bulk_create(
        AlertDelivery(channel=row.channel, payload=row.payload, not_before=early) for _ in range(300)
    )
    channel, _ = channel_create(
        actor=SYSTEM, tenant=world.globex, kind="webhook", name="pager", address="https://example.com/"
    )
    AlertDelivery.objects.create(channel=channel, payload=row.payload, not_before=timezone.now())
    assert deliveries_resume() == 2
