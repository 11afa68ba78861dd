"""Sends a drill's probes from a thread of the worker's process, every 50 ms whether or not the one before was answered: a
slow answer must not hide the time in which no one could send.

The thread outlives the step that started it, since the drill's next steps may run in another process. It writes down what
was answered twice a second, ends when its row says so, and goes with its process: then the row shows that it wrote no more.
"""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.db import Error, connection
from django.utils import timezone

from controlplane.clusters.models import OperationState
from controlplane.clusters.replica_remoting import GroupProducer
from controlplane.common.logging import get_logger
from controlplane.failover.drill.measurement import Probe, ProbeResult
from controlplane.failover.models import Drill
from controlplane.provisioning.ports import leader_addresses

_log = get_logger("controlplane.failover")

INTERVAL_S = 0.05
# A prober that wrote nothing for so long has ended with its process.
GONE_AFTER = timedelta(seconds=6)
_WRITE_S = 0.5
_LONGEST_S = 300.0
# A leader that hangs keeps each probe for 1.5 s.
_THREADS = 40


def prober_start(drill: Drill) -> bool:
    """Start probing from this process, unless another prober is at work; returns whether this call did."""
    mine, now = uuid.uuid4(), timezone.now()
    won = Drill.objects.filter(pk=drill.pk, prober=drill.prober, probing_started_at=drill.probing_started_at).update(
        prober=mine, probing_started_at=now, probed_at=now, probes=[], first_queue_offset=None, updated_at=now
    )
    if won != 1:
        return False
    producer = GroupProducer.of(drill.cluster, drill.group_name, leader_addresses(drill.cluster_id))
    thread = threading.Thread(target=_Prober(drill.pk, mine, producer).run, daemon=True, name="drill-prober")
    thread.start()
    return True


class _Prober:
    def __init__(self, drill_id: uuid.UUID, prober: uuid.UUID, producer: GroupProducer) -> None:
        self._drill_id, self._prober, self._producer = drill_id, prober, producer
        self._begun_s = time.monotonic()
        self._address: str | None = None
        self._looking = threading.Lock()
        self._lock = threading.Lock()
        self._sent_ms: list[int] = []
        self._answers: dict[int, Probe] = {}
        self._first_queue_offset: int | None = None

    def run(self) -> None:
        """Send until the drill's row ends it, then write down the last answers."""
        try:
            with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="drill-probe") as threads:
                self._send_until_over(threads)
            self._write(ended=True)
        except Error as error:  # the report says that it was not measured
            _log.warning("the probes could not be written down", drill=str(self._drill_id), error=str(error))
        finally:
            connection.close()

    def _send_until_over(self, threads: ThreadPoolExecutor) -> None:
        next_s = write_s = time.monotonic()
        while time.monotonic() - self._begun_s < _LONGEST_S:
            threads.submit(self._send, len(self._sent_ms))
            self._sent_ms.append(self._now_ms())
            if time.monotonic() >= write_s:
                write_s = time.monotonic() + _WRITE_S
                if not self._write():
                    return
            next_s = max(next_s + INTERVAL_S, time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _send(self, number: int) -> None:
        sent_ms, address = self._now_ms(), self._address
        if address is None:
            self._look()
            address = self._address
        result = ProbeResult.NO_ANSWER
        if address is not None:
            answer = self._producer.send(address, probe_body(self._prober, number))
            if answer.stored:
                result = ProbeResult.ACKNOWLEDGED if answer.acknowledged else ProbeResult.STORED
        with self._lock:
            self._answers[number] = Probe(sent_ms, self._now_ms(), result)
            if address is not None and answer.queue_offset is not None:
                first = self._first_queue_offset
                self._first_queue_offset = answer.queue_offset if first is None else min(first, answer.queue_offset)
        if result is ProbeResult.NO_ANSWER:
            self._look()

    def _look(self) -> None:
        """Ask the name servers where to send; one at a time, the others go on with what is known."""
        if self._looking.acquire(blocking=False):
            try:
                self._address = self._producer.leader_address() or self._address
            finally:
                self._looking.release()

    def _write(self, *, ended: bool = False) -> bool:
        """Write down all answers so far; returns whether to go on. A broken connection is opened again the next time."""
        now = timezone.now()
        with self._lock:
            answers, first = dict(self._answers), self._first_queue_offset
        rows = []
        for number, sent_ms in enumerate(self._sent_ms):
            probe = answers.get(number)
            rows.append(
                [sent_ms, sent_ms, ProbeResult.NO_ANSWER]
                if probe is None
                else [probe.sent_ms, probe.answered_ms, probe.result]
            )
        values = {"probes": rows, "first_queue_offset": first, "probed_at": now, "updated_at": now}
        if ended:
            values["probing_ended_at"] = now
        mine = Drill.objects.filter(pk=self._drill_id, prober=self._prober)
        try:
            if mine.update(**values) != 1:
                return False
            until, state = mine.values_list("probing_until", "operation__state")[0]
        except Error as error:
            if ended:
                raise
            _log.warning("the probes could not be written down", drill=str(self._drill_id), error=str(error))
            connection.close()
            return True
        return until is None and state == OperationState.IN_PROGRESS

    def _now_ms(self) -> int:
        return round((time.monotonic() - self._begun_s) * 1000)


def probe_body(prober: uuid.UUID, number: int) -> bytes:
    """Return a probe's message, which names its prober and its number."""
    return f"{prober.hex}:{number}".encode()


def probe_number(prober: uuid.UUID, body: bytes) -> int | None:
    """Return the number of a message that this prober sent; None of any other."""
    name, _, number = body.partition(b":")
    return int(number) if name == prober.hex.encode() and number.isdigit() else None
