"""The keys of DLedger mode: which replicas belong to the group, and which of them this replica is.

RocketMQ's own form: dLegerPeers=n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911 and dLegerSelfId=n0. The number
after the n is the replica id, for life. Sources: DLedgerConfig; MessageStoreConfig.getdLegerPeers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from brokerd.config_values import ConfigKey

LEAST_PEERS = 3
_ID = r"n([0-9]{1,4})"
_PEER = re.compile(_ID + r"-(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def peers(name: str) -> dict[int, str]:
    """replica id -> host:port where its group reaches it."""

    def read(raw: str) -> dict[int, str]:
        found: dict[int, str] = {}
        for part in filter(None, (part.strip() for part in raw.split(";"))):
            matched = _PEER.fullmatch(part)
            if matched is None or not 0 < int(matched[3]) < 65536:
                raise ValueError('n<number>-host:port with ; between them, as in "n0-10.0.0.1:40911;n1-10.0.0.2:40911"')
            if int(matched[1]) in found or f"{matched[2]}:{matched[3]}" in found.values():
                raise ValueError(f"each id and each address once; {part} is there twice")
            found[int(matched[1])] = f"{matched[2]}:{matched[3]}"
        return found

    def write(value: Mapping[int, str]) -> str:
        return ";".join(f"n{replica_id}-{address}" for replica_id, address in sorted(value.items()))

    value: dict[int, str] = dataclasses.field(default_factory=dict, metadata={"key": ConfigKey(name, read, write)})
    return value


def peer_id(text: str) -> int | None:
    """The replica id of "n2"; None for an empty text. The pattern of the key has refused everything else."""
    return int(text[1:]) if text else None


def why_not(
    self_id: str, preferred_id: str, found: Mapping[int, str], group: str, broker_name: str
) -> tuple[str, str] | None:
    """(key, what is wrong and allowed) of a configuration with enableDLegerCommitLog=true; None when it can run."""
    names = ", ".join(f"n{one}" for one in sorted(found)) or "none"
    if len(found) < LEAST_PEERS:
        return "dLegerPeers", (
            f"{len(found)} peers cannot outvote a dead one; allowed are {LEAST_PEERS} or more,"
            ' as in "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"'
        )
    if not self_id:
        return "dLegerSelfId", f"it is not set; allowed is one of the ids in dLegerPeers: {names}"
    if peer_id(self_id) not in found:
        return "dLegerSelfId", f"{self_id} is not in dLegerPeers; allowed is one of {names}"
    if preferred_id and peer_id(preferred_id) not in found:
        return "preferredLeaderId", f"{preferred_id} is not in dLegerPeers; allowed is one of {names}, or nothing"
    if group not in ("", broker_name):
        return (
            "dLegerGroup",
            f"{group} is not brokerName, {broker_name}: a group has one name here; leave dLegerGroup out",
        )
    return None


def port_of(address: str) -> int:
    """The port of "host:port"."""
    return int(address.rpartition(":")[2])
