"""A broker from start to graceful stop."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from brokerd.broker import Broker, open_store
from brokerd.environment import Environment
from brokerd.network_cut import NetworkCut
from brokerd.server import Server
from brokerd.services.table_files import write_changes
from brokerd.stats import SAMPLE_PERIOD_S
from mqwire.message import pack_host

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig

logger = logging.getLogger(__name__)

# From SIGTERM to exit within 10 s, whatever hangs (issue: graceful stop).
_STOP_STEP_TIMEOUT_S: Final = 3.0
_CLIENT_SCAN_PERIOD_S: Final = 10.0
# Each request makes objects that all go again without the collector's help; the default of 700 has it look each few requests.
_GC_THRESHOLD: Final = 20_000
_CONFIRM_OFFSET_PERIOD_S: Final = 5.0
# Of a leader, whose senders wait while the file is synced: some 10 ms.
_LEADERS_CONFIRM_OFFSET_PERIOD_S: Final = 60.0
_ACCOUNTS_PERIOD_S: Final = 1.0


async def run_broker(config: BrokerConfig, *, on_ready: Callable[[str], None]) -> None:
    """Serve on this machine until SIGTERM or SIGINT; `on_ready` gets the listening address. Raises what `open_broker` does."""
    environment = Environment()
    server, broker = open_broker(config, environment)
    await serve(server, broker, environment, on_ready=on_ready)


def open_broker(config: BrokerConfig, environment: Environment) -> tuple[Server, Broker]:
    """A broker that has its port and its recovered store, and does nothing yet; for `serve`.

    Raises OSError when the port is taken, StoreError when the store cannot be opened.
    """
    environment = replace(environment, network=NetworkCut(environment.network))
    server = Server(config, environment.network)
    _ip, port = server.listen()
    try:
        store, report = open_store(config, pack_host(config.broker_ip1, port), environment)
        logger.info(
            "store opened: %d bytes, clean shutdown %s, %d records scanned in %d ms",
            report.end_offset,
            report.clean_shutdown,
            report.records_scanned,
            report.duration_ms,
        )
        for anomaly in report.anomalies:
            logger.warning("store: %s", anomaly)
        return server, Broker(config, store, port, environment)
    except BaseException:
        server.stop_listening()
        raise


async def serve(server: Server, broker: Broker, environment: Environment, *, on_ready: Callable[[str], None]) -> None:
    """Serve until the environment orders a stop, then stop in order.

    Raises UnreadableConfigFile when a config/*.json and its backup are broken, StoreFormatError when the epoch file is.
    """
    try:
        broker.load()
    except BaseException:
        server.stop_listening()
        raise
    with environment.stop_orders() as next_order:
        async with trio.open_nursery() as nursery:
            broker.nursery = nursery
            await nursery.start(server.run, broker)
            nursery.start_soon(broker.leader_port.run, server)
            nursery.start_soon(broker.quorum.run)
            nursery.start_soon(broker.follower.run)
            nursery.start_soon(broker.flush_service.run)
            nursery.start_soon(broker.flush_service.run_consume_queues)
            nursery.start_soon(broker.flush_service.run_retention)
            nursery.start_soon(broker.flush_service.run_expiry)
            nursery.start_soon(broker.metadata_log.run)
            nursery.start_soon(broker.registration.run)
            nursery.start_soon(broker.schedule.run)
            nursery.start_soon(broker.metering.run)
            nursery.start_soon(broker.message_index.run)
            nursery.start_soon(broker.topic_retention.run)
            if broker.acl is not None:
                nursery.start_soon(watch_accounts, broker.acl)
            nursery.start_soon(broker.table_files.run)
            nursery.start_soon(broker.member_notices.run)
            nursery.start_soon(broker.held_answers.run)
            nursery.start_soon(_persist, broker)
            nursery.start_soon(_remember_confirm_offset, broker)
            nursery.start_soon(_scan_clients, broker)
            nursery.start_soon(broker.loop_lag.run)
            nursery.start_soon(_sample, broker)
            on_ready(server.address)
            logger.info("stopping on %s", await next_order())
            await _stop(broker, server)
            nursery.cancel_scope.cancel()
    broker.store.close()
    logger.info("stopped")


async def _stop(broker: Broker, server: Server) -> None:
    """Refuse new sends, leave the name servers, make everything durable; each step bounded, where the disk does not hang."""
    broker.end_network_cut()  # or each step would wait for connections in vain, for as long as it may
    await broker.metering.finish()
    broker.metadata_log.write_last_offsets()
    broker.stopping = True
    server.stop_listening()
    broker.leader_port.stop_listening()
    await broker.quorum.hand_over_and_stop()
    with trio.move_on_after(_STOP_STEP_TIMEOUT_S) as leaving:
        await broker.registration.unregister()
    if leaving.cancelled_caught:
        logger.warning("a name server did not answer in time; it will drop this broker by itself")
    with trio.move_on_after(_STOP_STEP_TIMEOUT_S) as flushing:
        await broker.flush_service.flush_once()
    if flushing.cancelled_caught:
        logger.error("the last flush takes too long; what was acknowledged as durable is durable")
    await broker.message_index.finish()
    broker.persist()
    try:
        broker.replica.remember_confirm_offset()
    except OSError as error:
        logger.error("the epoch file cannot be written: %s", error)


async def _remember_confirm_offset(broker: Broker) -> None:
    """A replica that restarts while there is no master shows its readers what was confirmed by then, not more.

    An elected leader saves nothing: it is replaced or leads again within seconds.
    """
    saved_s = trio.current_time()
    while True:
        await trio.sleep(_CONFIRM_OFFSET_PERIOD_S)
        async with broker.store_gate.shared():
            try:
                broker.replica.keep_reserve()
                broker.replica.remember_epochs()
                now_s, replica = trio.current_time(), broker.replica
                is_due = now_s >= saved_s + _LEADERS_CONFIRM_OFFSET_PERIOD_S and replica.elections is None
                if is_due or not replica.leads:
                    replica.remember_confirm_offset()
                    saved_s = now_s
            except OSError as error:
                logger.error("the epoch file cannot be written, trying again: %s", error)


async def _persist(broker: Broker) -> None:
    while True:
        await trio.sleep(broker.config.flush_consumer_offset_interval_ms / 1000)
        if not broker.store_gate.closed:
            broker.metadata_log.keep_base_near()
            broker.metadata_log.note_sent_back()
        await write_changes(broker.consumer_offsets, broker.threads)


async def _scan_clients(broker: Broker) -> None:
    while True:
        await trio.sleep(_CLIENT_SCAN_PERIOD_S)
        broker.producers.scan()
        broker.consumers.scan()
        broker.rebalance_locks.scan()


async def watch_accounts(acl: AccessControl) -> None:
    """Takes over changes of the file by hand within a second."""
    while True:
        await trio.sleep(_ACCOUNTS_PERIOD_S)
        acl.reload_if_changed()


async def _sample(broker: Broker) -> None:
    while True:
        broker.stats.sample(broker.clock.monotonic())
        await trio.sleep(SAMPLE_PERIOD_S)


def collect_seldom() -> None:
    """What is there by now stays for good: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
