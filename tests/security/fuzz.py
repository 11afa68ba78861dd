"""Damaged frames into the sockets of a live broker and name server: `./dev fuzz --frames 1000000 --seed 7`.

Each fourth connection to the broker has a key instead, and sends sound frames that ask for odd things (odd_requests.py).
Ends with an error when a daemon ends, logs an unexpected exception, holds more than 256 MiB, or stops serving.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
from pathlib import Path

from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.daemons import NameServerDaemon
from tests.mutated_frames import corpus, mutated
from tests.processes import resident_bytes
from tests.remoting import connect, exchange
from tests.security.live_broker import RESIDENT_MAX_BYTES, LiveBroker
from tests.security.odd_requests import odd_request

# A connection ends at the first frame that is none: few for each, so that most are looked at.
_FRAMES_PER_CONNECTION = 4
_CHECK_EVERY = 2_000


def fuzz(folder: Path, frames: int, seed: int) -> str:
    """Send so many damaged frames, half of them to each daemon; returns what was seen. Raises AssertionError."""
    source = random.Random(seed)
    good = corpus()
    names = NameServerDaemon(folder / "names").start()
    broker = LiveBroker(folder / "broker")
    assert broker.daemon.process is not None
    assert names.process is not None
    logs = [_Log(broker.daemon.process.log_path), _Log(names.process.log_path)]
    try:
        with broker.connection() as client:
            for number in range(0, frames, _FRAMES_PER_CONNECTION):
                address = (broker.address, names.address)[number // _FRAMES_PER_CONNECTION % 2]
                if number // _FRAMES_PER_CONNECTION % 4 == 2:
                    frames_now = [odd_request(source) for _ in range(_FRAMES_PER_CONNECTION)]
                else:
                    frames_now = [mutated(source.choice(good), source) for _ in range(_FRAMES_PER_CONNECTION)]
                _send(address, b"".join(frames_now))
                if number % _CHECK_EVERY == 0:
                    _check(broker, names, logs, client, f"seed={seed} frame={number}")
            _check(broker, names, logs, client, f"seed={seed}, the end")
        held = (broker.resident_bytes, resident_bytes(names.pid))
        return f"{frames} frames, seed {seed}: broker {held[0] >> 20} MiB, name server {held[1] >> 20} MiB"
    finally:
        broker.daemon.kill()
        names.kill()


def _send(address: str, data: bytes) -> None:
    with connect(address) as stream:
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(1 << 20):
                continue
        except ConnectionError:
            return  # closed at once: its answer to what is no frame


class _Log:
    """A daemon's log, read on from where it was read to: a campaign's is long."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def more(self) -> str:
        with open(self.path, "rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        return data.decode("utf-8", "replace")


def _check(broker: LiveBroker, names: NameServerDaemon, logs: list[_Log], client: socket.socket, place: str) -> None:
    assert broker.send(client).code == ResponseCode.SUCCESS, place
    with connect(names.address) as stream:
        reply = exchange(stream, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert reply.code == ResponseCode.SUCCESS, place
    for log in logs:
        assert "Traceback" not in log.more(), f"{place}: an exception is in {log.path}"
    assert max(broker.resident_bytes, resident_bytes(names.pid)) < RESIDENT_MAX_BYTES, place


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description="Damaged frames into live daemons.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed={options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(fuzz(Path(folder), options.frames, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
