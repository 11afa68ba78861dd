"""Signatures of version 2: they cover the code, the time and a number, and count once."""

from __future__ import annotations

import pytest

from mqwire.acl import SIGNATURE_LIFETIME_MS, SessionCredentials, SignatureVerifier, Signer, signature_2
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.security.accounts import PLATFORM, TENANT_ADMIN, signed

CREDENTIALS = SessionCredentials("an-access-key", "a-secret-key")
NOW_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def wall() -> Clock:
    return Clock()


@pytest.fixture
def verifier(wall: Clock) -> SignatureVerifier:
    return SignatureVerifier(wall)


def request(signer: Signer, code: int = 26, **fields: str) -> RemotingCommand:
    made = RemotingCommand.request(code, ext_fields=dict(fields), body=b"body")
    signer.sign(made)
    return made


def accepted(verifier: SignatureVerifier, command: RemotingCommand) -> bool:
    return verifier.why_refused(command, CREDENTIALS.secret_key) is None


def test_a_request_counts_once(verifier: SignatureVerifier, wall: Clock) -> None:
    command = request(Signer(CREDENTIALS, wall))
    assert accepted(verifier, command)
    assert not accepted(verifier, command)


@pytest.mark.parametrize("change", ["code", "body", "field", "moved", "time", "number"])
def test_whatever_is_changed_is_refused(verifier: SignatureVerifier, wall: Clock, change: str) -> None:
    command = request(Signer(CREDENTIALS, wall), topic="ab", zone="c")
    fields = command.ext_fields
    if change == "code":
        command.code = 27
    elif change == "body":
        command.body = b"BODY"
    elif change == "field":
        fields["topic"] = "AB"
    elif change == "moved":
        fields["topic"], fields["zone"] = "a", "bc"
    elif change == "time":
        fields["SignatureTime"] = str(NOW_MS + 1)
    else:
        fields["SignatureNonce"] = fields["SignatureNonce"].replace("-1", "-2")
    assert not accepted(verifier, command)


@pytest.mark.parametrize("skew_ms", [-SIGNATURE_LIFETIME_MS - 1, SIGNATURE_LIFETIME_MS + 1])
def test_a_request_from_another_time_is_refused(wall: Clock, skew_ms: int) -> None:
    started_long_ago = SignatureVerifier(lambda: wall.now_ms - 3_600_000)
    started_long_ago._clock_ms = wall
    wall.now_ms += skew_ms
    command = request(Signer(CREDENTIALS, wall))
    wall.now_ms -= skew_ms
    assert "set the clock right" in (started_long_ago.why_refused(command, CREDENTIALS.secret_key) or "")


def test_a_verifier_that_has_just_started_takes_nothing_from_before(wall: Clock) -> None:
    command = request(Signer(CREDENTIALS, wall))
    wall.now_ms += 60_000
    assert not accepted(SignatureVerifier(wall), command)


def test_requests_over_several_connections_may_overtake_each_other(verifier: SignatureVerifier, wall: Clock) -> None:
    signer = Signer(CREDENTIALS, wall)
    commands = [request(signer) for _ in range(100)]
    for command in [*reversed(commands[:50]), *reversed(commands[50:])]:
        assert accepted(verifier, command)
    assert not any(accepted(verifier, command) for command in commands)


def test_what_is_remembered_is_bounded_and_still_refuses_repeats(verifier: SignatureVerifier, wall: Clock) -> None:
    first = request(Signer(CREDENTIALS, wall))
    assert accepted(verifier, first)
    for _ in range(4096):
        wall.now_ms += 1
        assert accepted(verifier, request(Signer(CREDENTIALS, wall)))
    assert len(verifier._sessions[CREDENTIALS.access_key]) == 4096
    assert not accepted(verifier, first)


def test_a_wrong_signature_is_not_remembered(verifier: SignatureVerifier, wall: Clock) -> None:
    assert not accepted(verifier, request(Signer(SessionCredentials("an-access-key", "wrong-secret"), wall)))
    assert not verifier._sessions


def test_numbers_of_any_size_are_taken_or_refused(verifier: SignatureVerifier, wall: Clock) -> None:
    for number, expected in (("999999999999999", True), ("9" * 400, False), ("", False), ("-1", False)):
        command = request(Signer(CREDENTIALS, wall))
        command.ext_fields["SignatureNonce"] = f"{'a' * 16}-{number}"
        command.ext_fields["Signature"] = signature_2(command, CREDENTIALS.secret_key)
        assert accepted(verifier, command) is expected


def test_the_infrastructures_account_takes_no_signature_that_could_be_repeated(
    platform_broker: BrokerUnderTest,
) -> None:
    reply = platform_broker.answer(signed(RequestCode.GET_BROKER_CONFIG, PLATFORM, version=1))
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "version 2" in (reply.remark or "")


def test_a_tenant_may_sign_by_either_version(platform_broker: BrokerUnderTest) -> None:
    for version in (1, 2):
        reply = platform_broker.answer(signed(RequestCode.GET_BROKER_CONFIG, TENANT_ADMIN, version=version))
        assert reply.code == ResponseCode.SUCCESS


def test_a_recorded_request_is_refused_by_a_broker(platform_broker: BrokerUnderTest) -> None:
    recorded = signed(RequestCode.GET_BROKER_CONFIG, PLATFORM, version=2)
    assert platform_broker.answer(recorded).code == ResponseCode.SUCCESS
    assert platform_broker.answer(recorded).code == ResponseCode.NO_PERMISSION
