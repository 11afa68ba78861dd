"""The messages of elections (brokerd/replica/quorum_messages.py) as remoting commands, and back."""

from __future__ import annotations

from typing import assert_never

from brokerd.replica.quorum_messages import (
    Answer,
    BeginEpoch,
    Campaign,
    EndEpoch,
    Noted,
    Request,
    VoteAnswer,
    VoteRequest,
)
from mqwire.codes import HighwaterRequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import (
    ReplicaBeginEpochRequestHeader,
    ReplicaCampaignRequestHeader,
    ReplicaEndEpochRequestHeader,
    ReplicaNotedResponseHeader,
    ReplicaVoteRequestHeader,
    ReplicaVoteResponseHeader,
)


def command_of(message: Request) -> RemotingCommand:
    """A request as it travels."""
    match message:
        case VoteRequest():
            header = ReplicaVoteRequestHeader(
                group=message.group,
                candidate=message.candidate,
                epoch=message.epoch,
                last_epoch=message.last_epoch,
                end_offset=message.end_offset,
                pre=message.pre,
            )
            return RemotingCommand.request(HighwaterRequestCode.REPLICA_VOTE, header)
        case BeginEpoch():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_BEGIN_EPOCH,
                ReplicaBeginEpochRequestHeader(
                    group=message.group, leader=message.leader, epoch=message.epoch, address=message.address
                ),
            )
        case EndEpoch():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_END_EPOCH,
                ReplicaEndEpochRequestHeader(
                    group=message.group,
                    leader=message.leader,
                    epoch=message.epoch,
                    successors=";".join(map(str, message.successors)),
                ),
            )
        case Campaign():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_CAMPAIGN,
                ReplicaCampaignRequestHeader(group=message.group, leader=message.leader, epoch=message.epoch),
            )
        case _:
            assert_never(message)


def message_in(request: RemotingCommand) -> Request:
    """The request that arrived; raises RemoteProtocolError."""
    if request.code == HighwaterRequestCode.REPLICA_VOTE:
        vote = request.header(ReplicaVoteRequestHeader)
        return VoteRequest(
            group=vote.group,
            candidate=vote.candidate,
            epoch=vote.epoch,
            last_epoch=vote.last_epoch,
            end_offset=vote.end_offset,
            pre=vote.pre,
        )
    if request.code == HighwaterRequestCode.REPLICA_BEGIN_EPOCH:
        begin = request.header(ReplicaBeginEpochRequestHeader)
        return BeginEpoch(group=begin.group, leader=begin.leader, epoch=begin.epoch, address=begin.address)
    if request.code == HighwaterRequestCode.REPLICA_END_EPOCH:
        end = request.header(ReplicaEndEpochRequestHeader)
        return EndEpoch(group=end.group, leader=end.leader, epoch=end.epoch, successors=_ids_in(end.successors))
    campaign = request.header(ReplicaCampaignRequestHeader)
    return Campaign(group=campaign.group, leader=campaign.leader, epoch=campaign.epoch)


def _ids_in(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(";") if part.isascii() and part.isdigit())


def reply_to(request: RemotingCommand, answer: Answer) -> RemotingCommand:
    """An answer as it travels."""
    if isinstance(answer, Noted):
        return request.reply(header=ReplicaNotedResponseHeader(replica=answer.replica, epoch=answer.epoch))
    return request.reply(
        header=ReplicaVoteResponseHeader(
            voter=answer.voter,
            granted=answer.granted,
            epoch=answer.epoch,
            reason=answer.reason,
            incarnation=answer.incarnation,
            log_may_be_incomplete=answer.log_may_be_incomplete,
            trusts_own_end=answer.trusts_own_end,
            joined=answer.joined,
            known=";".join(map(str, answer.known)),
            leader=answer.leader,
            leader_address=answer.leader_address,
        )
    )


def answer_in(reply: RemotingCommand, request: Request) -> Answer:
    """What was answered to `request`; raises RemoteProtocolError."""
    if not isinstance(request, VoteRequest):
        noted = reply.header(ReplicaNotedResponseHeader)
        return Noted(replica=noted.replica, epoch=noted.epoch)
    header = reply.header(ReplicaVoteResponseHeader)
    return VoteAnswer(
        voter=header.voter,
        asked_epoch=request.epoch,
        pre=request.pre,
        granted=header.granted,
        epoch=header.epoch,
        incarnation=header.incarnation,
        log_may_be_incomplete=header.log_may_be_incomplete,
        trusts_own_end=header.trusts_own_end,
        joined=header.joined,
        known=_ids_in(header.known),
        leader=header.leader,
        leader_address=header.leader_address,
        reason=header.reason,
    )
