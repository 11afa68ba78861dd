"""ACL v1 signatures. The vectors follow from the algorithm: base64(HMAC-SHA1(secret, values by name, then the body))."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from mqwire import acl
from mqwire.acl import SessionCredentials, sign, sign_content, sign_request, signature_matches, signed_content
from mqwire.codes import SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_namesrv import GetRouteInfoRequestHeader

SECRET = "12345678"
CREDENTIALS = SessionCredentials("RocketMQ", SECRET)


@pytest.mark.parametrize(
    ("secret", "content", "signature"),
    [
        # RFC 2202's first and second HMAC-SHA1 cases, written in base64.
        (
            "\x0b" * 20,
            b"Hi There",
            base64.b64encode(bytes.fromhex("b617318655057264e28bc0b6fb378c8ef146be00")).decode(),
        ),
        (
            "Jefe",
            b"what do ya want for nothing?",
            base64.b64encode(bytes.fromhex("effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")).decode(),
        ),
        # The values that RocketMQ's Java and Go clients give for these.
        ("12345678", b"RocketMQ", "IUc8rrO/0gDch8CjObLQsW2rsiA="),
        ("adiaushdiaushd", b"Hello RocketMQ Client ACL Feature", "tAb/54Rwwcq+pbH8Loi7FWX4QSQ="),
    ],
)
def test_known_signatures(secret: str, content: bytes, signature: str) -> None:
    assert sign_content(secret, content) == signature


def test_values_are_joined_by_their_names_order_then_the_body() -> None:
    fields = {"topic": "orders", "AccessKey": "ak", "b": "2", "a": "1", "Z": "9"}
    assert signed_content(fields, b"\x00body") == b"ak912orders\x00body"


def test_capital_letters_stand_in_front_of_small_ones() -> None:
    assert signed_content({"a": "small", "B": "capital", "_": "line"}) == b"capital" + b"line" + b"small"


def test_names_are_ordered_by_utf16_units_as_in_java() -> None:
    # U+1F600 is written with D83D first, which is below U+FF5E.
    assert signed_content({"\uff5e": "b", "\U0001f600": "a"}) == b"ab"


def test_the_signature_itself_is_not_signed() -> None:
    fields = {"AccessKey": "ak", "topic": "t"}
    assert sign(SECRET, {**fields, "Signature": "x"}) == sign(SECRET, fields)


def test_a_signature_is_what_the_algorithm_says() -> None:
    request = RemotingCommand.request(105, GetRouteInfoRequestHeader(topic="订单"), body=b"\xff\x00")
    sign_request(request, CREDENTIALS)
    expected = hmac.new(SECRET.encode(), "RocketMQ订单".encode() + b"\xff\x00", hashlib.sha1).digest()
    assert request.ext_fields["Signature"] == base64.b64encode(expected).decode()


@pytest.mark.parametrize("kind", list(SerializeType))
def test_a_signed_request_still_matches_behind_the_wire(kind: SerializeType) -> None:
    request = RemotingCommand.request(
        10, ext_fields={"topic": "t", "properties": "a\x01b\x02"}, body=b"x" * 100, serialize_type=kind
    )
    sign_request(request, SessionCredentials("ak", SECRET, security_token="token"))
    connection = Connection()
    connection.receive_data(request.encode())
    (arrived,) = connection.commands()
    assert arrived.ext_fields["SecurityToken"] == "token"
    assert signature_matches(arrived, SECRET)


def signed() -> RemotingCommand:
    request = RemotingCommand.request(10, ext_fields={"topic": "orders", "queueId": "3"}, body=b"body")
    sign_request(request, CREDENTIALS)
    return request


def test_another_secret_does_not_match() -> None:
    assert signature_matches(signed(), SECRET)
    assert not signature_matches(signed(), SECRET + "9")


def test_a_changed_field_a_changed_body_and_a_further_field_do_not_match() -> None:
    changed_field, changed_body, further = signed(), signed(), signed()
    changed_field.ext_fields["topic"] = "paid"
    changed_body.body = b"Body"
    further.ext_fields["extra"] = "1"
    assert not any(signature_matches(request, SECRET) for request in (changed_field, changed_body, further))


@pytest.mark.parametrize("signature", [None, "", "x", "签名", "IUc8rrO/0gDch8CjObLQsW2rsiA="])
def test_a_missing_or_strange_signature_does_not_match(signature: str | None) -> None:
    request = signed()
    del request.ext_fields["Signature"]
    if signature is not None:
        request.ext_fields["Signature"] = signature
    assert not signature_matches(request, SECRET)


@pytest.mark.parametrize(("version", "matches"), [(399, True), (401, False), (479, False)])
def test_clients_up_to_4_9_3_leave_the_unique_key_flag_unsigned(version: int, matches: bool) -> None:
    request = signed()
    request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    request.version = version
    assert signature_matches(request, SECRET) is matches


def test_the_order_of_long_names_is_not_remembered() -> None:
    request = RemotingCommand.request(105, ext_fields={"topic": "orders", "x" * 2_000: ""})
    sign_request(request, CREDENTIALS)
    assert signature_matches(request, SECRET)
    assert not any("x" * 2_000 in names for names in acl._orders)


def test_secrets_do_not_show() -> None:
    assert SECRET not in repr(CREDENTIALS)
