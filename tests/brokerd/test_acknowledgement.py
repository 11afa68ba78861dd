"""Answers wait until what they promise is true."""

import pytest

from brokerd.send_latency import SendLatency
from brokerd.services.acknowledgement import PendingAcknowledgements
from mqwire.codes import ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection


class RecordingPeer:
    """What of a Peer the acknowledgements use; the socket is not the point here."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.closed = False
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    @property
    def replies(self) -> list[RemotingCommand]:
        connection = Connection()
        connection.receive_data(self.written)
        return connection.commands()


def answer(opaque: int, serialize_type: int = SerializeType.JSON) -> bytes:
    request = RemotingCommand(310, opaque=opaque, serialize_type=serialize_type)
    return request.reply(ext_fields={"msgId": "A", "queueId": "1"}).encode()


def test_nothing_is_answered_below_the_held_offset() -> None:
    peer = RecordingPeer(1)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=5)
    pending.add(peer, 100, [answer(1)], now_s=0)  # type: ignore[arg-type] # a peer that records
    assert pending.release(99, now_s=1) == []
    assert peer.written == b""


def test_one_flush_releases_every_answer_that_it_covers() -> None:
    first, second = RecordingPeer(1), RecordingPeer(2)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=5)
    for peer, end in ((first, 100), (second, 200), (first, 300), (second, 400)):
        pending.add(peer, end, [answer(end)], now_s=0)  # type: ignore[arg-type] # as above
    assert {peer.id for peer in pending.release(300, now_s=1)} == {1, 2}
    assert [reply.opaque for reply in first.replies] == [100, 300]
    assert [reply.opaque for reply in second.replies] == [200]
    assert len(pending) == 1


def test_answers_of_closed_connections_are_dropped() -> None:
    peer = RecordingPeer(1)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=5)
    pending.add(peer, 100, [answer(1)], now_s=0)  # type: ignore[arg-type] # as above
    peer.closed = True
    assert pending.release(100, now_s=1) == []
    assert len(pending) == 0


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_what_waits_too_long_is_answered_as_appended_but_not_proven(serialize_type: int) -> None:
    peer = RecordingPeer(1)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=5)
    pending.add(peer, 100, [answer(1, serialize_type), answer(2, serialize_type)], now_s=10)  # type: ignore[arg-type] # as above
    assert pending.expire(14.9, 0) == []
    pending.expire(15.0, 0)
    assert [(reply.code, reply.opaque) for reply in peer.replies] == [
        (ResponseCode.FLUSH_DISK_TIMEOUT, 1),
        (ResponseCode.FLUSH_DISK_TIMEOUT, 2),
    ]
    assert [reply.ext_fields["queueId"] for reply in peer.replies] == ["1", "1"]


def test_after_a_failed_flush_nothing_is_called_stored() -> None:
    peer = RecordingPeer(1)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=5)
    pending.add(peer, 100, [answer(1)], now_s=0)  # type: ignore[arg-type] # as above
    pending.give_up("fdatasync: Input/output error")
    (reply,) = peer.replies
    assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert "Input/output error" in (reply.remark or "")


def test_what_only_the_slaves_lack_is_distinguished_from_what_the_disk_lacks() -> None:
    peer = RecordingPeer(1)
    pending = PendingAcknowledgements(SendLatency(), timeout_s=3)
    pending.add(peer, 100, [answer(1)], now_s=0)  # type: ignore[arg-type] # as above
    pending.add(peer, 200, [answer(2)], now_s=0)  # type: ignore[arg-type] # as above
    pending.expire(3, 150)
    assert [reply.code for reply in peer.replies] == [ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT]


def test_what_a_majority_did_not_confirm_is_an_error_and_no_send_status() -> None:
    pending = PendingAcknowledgements(SendLatency(), timeout_s=3, unproven=ResponseCode.SYSTEM_ERROR)
    peer = RecordingPeer(1)
    for number in (1, 2):
        pending.add(peer, number * 100, [answer(number)], now_s=0)  # type: ignore[arg-type] # a peer that records
    pending.expire(3, 150)  # held here or not: what a majority holds is what counts
    pending.add(peer, 300, [answer(3)], now_s=4)  # type: ignore[arg-type] # a peer that records
    pending.give_up("it stopped leading", ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert [(reply.opaque, reply.code) for reply in peer.replies] == [(n, ResponseCode.SYSTEM_ERROR) for n in (1, 2, 3)]


def test_an_answer_that_names_more_messages_than_a_mebibyte_holds_ends_like_any_other() -> None:
    pending = PendingAcknowledgements(SendLatency(), timeout_s=3)
    peer, other = RecordingPeer(1), RecordingPeer(2)
    ids = ",".join(["A" * 32] * 34_000)  # a batch of four megabytes
    long = RemotingCommand(320, opaque=1).reply(ext_fields={"msgId": ids}).encode()
    pending.add(peer, 100, [long], now_s=0)  # type: ignore[arg-type] # a peer that records
    pending.add(other, 200, [answer(2)], now_s=0)  # type: ignore[arg-type] # as above
    pending.expire(3, 0)
    assert str(ResponseCode.FLUSH_DISK_TIMEOUT.value).encode() in peer.written[:200]
    assert ids.encode() in peer.written
    assert [reply.code for reply in other.replies] == [ResponseCode.FLUSH_DISK_TIMEOUT]
