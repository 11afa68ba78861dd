"""Many threads that start cold decode the same types: msgspec alone would crash the process (mqwire/first_decode.py)."""

from __future__ import annotations

import subprocess
import sys

# Wide types and a tiny switch interval make the crash likely: without first_decode.py it came in each of ten runs.
PROGRAM = """
import json, sys, threading
import msgspec
from mqwire.bodies.base import Body

sys.setswitchinterval(1e-6)
BODY = json.dumps({"inner": {f"a{i}": i for i in range(30)}, **{f"f{i}": "x" for i in range(40)}}).encode()

def make(n):
    inner = msgspec.defstruct(f"Inner{n}", [(f"a{i}", int) for i in range(30)])
    fields = [("inner", inner)] + [(f"f{i}", str | None, None) for i in range(40)]
    return msgspec.defstruct(f"Outer{n}", fields, bases=(Body,), frozen=True, kw_only=True)

def decode(kind, barrier):
    barrier.wait()
    kind.from_json(BODY)

for n in range(150):
    kind, barrier = make(n), threading.Barrier(16)
    threads = [threading.Thread(target=decode, args=(kind, barrier)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_sixteen_threads_decode_a_type_for_the_first_time_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
