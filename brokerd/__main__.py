"""`brokerd -c broker.conf`: RocketMQ's own configuration file, one process, one replica."""

from __future__ import annotations

import argparse
import logging
import os
import sys

import trio

from brokerd.config import BrokerConfig, ConfigError, load_config
from brokerd.config_file import UnreadableConfigFile
from brokerd.run import collect_seldom, run_broker
from brokerd.store import StoreError
from mqwire.escaped_logs import escape_logs
from mqwire.tls import TlsConfigError


def main(arguments: list[str] | None = None) -> int:
    """The console script; returns the exit status."""
    parser = argparse.ArgumentParser(prog="brokerd", description="A broker that RocketMQ's clients speak to.")
    parser.add_argument("-c", "--config-file", metavar="FILE", help="broker.conf, with RocketMQ's own keys")
    parser.add_argument(
        "-n", "--namesrv-addr", metavar="ADDR", help="name servers, ip:port;ip:port; wins over the file"
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    escape_logs()
    overrides = {} if options.namesrv_addr is None else {"namesrvAddr": options.namesrv_addr}
    status = 0
    try:
        config = load_config(options.config_file, overrides=overrides, environ=os.environ)
        trio.run(run_with_ready_line, config)
    except* (ConfigError, TlsConfigError, UnreadableConfigFile, StoreError, OSError) as group:
        for error in _leaves(group):
            print(f"brokerd: {error}", file=sys.stderr)
        status = 1
    return status


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


async def run_with_ready_line(config: BrokerConfig) -> None:
    """Serve, and report the address to the starter."""

    def on_ready(address: str) -> None:
        collect_seldom()
        print(f"highwater brokerd ready on {address}", flush=True)

    await run_broker(config, on_ready=on_ready)


if __name__ == "__main__":
    sys.exit(main())
