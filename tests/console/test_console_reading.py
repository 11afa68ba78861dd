"""A page that is only looked at changes nothing: a link or picture on another site that leads to it does no harm."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.console.views import operator_machine
from tests.console.test_console_access import addresses
from tests.console.test_console_masking import QUERIES
from tests.console.test_console_matrix import operator_addresses
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.secret_twin import secret_messages

_WRITES = re.compile(r'^(?:INSERT INTO|UPDATE|DELETE FROM) "(\w+)"')
# When the session was used, that a file of messages was read, and what daemons answered meanwhile.
_KEPT_OF_THE_VISIT = {
    *("django_session", "usersessions_usersession", "common_auditevent", "common_auditchain"),
    *("failover_replicasample", "failover_groupleadership"),
}


def test_what_is_only_looked_at_changes_nothing(world: World, tmp_path: Path) -> None:
    world.alice.is_staff = True
    world.alice.save()
    found = [
        *addresses(world),
        *operator_addresses(world),
        "/",
        "/tenants/",
        "/sessions/",
        "/2fa/",
        "/logout/",
    ]
    client = world.client(world.alice)
    wrong, pages = [], 0
    with secret_messages(), patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        for address in found:
            query = next((query for end, query in QUERIES.items() if address.endswith(end)), "")
            with CaptureQueriesContext(
                connection,
            ) as queries:
                pages += client.get(address + query).status_code == 200
            written = {match[1] for one in queries if (match := _WRITES.match(one["sql"]))}
            wrong += [f"{address}: {table}" for table in sorted(written - _KEPT_OF_THE_VISIT)]
    assert not wrong, "\n".join(wrong)
    assert pages > 100, "so few pages prove little"
