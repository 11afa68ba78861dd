"""A database with the control plane's own tables, for the jobs: made once, by its migrations."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.rows import dict_row

from tests.spark_etl.metering import utc
from tests.support.migrated import TEMPLATE

ALIAS = "etl"


@dataclass(frozen=True)
class Database:
    """Its URL; every call has a connection of its own."""

    url: str

    @property
    def config(self) -> dict[str, Any]:
        """The member `database` of a job's configuration."""
        parts = urlsplit(self.url)
        return {
            "host": parts.hostname,
            "port": parts.port,
            "name": parts.path.lstrip("/"),
            "user": parts.username,
            "password": parts.password,
        }

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(query, parameters).fetchall()

    def change(self, statement: str, *parameters: Any) -> int:
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement, parameters).rowcount

    @contextmanager
    def locked(self, table: str, mode: str) -> Iterator[None]:
        """Whoever needs the table waits until the block ends."""
        with psycopg.connect(self.url) as connection:
            connection.execute(f"lock table {table} in {mode} mode")
            yield
            connection.rollback()

    def waits_for_lock(self, table: str) -> bool:
        """Whether a session waits for a lock on the table."""
        waiting = "select 1 from pg_locks where not granted and relation = %s::regclass"
        return bool(self.rows(waiting, table))

    def usage(self, cluster_id: str) -> list[dict[str, Any]]:
        """All that billing_usage holds of a cluster, in one order."""
        return self.rows(
            "select * from billing_usage where cluster_id = %s"
            " order by hour, direction, topic, consumer_group, credential, kind",
            cluster_id,
        )

    def subscribe(self, tenant_id: str, prices: Sequence[dict[str, Any]]) -> None:
        """Makes a tenant with a plan of its own and these prices, subscribed for ever."""
        from controlplane.billing.models import Plan, Price, Subscription
        from controlplane.tenants.models import Tenant

        name = uuid.uuid4().hex[:12]
        tenant = Tenant.objects.using(ALIAS).create(id=uuid.UUID(tenant_id), slug=name, name=name)
        plan = Plan.objects.using(ALIAS).create(slug=name, name=name, currency="EUR")
        for price in prices:
            Price.objects.using(ALIAS).create(plan=plan, currency="EUR", **price)
        Subscription.objects.using(ALIAS).create(
            tenant=tenant, plan=plan, valid_from=utc("2020-01-01 00:00"), valid_to=None
        )


PRICE = {
    "valid_from": utc("2020-01-01 00:00"),
    "valid_to": None,
    "per_million_units": Decimal("2"),
    "per_million_units_out": Decimal("0.5"),
    "per_gib_month_stored": Decimal("0.25"),
    "multipliers": {"normal": "1", "ordered": "1.5", "delayed": "2", "transactional": "2.25"},
}


@contextmanager
def migrated_database(server_url: str) -> Iterator[Database]:
    """A new database with all tables; gone after the block."""
    from django.core.management import call_command
    from django.db import connections

    name = f"etl_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        copied = connection.execute("select from pg_database where datname = %s", [TEMPLATE]).fetchone()
        connection.execute(f"create database {name}" + (f" template {TEMPLATE}" if copied else ""))
    connections.databases[ALIAS] = {**connections.databases["default"], "NAME": name}
    try:
        call_command("migrate", database=ALIAS, verbosity=0)
        parts = urlsplit(server_url)
        yield Database(parts._replace(path=f"/{name}").geturl())
    finally:
        connections[ALIAS].close()
        del connections[ALIAS], connections.databases[ALIAS]
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")
