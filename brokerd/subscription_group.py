"""SubscriptionGroupManager: which consumer groups this broker knows, and how each may consume.

Source: SubscriptionGroupManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from brokerd.config import BrokerConfig
from brokerd.logged_table import LoggedTable
from brokerd.metadata import MetadataFile
from brokerd.metadata_record import MetadataRecord
from brokerd.quotas import QuotaReached, Usage
from brokerd.store import Disk, StoreError
from brokerd.topic_validator import invalid_group
from mqwire import names
from mqwire.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper

logger = logging.getLogger("brokerd.subscription_group")

# The groups that SubscriptionGroupManager.init makes, and whether they may broadcast is true for all of them here.
_SYSTEM_GROUPS = (
    names.TOOLS_CONSUMER_GROUP,
    "FILTERSRV_CONSUMER",
    names.AGE_LOOK_GROUP,
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_SYS_RMQ_TRANS",
)


# Groups that heartbeats make: each is a line of a file that is written whole. Others are made by request codes.
AUTO_CREATED_GROUPS_MAX = 10_000
AUTO_CREATED_GROUPS_OF_KEY_MAX = 1_000
# Of one group with its attributes, which clients name as they like.
_GROUP_MAX_BYTES = 16 * 1024


class SubscriptionGroupFile(SubscriptionGroupWrapper, frozen=True, kw_only=True):
    """subscriptionGroup.json. What RocketMQ or an operator has written lacks the mark, and counts more than the log then."""

    in_log: bool = False


class SubscriptionGroupManager(LoggedTable[SubscriptionGroupConfig]):
    """The table of groups, in subscriptionGroup.json."""

    def __init__(
        self,
        config: BrokerConfig,
        clock_ms: Callable[[], int],
        disk: Disk,
        write: Callable[[MetadataRecord], None] | None = None,
        wants_file: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            MetadataFile(disk, config.config_folder, "subscriptionGroup.json"), clock_ms, write, wants_file
        )
        self._config = config
        self._table |= {name: SubscriptionGroupConfig(group_name=name) for name in _SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._made_by: dict[str, int] = {}  # since the start, by access key
        self._imagined_for: dict[str, set[str]] = {}  # by access key, which groups were answered without being made

    def load(self) -> None:
        """Reads subscriptionGroup.json; raises UnreadableConfigFile."""
        wrapper = self._file.load(SubscriptionGroupFile)
        if wrapper is not None:
            if not wrapper.in_log:
                self._take_for_imported()
            self._table.update(wrapper.subscription_group_table)
            self._forbidden.update(wrapper.forbidden_table)
            self.data_version = wrapper.data_version

    def find_or_create(self, group: str, credential: str) -> SubscriptionGroupConfig | None:
        """The group, made when it does not exist and autoCreateSubscriptionGroup allows it; else None, also where the broker or
        this access key has made as many as it may.

        Where the log takes no change now, on a slave say, the group is answered as it would be made: for each access key as many
        as it may make, for each is remembered by those who count pulls and commits.
        """
        config = self.find_or_imagine(group, credential)
        if config is None or group in self._table:
            return config
        try:
            self.put(config)
        except QuotaReached as error:
            logger.info("subscription group %s is not created: %s", group, error)
            return None
        except StoreError as error:
            logger.debug("subscription group %s is not created yet: %s", group, error)
            return config if self._may_imagine(group, credential) else None
        else:
            self._made_by[credential] = self._made_by.get(credential, 0) + 1
            logger.info("subscription group %s created on first use", group)
        return config

    def _may_imagine(self, group: str, credential: str) -> bool:
        imagined = self._imagined_for.setdefault(credential, set())
        if group not in imagined and len(imagined) >= AUTO_CREATED_GROUPS_OF_KEY_MAX:
            imagined.difference_update(self._table)
            if len(imagined) >= AUTO_CREATED_GROUPS_OF_KEY_MAX:
                return False
        imagined.add(group)
        return True

    def find_or_imagine(self, group: str, credential: str) -> SubscriptionGroupConfig | None:
        """The group, or what `find_or_create` would try to make; makes nothing."""
        known = self._table.get(group)
        if known is not None:
            return known
        if not self._config.auto_create_subscription_group and not names.is_system_group(group):
            return None
        if invalid_group(group) is not None or self._too_many([group], credential) is not None:
            return None
        return SubscriptionGroupConfig(group_name=group)

    def create_missing(self, groups: Iterable[str], credential: str) -> str | None:
        """Make those that do not exist, with one write, where autoCreateSubscriptionGroup allows it.

        Returns why not, when that would be more groups than a broker, or this access key, may have made so. Raises StoreError
        when they cannot be written, QuotaReached when they are more than a quota allows.
        """
        if not self._config.auto_create_subscription_group:
            return None
        missing = [
            group for group in dict.fromkeys(groups) if group not in self._table and invalid_group(group) is None
        ]
        if not missing:
            return None
        remark = self._too_many(missing, credential)
        if remark is None:
            self.put_all(SubscriptionGroupConfig(group_name=group) for group in missing)
            self._made_by[credential] = self._made_by.get(credential, 0) + len(missing)
            logger.info("%d subscription groups created on first use", len(missing))
        return remark

    def _too_many(self, missing: Sequence[str], credential: str) -> str | None:
        if len(self._table) + len(missing) > AUTO_CREATED_GROUPS_MAX:
            return f"this broker has {len(self._table)} groups, at most {AUTO_CREATED_GROUPS_MAX} are made on first use"
        made = self._made_by.get(credential, 0) + len(missing)
        if made > AUTO_CREATED_GROUPS_OF_KEY_MAX:
            return f"this access key would make its {made}th group, at most {AUTO_CREATED_GROUPS_OF_KEY_MAX} are made on first use"
        return None

    def to_wrapper(self) -> SubscriptionGroupWrapper:
        """The table as it is answered and persisted; a copy."""
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self._table),
            forbidden_table={group: dict(topics) for group, topics in self._forbidden.items()},
            data_version=self.data_version,
        )

    def put(self, config: SubscriptionGroupConfig) -> bool:
        """Makes or replaces one group; returns whether anything changed. Raises StoreError when it is not written."""
        return self.put_all([config])

    def put_all(self, configs: Iterable[SubscriptionGroupConfig]) -> bool:
        """The same for several, with one write."""
        table = dict(self._table)
        for config in configs:
            known = self._table.get(config.group_name)
            attributes = merge_group_attributes({} if known is None else known.attributes, config.attributes)
            table[config.group_name] = msgspec.structs.replace(config, attributes=attributes)
        if table == self._table:
            return False
        remark = self._over_quota(table)
        if remark is not None:
            raise QuotaReached(remark)
        changed = {name: config for name, config in table.items() if self._table.get(name) != config}
        self._become(table, MetadataRecord(groups=changed))
        return True

    def usage(self) -> list[Usage]:
        """Its quota, with its use, where it has a limit. The groups that each broker has are not counted."""
        return self._usage(self._table)

    def _usage(self, table: Mapping[str, SubscriptionGroupConfig]) -> list[Usage]:
        limit = self._config.quota_groups
        return [Usage("quotaGroups", "", len(table) - len(_SYSTEM_GROUPS), limit)] if limit else []

    def _over_quota(self, table: Mapping[str, SubscriptionGroupConfig]) -> str | None:
        """Why the table may not become `table`, None when it may. What was there before a quota was lowered may stay."""
        for use in self._usage(table):
            if use.used > max(use.limit, len(self._table) - len(_SYSTEM_GROUPS)):
                return (
                    f"the broker would have {use.used} consumer groups, its quota {use.quota} is {use.limit}."
                    " Delete those that are not needed, or ask for more"
                )
        for name, config in table.items():
            size = 0 if self._table.get(name) is config else len(config.to_json())
            if size > _GROUP_MAX_BYTES:
                return f"group {name} would have {size} bytes of settings: at most {_GROUP_MAX_BYTES} are allowed"
        return None

    def delete(self, group: str) -> bool:
        """Forgets a group; returns whether it was there."""
        table = dict(self._table)
        if table.pop(group, None) is None:
            return False
        self._become(table, MetadataRecord(deleted_groups=[group]))
        self._forbidden.pop(group, None)
        return True

    def apply(self, record: MetadataRecord) -> None:
        """Take over what a record of the log says; `finish_applying` when all are applied."""
        self._begin_applying()
        if record.is_base:
            self._table = dict(record.groups)
            self._forbidden = {group: dict(topics) for group, topics in record.forbidden.items()}
        else:
            self._table.update(record.groups)
            for group in record.deleted_groups:
                self._table.pop(group, None)
                self._forbidden.pop(group, None)

    def _file_content(self) -> bytes:
        table = self.to_wrapper()
        return SubscriptionGroupFile(
            subscription_group_table=table.subscription_group_table,
            forbidden_table=table.forbidden_table,
            data_version=table.data_version,
            in_log=True,
        ).to_json()


def merge_group_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Attributes after `changes`, whose names may carry RocketMQ's + (set) or - (remove) in front."""
    merged = dict(current)
    for name, value in changes.items():
        if name.startswith("-"):
            merged.pop(name[1:], None)
        else:
            merged[name.removeprefix("+")] = value
    return merged


def invalid_group_config(config: SubscriptionGroupConfig) -> str | None:
    """Why this group cannot be made, as a remark; None when it can."""
    remark = invalid_group(config.group_name)
    if remark is not None:
        return remark
    if not 0 <= config.retry_queue_nums <= 1024:
        return f"retryQueueNums is {config.retry_queue_nums}: allowed is 0 (no retries) to 1024"
    if config.retry_max_times < -1:
        return f"retryMaxTimes is {config.retry_max_times}: allowed is -1 and above"
    return None
