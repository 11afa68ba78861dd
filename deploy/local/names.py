"""Clusters by name: supervisord and the folders know them by id only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.local.layout import Layout

_PROCESS = re.compile(r"hw-(?P<id>[0-9a-f]{12})-(?P<rest>.+)")
_CLUSTER_NAME = re.compile(r"^brokerClusterName\s*=\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class ClusterNames:
    """`names`: the first twelve digits of a cluster's id -> what to call it."""

    names: Mapping[str, str]

    @classmethod
    def of(cls, layout: Layout) -> ClusterNames:
        """From the brokers' configuration files. Clusters of several tenants with one name get their ids' first digits, too."""
        found: dict[str, str] = {}
        for folder in sorted(layout.clusters.glob("*")):
            for file in sorted(folder.glob("*/broker.conf")):
                match = _CLUSTER_NAME.search(file.read_text(encoding="utf-8", errors="replace"))
                if match:
                    found[folder.name.replace("-", "")[:12]] = match.group(1)
                    break
        counts = Counter(found.values())
        return cls({key: name if counts[name] == 1 else f"{name}~{key[:4]}" for key, name in found.items()})

    def full(self, process: str) -> str:
        """`demo/broker-a-0` for the process `hw-<id>-broker-a-0`; any other name as it is."""
        match = _PROCESS.fullmatch(process)
        if match is None or match.group("id") not in self.names:
            return process
        return f"{self.names[match.group('id')]}/{match.group('rest')}"
