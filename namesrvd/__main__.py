"""`namesrvd -c FILE`: read the configuration, serve, stop on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from typing import Final

import trio

from mqwire.escaped_logs import escape_logs
from mqwire.tls import TlsConfigError
from namesrvd import kv_config
from namesrvd.acl import Accounts, AclConfigError
from namesrvd.config import ConfigError, NamesrvConfig, load_config
from namesrvd.processor import Processor
from namesrvd.route_info import RouteInfoManager
from namesrvd.server import Server, monotonic_ms

logger = logging.getLogger("namesrvd")

EXIT_BAD_CONFIGURATION = 2
EXIT_CANNOT_LISTEN = 1

# A connection makes objects that go again without the collector's help; each 1,000 that it looks at hold everyone up by about a
# millisecond. Under 1,000 connections a second none of what it looked at was garbage.
_GC_THRESHOLD: Final = 200_000


def main(arguments: list[str] | None = None) -> None:
    """Entry point; ends the process with 0 after a signal, 1 when it can't listen, 2 for a bad configuration."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    escape_logs()
    options = _parse(arguments)
    overrides = {"listenPort": options.listen_port, "bindAddress": options.listen_address}
    try:
        config = load_config(
            options.config, overrides={key: value for key, value in overrides.items() if value is not None}
        )
        code = trio.run(_run, config)
    except (ConfigError, AclConfigError, TlsConfigError, kv_config.KVConfigError) as error:
        print(f"namesrvd: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIGURATION)
    sys.exit(code)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="namesrvd", description="Highwater's name server for RocketMQ clients.")
    parser.add_argument("-c", "--config", metavar="FILE", help="namesrv.conf, RocketMQ's own properties file")
    parser.add_argument("--listen-port", metavar="N", help="listenPort; 0 takes a free one (default 9876)")
    parser.add_argument("--listen-address", metavar="A", help="bindAddress (default 0.0.0.0)")
    return parser.parse_args(arguments)


async def _run(config: NamesrvConfig) -> int:
    accounts = Accounts(config.acl_config_file) if config.acl_enable else None
    kv = kv_config.load(config.kv_config_path)
    routes = RouteInfoManager(
        monotonic_ms,
        broker_channel_expired_timeout_ms=config.broker_channel_expired_timeout_ms,
        delete_topic_with_broker_registration=config.delete_topic_with_broker_registration,
    )
    processor = Processor(config, routes, kv, accounts=accounts, clock_ms=monotonic_ms)
    server = Server(config, processor, routes, kv, accounts)
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            try:
                host, port = await nursery.start(server.run)
            except OSError as error:
                logger.error("cannot listen on %s:%d: %s", config.bind_address, config.listen_port, error)
                return EXIT_CANNOT_LISTEN
            print(f"highwater namesrvd ready on {f'[{host}]' if ':' in host else host}:{port}", flush=True)
            async for number in signals:
                logger.info("stopping on %s", signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break
    return 0


if __name__ == "__main__":
    main()
