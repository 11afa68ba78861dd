"""Mutated frames: a clear RemoteProtocolError or a command, nothing else, and no memory kept."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from mqwire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper
from mqwire.connection import Connection
from mqwire.errors import RemoteProtocolError
from mqwire.headers_namesrv import GetRouteInfoRequestHeader
from tests.mutated_frames import corpus, mutated

FRAMES = 100_000
SEED = 20_251_121
MEBIBYTE = 1024 * 1024


def feed(data: bytes, random_source: random.Random) -> int:
    """How many commands came out; every one is opened, as a daemon would."""
    connection = Connection(max_frame_bytes=MEBIBYTE, max_header_bytes=64 * 1024)
    cut = random_source.randrange(len(data) + 1)
    opened = 0
    for piece in (data[:cut], data[cut:]):
        connection.receive_data(piece)
        while commands := connection.commands():
            for command in commands:
                opened += 1
                command.reply(1, str(command.remark)).encode()
                _ = command.header(GetRouteInfoRequestHeader)
    return opened


@pytest.mark.timeout(240)
def test_a_hundred_thousand_mutated_frames_lead_to_commands_or_clear_errors() -> None:
    random_source = random.Random(SEED)
    frames = corpus()
    refused = accepted = 0
    for number in range(FRAMES):
        data = mutated(random_source.choice(frames), random_source)
        try:
            accepted += feed(data, random_source)
        except RemoteProtocolError as error:
            refused += bool(str(error))
        except Exception as error:
            raise AssertionError(f"seed={SEED} frame={number} data={data!r}") from error
    # Both ways must really have been walked.
    assert refused > FRAMES // 10
    assert accepted > FRAMES // 100


def test_mutated_frames_leave_no_memory_behind() -> None:
    random_source = random.Random(SEED + 1)
    frames = corpus()
    tracemalloc.start()
    try:
        start_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(2_000):
            try:
                feed(mutated(random_source.choice(frames), random_source), random_source)
            except RemoteProtocolError:
                continue
        end_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes - start_bytes < 4 * MEBIBYTE
    assert end_bytes - start_bytes < MEBIBYTE


def test_random_bytes_never_become_a_command_without_a_true_length() -> None:
    random_source = random.Random(SEED + 2)
    for _ in range(5_000):
        data = random_source.randbytes(random_source.randint(1, 400))
        try:
            assert feed(data, random_source) == 0
        except RemoteProtocolError:
            continue


REGISTRATIONS = 10_000


def test_mutated_registration_bodies_lead_to_registrations_or_clear_errors() -> None:
    random_source = random.Random(SEED + 3)
    topics = {f"topic-{number}": TopicConfig(topic_name=f"topic-{number}") for number in range(5)}
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(topic_config_table=topics)
    )
    plain, packed = body.encode(), body.encode(compress=True)
    refused = 0
    for number in range(REGISTRATIONS):
        compressed = number % 2 == 1
        data = mutated(packed if compressed else plain, random_source)
        try:
            RegisterBrokerBody.decode(data, compressed=compressed).encode()
        except RemoteProtocolError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed={SEED + 3} number={number} data={data!r}") from error
    assert refused > REGISTRATIONS // 4
