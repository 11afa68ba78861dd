"""A scripted group whose replicas report a mode, and that gets and loses replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster
from controlplane.clusters.replica_remoting import Answer
from controlplane.failover.mode import apis, steps
from controlplane.provisioning.processes import Daemon
from mqwire.bodies import ReplicaStatus
from tests.controlplane.driver_twin import DriverTwin
from tests.failover.electing import all_running
from tests.failover.scripted_quorum import ScriptedQuorum


@dataclass
class ScriptedModes:
    """A change is adopted by the leader at once, by the others a look later. `configured` is what running brokers were set to,
    by address.
    """

    group: ScriptedQuorum
    modes: dict[int, str]
    asked: list[str] = field(default_factory=list)
    configured: dict[str, dict[str, str]] = field(default_factory=dict)
    claims: bool = False  # its only replica was restarted, and waits for others
    before_call: Callable[[str], None] = lambda call: None

    @classmethod
    def of(cls, cluster: Cluster, mode: str) -> ScriptedModes:
        group = ScriptedQuorum.of(cluster)
        return cls(group, {replica.replica_id: mode for replica in group.replicas})

    @contextmanager
    def answering(self, driver: DriverTwin) -> Iterator[ScriptedModes]:
        """Stand in for the brokers and for what speaks to them."""

        @contextmanager
        def admin(cluster: Cluster) -> Iterator[ScriptedModes]:
            yield self

        with (
            self.group.answering(),
            patch.object(replica_remoting, "replica_statuses", self._statuses),
            patch.object(replica_remoting, "replica_mode", self._change),
            patch.object(replica_remoting, "replica_members", self._members),
            patch.object(replica_remoting, "replica_promote", self._promote),
            patch.object(steps, "cluster_admin", admin),
            patch.object(steps, "daemons_start", lambda context, daemons: self._start(driver, daemons)),
            patch.object(apis, "get_driver", return_value=driver),
        ):
            all_running(self.group.cluster, driver)
            yield self

    def broker_config(self, address: str) -> dict[str, str]:
        """As the SDK's Admin."""
        return self.configured.setdefault(address, {"slaveReadEnable": "false", "leaderListenPort": "0"})

    def update_broker_config(self, address: str, properties: Mapping[str, str]) -> None:
        """As the SDK's Admin."""
        self.before_call(f"configure {address}")
        self.asked.append(f"configure {address}")
        self.configured[address] |= properties

    def _start(self, driver: DriverTwin, daemons: Sequence[Daemon]) -> None:
        for daemon in daemons:
            driver.process_start(daemon.process)
            replica = self.group._at(daemon.row.address)
            replica.answers = replica.pulls = True

    def _statuses(self, cluster: Cluster, addresses: Sequence[str], *, timeouts_s: object = None) -> dict[str, Answer]:
        known = {replica.address for replica in self.group.replicas}
        answers = self.group._statuses(cluster, [address for address in addresses if address in known])
        reported = {address: Answer(error="connection refused") for address in addresses}
        leader = self.group.leader if self.group.leader is not None else 0
        for address, answer in answers.items():
            status = answer.status
            if status is not None:
                mode = self.modes.setdefault(status.replica_id, "async")
                changes = {"mode": mode, "claims": self.claims, "quorum": status.quorum if mode == "dledger" else None}
                status = msgspec.structs.replace(status, **changes)
            reported[address] = Answer(status=status, error=answer.error)
        self.modes = dict.fromkeys(self.modes, self.modes[leader])
        return reported

    def _change(
        self, cluster: Cluster, leader: ReplicaStatus, *, group: str, mode: str, in_sync_replicas: int
    ) -> Answer:
        self.before_call(f"mode {mode}")
        self.asked.append(f"{mode} {in_sync_replicas}")
        assert self.group.leader is not None
        self.modes[self.group.leader] = mode
        return self.group._answer(self.group[self.group.leader])

    def _members(self, cluster: Cluster, address: str, *, group: str, change: str, replica_id: int | None) -> Answer:
        self.before_call(f"{change} {replica_id}")
        return self.group._members(cluster, address, group=group, change=change, replica_id=replica_id)

    def _promote(
        self, cluster: Cluster, address: str, *, replica_id: int, with_incomplete_log: bool, **_names_and_epochs: object
    ) -> Answer:
        self.asked.append(f"promote {replica_id}{' with an incomplete log' if with_incomplete_log else ''}")
        self.claims = False
        self.group.elect(replica_id)
        return self.group._answer(self.group[replica_id])
