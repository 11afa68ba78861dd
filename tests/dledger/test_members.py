"""Who counts and who leads, changed by an operator: the command line against real brokers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from highwater import Producer
from highwater._cli_admin import app
from mqwire.acl import SessionCredentials
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaVoteRequestHeader
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import steady_ports, wait_until
from tests.remoting import Refused, call, create_topic
from tests.replication.replicas import read_all, registered, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["admin", *arguments])
    return result.exit_code, result.output


def as_json(*arguments: str) -> object:
    code, output = run(*arguments, "--json")
    assert code == 0, output
    return json.loads(output)


def done(*arguments: str) -> None:
    """Runs a command again until it succeeds: with a busy machine a leader may change meanwhile, and says so."""
    wait_until(lambda: run(*arguments)[0] == 0, timeout_s=WAIT_S, what=f"{arguments[0]} succeeds", interval_s=0.2)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaGroup]:
    with quorum_group(tmp_path_factory.mktemp("members")) as running:
        create_topic(running[wait_leader(running)].address, TOPIC, queues=1, namesrv=running.namesrv)
        with Producer(running.namesrv, "members") as producer:
            send_until_ok(producer, TOPIC, b"first")
        wait_all_level(running)
        yield running


def common(group: ReplicaGroup) -> tuple[str, ...]:
    return ("-n", group.namesrv, "-b", group.name)


def test_ha_status_shows_terms_votes_and_who_leads(group: ReplicaGroup) -> None:
    leader = wait_leader(group)
    rows = as_json("haStatus", *common(group))
    assert isinstance(rows, list)
    assert [(row["id"], row["voter"], row["behind_bytes"]) for row in sorted(rows, key=lambda row: row["id"])] == [
        (number, True, 0) for number in range(3)
    ]
    assert {row["state"] for row in rows} == {"leader", "follower"}
    assert {row["epoch"] for row in rows} == {status(group[leader]).epoch}
    code, text = run("haStatus", *common(group))
    assert code == 0
    assert f"replica {leader} leads in epoch" in text


def test_the_leadership_moves_where_it_is_asked_to(group: ReplicaGroup) -> None:
    target = (wait_leader(group) + 1) % 3
    epoch = status(group[wait_leader(group)]).epoch
    reported = as_json("transferLeadership", *common(group), "--broker-id", str(target))
    assert isinstance(reported, dict)
    assert (reported["broker_id"], reported["epoch"] > epoch) == (target, True)
    wait_all_level(group)


def test_the_leadership_does_not_move_to_whom_it_cannot(group: ReplicaGroup) -> None:
    leader = wait_leader(group)
    for target, said in ((leader, "leads already"), (9, "is not a voter")):
        code, text = run("transferLeadership", *common(group), "--broker-id", str(target))
        assert code != 0
        assert said in text


def test_the_preferred_leader_leads_before_long(group: ReplicaGroup) -> None:
    preferred = (wait_leader(group) + 1) % 3
    done("preferLeader", *common(group), "--broker-id", str(preferred))
    wait_until(lambda: wait_leader(group) == preferred, timeout_s=WAIT_S, what="the preferred replica leads")
    wait_all_level(group)
    done("preferLeader", *common(group))


def test_a_group_grows_by_an_observer_that_becomes_a_voter_and_shrinks_again(
    group: ReplicaGroup, tmp_path: Path
) -> None:
    base = steady_ports(2)
    conf = dict(group[0].conf)
    conf |= {"dLegerPeers": f"{conf['dLegerPeers']};n3-127.0.0.1:{base + 1}", "dLegerSelfId": "n3"}
    fourth = BrokerDaemon(tmp_path / "fourth", group.namesrv, conf, port=base)
    fourth.start()
    try:
        leader = wait_leader(group)
        done("addObserver", *common(group), "--broker-id", "3", "-a", fourth.address)
        wait_until(
            lambda: status(fourth).end_offset == status(group[wait_leader(group)]).end_offset,
            timeout_s=WAIT_S,
            what="the observer has caught up",
        )
        assert [bytes(message.body) for message in read_all(fourth, TOPIC)] == [b"first"]
        done("addVoter", *common(group), "--broker-id", "3")
        quorum = status(group[wait_leader(group)]).quorum
        assert quorum is not None
        assert quorum.voters == [0, 1, 2, 3]
        done("transferLeadership", *common(group), "--broker-id", "3")
        wait_until(lambda: status(fourth).role == "master", timeout_s=WAIT_S, what="it leads")
        code, text = run("removeVoter", *common(group), "--broker-id", "3")
        assert code != 0
        assert "transfer the leadership first" in text
        done("transferLeadership", *common(group), "--broker-id", str(leader))
        done("removeVoter", *common(group), "--broker-id", "3")
    finally:
        fourth.kill()
    wait_all_level(group)
    quorum = status(group[0]).quorum
    assert quorum is not None
    assert quorum.voters == [0, 1, 2]


def test_a_group_with_an_assigned_leader_refuses_what_is_for_electing_ones(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, replicas=1) as single:
        wait_until(lambda: bool(registered(single)), timeout_s=WAIT_S, what="its registration")
        code, text = run("transferLeadership", "-n", single.namesrv, "-b", single.name, "--broker-id", "1")
        assert code != 0
        assert "does not elect its leader" in text


def test_promote_is_refused_where_replicas_elect(group: ReplicaGroup) -> None:
    code, text = run("promote", *common(group), "--broker-id", "1", "--yes")
    assert code != 0
    assert "transferLeadership" in text


# --- access control

REPLICA = SessionCredentials("replica-account", "replica-secret")
TENANT = SessionCredentials("tenant-account", "tenant-secret")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDaemon]:
    """One replica of a group under access control; the others are not there, so nothing leads."""
    folder = tmp_path_factory.mktemp("guarded")
    accounts = [
        {"accessKey": REPLICA.access_key, "secretKey": REPLICA.secret_key, "admin": True},
        {"accessKey": TENANT.access_key, "secretKey": TENANT.secret_key, "defaultTopicPerm": "PUB|SUB"},
    ]
    acl_file = folder / "plain_acl.yml"
    acl_file.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [], "accounts": accounts}), "utf-8")
    base = steady_ports(4)
    conf = {
        "aclEnable": "true", "aclConfigFile": str(acl_file), "enableDLegerCommitLog": "true",
        "dLegerPeers": ";".join(f"n{n}-127.0.0.1:{base + 1 + n}" for n in range(3)), "dLegerSelfId": "n0",
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": REPLICA.access_key, "secretKey": REPLICA.secret_key}, separators=(",", ":")
        ),
    }  # fmt: skip
    broker = BrokerDaemon(folder / "broker", "127.0.0.1:9", conf, port=base).start()
    yield broker
    broker.kill()


def vote() -> RemotingCommand:
    header = ReplicaVoteRequestHeader(group="broker-a", candidate=1, epoch=77, last_epoch=0, end_offset=0, pre=False)
    return RemotingCommand.request(HighwaterRequestCode.REPLICA_VOTE, header)


@pytest.mark.parametrize(
    "credentials",
    [None, TENANT, SessionCredentials("replica-account", "guessed-it")],
    ids=["nobody", "a-tenant", "a-guesser"],
)
def test_a_vote_that_no_replica_asks_for_is_refused_and_raises_nothing(
    guarded: BrokerDaemon, credentials: SessionCredentials | None
) -> None:
    with pytest.raises(Refused) as refused:
        call(guarded.address, vote(), credentials)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    reply = call(guarded.address, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS), REPLICA)
    assert json.loads(bytes(reply.body))["epoch"] < 77


@pytest.mark.parametrize("code", [code for code in HighwaterRequestCode if 20009 <= code <= 20014])
def test_elections_and_changes_need_the_replicas_account(guarded: BrokerDaemon, code: int) -> None:
    with pytest.raises(Refused) as refused:
        call(guarded.address, RemotingCommand.request(code), TENANT)
    assert refused.value.code == ResponseCode.NO_PERMISSION


def test_a_group_that_lost_a_majority_of_its_disks_is_recovered_by_a_typed_loss(group: ReplicaGroup) -> None:
    """The last test here: two disks are replaced by empty ones."""
    wait_all_level(group)
    left = (wait_leader(group) + 1) % 3
    before = [bytes(message.body) for message in read_all(group[left], TOPIC)]
    lost = [number for number in range(3) if number != left]
    code, text = run("recoverQuorum", *common(group), "--broker-id", str(left), "--confirm", group.name)
    assert (code != 0, "they elect a leader by themselves" in text) == (True, True)
    for number in lost:
        group[number].kill()
    for number in lost:
        shutil.rmtree(group[number].folder / "store")
        group[number].start()
    wait_until(lambda: status(group[left]).role == "slave", timeout_s=WAIT_S, what="it has no majority")

    def asked_without_the_loss() -> bool:
        return "given up for good" in run("recoverQuorum", *common(group), "--broker-id", str(left))[1]

    wait_until(asked_without_the_loss, timeout_s=WAIT_S, what="the loss is stated")
    assert status(group[left]).role == "slave", "empty disks elect no one"
    done("recoverQuorum", *common(group), "--broker-id", str(left), "--confirm", group.name)
    with Producer(group.namesrv, "recovered") as producer:
        send_until_ok(producer, TOPIC, b"after the loss")
        assert [bytes(message.body) for message in read_all(group[left], TOPIC)] == [*before, b"after the loss"]
        for number in lost:
            done("addObserver", *common(group), "--broker-id", str(number), "-a", group[number].address)
            done("addVoter", *common(group), "--broker-id", str(number))
        wait_all_level(group)
        group[left].kill()
        successor = wait_leader(group, left)
        send_until_ok(producer, TOPIC, b"by the new disks alone")
    bodies = [bytes(message.body) for message in read_all(group[successor], TOPIC)]
    assert bodies == [*before, b"after the loss", b"by the new disks alone"]
