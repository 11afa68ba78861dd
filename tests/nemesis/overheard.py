"""What the push consumers of a group are answered, and where they go on: overheard in the SDK, which keeps it to itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

from highwater import HighwaterError
from highwater._client import ClientInstance
from highwater._models import MessageQueue
from highwater._offset_store import OffsetStore
from mqwire.bodies import ReplicaStatus
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.nemesis.judge import Committed, History, OffsetAnswer, SentBack, WentBack


def led_epoch(status: ReplicaStatus) -> int | None:
    """The epoch in which the replica leads with as many others as it needs; None when it does not."""
    return status.epoch if status.role == "master" and status.accepts_sends else None


def note_pull(history: History, request: RemotingCommand, reply: RemotingCommand, asked_s: float, replica: int) -> None:
    """Whatever its code, an answer with a lower offset than was asked for sends the group back."""
    fields = request.ext_fields
    asked, answered = int(fields["queueOffset"]), int(reply.ext_fields["nextBeginOffset"])
    if answered < asked:
        history.sent_back.append(
            SentBack(fields["consumerGroup"], int(fields["queueId"]), asked, answered, asked_s, replica, reply.code)
        )


def note_commit(history: History, request: RemotingCommand, reply: RemotingCommand) -> None:
    """One that was answered with a remark was not taken, or is on the master alone."""
    fields = request.ext_fields
    if reply.code == ResponseCode.SUCCESS and not reply.remark:
        history.committed.append(
            Committed(fields["consumerGroup"], int(fields["queueId"]), int(fields["commitOffset"]), time.monotonic())
        )


@contextlib.contextmanager
def overheard(history: History, group: str, topic: str, number_of: Callable[[str], int]) -> Iterator[None]:
    """For the length of the block, `history` gets what members of the group in this process are answered about the topic.

    `number_of`: which replica has an address.
    """
    invoke, replace = ClientInstance.invoke, OffsetStore.replace

    async def overheard_invoke(
        client: ClientInstance,
        address: str,
        request: RemotingCommand,
        timeout_ms: float | None = None,
        *,
        accept: Sequence[int] = (),
    ) -> RemotingCommand:
        fields = request.ext_fields
        if (fields.get("consumerGroup"), fields.get("topic")) != (group, topic):
            return await invoke(client, address, request, timeout_ms, accept=accept)
        asks = request.code == RequestCode.QUERY_CONSUMER_OFFSET and is_master(client, address, fields.get("bname", ""))
        led = await epoch_at(client, address) if asks else None
        asked_s = time.monotonic()
        reply = await invoke(client, address, request, timeout_ms, accept=accept)
        if asks:
            answered_s = time.monotonic()
            held = led is not None and led == await epoch_at(client, address)
            offset = int(reply.ext_fields["offset"]) if reply.code == ResponseCode.SUCCESS else None
            history.offset_answers.append(
                OffsetAnswer(group, int(fields["queueId"]), offset, asked_s, answered_s, number_of(address), held)
            )
        elif request.code == RequestCode.PULL_MESSAGE:
            note_pull(history, request, reply, asked_s, number_of(address))
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            note_commit(history, request, reply)
        return reply

    def is_master(client: ClientInstance, address: str, broker_name: str) -> bool:
        """Whether the consumer takes it for that; else it has found none, and may be answered what another replica has."""
        route = client.routes.cached(topic)
        return route is not None and route.master_address(broker_name) == address

    async def epoch_at(client: ClientInstance, address: str) -> int | None:
        with contextlib.suppress(HighwaterError):
            reply = await invoke(client, address, client.request(HighwaterRequestCode.REPLICA_STATUS))
            return led_epoch(ReplicaStatus.from_json(bytes(reply.body)))
        return None

    def overheard_replace(offsets: OffsetStore, queue: MessageQueue, offset: int) -> None:
        finished = offsets.get(queue)
        if offsets._group == group and queue.topic == topic and finished is not None and offset < finished:
            history.went_back.append(WentBack(group, queue.queue_id, finished, offset, time.monotonic()))
        replace(offsets, queue, offset)

    with (
        patch.object(ClientInstance, "invoke", overheard_invoke),
        patch.object(OffsetStore, "replace", overheard_replace),
    ):
        yield
