"""However many connections programs have: a replica that reconnects, and the control plane, get in."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from mqwire.codes import HighwaterRequestCode, ResponseCode
from tests.remoting import exchange
from tests.security.accounts import PLATFORM, signed
from tests.security.live_broker import LiveBroker, send_request

DESCRIPTORS = 160
CONNECTIONS = 80  # that leave descriptors for files
NOT_FOR_PROGRAMS = 10


def test_programs_that_have_all_connections_keep_no_replica_out(tmp_path: Path) -> None:
    broker = LiveBroker(tmp_path, prefix=["prlimit", f"--nofile={DESCRIPTORS}"])
    try:
        with contextlib.ExitStack() as streams:
            answers = []
            for _ in range(CONNECTIONS):
                with contextlib.suppress(ConnectionError):
                    stream = streams.enter_context(broker.connection())
                    answers.append(exchange(stream, send_request(b"good")))
            replica = streams.enter_context(broker.connection())
            request = signed(
                HighwaterRequestCode.REPLICA_STATUS, PLATFORM, version=2, clock_ms=lambda: int(time.time() * 1000)
            )
            assert exchange(replica, request).code == ResponseCode.SUCCESS
            codes = [answer.code for answer in answers]
            served = codes.count(ResponseCode.SUCCESS)
            assert CONNECTIONS - NOT_FOR_PROGRAMS - 5 < served <= CONNECTIONS - NOT_FOR_PROGRAMS
            assert set(codes[served:]) == {ResponseCode.SYSTEM_BUSY}
            assert "connections of programs" in (answers[-1].remark or "")
            streams.pop_all().close()
            with broker.connection() as again:
                assert exchange(again, send_request(b"good")).code == ResponseCode.SUCCESS
    finally:
        broker.daemon.stop()
