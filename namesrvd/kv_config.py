"""KVConfigManager: small settings by namespace and key, kept in kvConfig.json across restarts.

The file is RocketMQ's own: {"configTable":{"NAMESPACE":{"key":"value"}}}. It is replaced as a whole (temporary file,
fsync, rename, fsync of the folder), so that a crash leaves the old content or the new one. A file that is there but
can't be read stops the start: an empty table would silently undo the order of ordered topics.

Source: KVConfigManager, KVConfigSerializeWrapper, NamesrvUtil.
"""

from __future__ import annotations

import os
from typing import Final

from mqwire.bodies import KVTable
from mqwire.bodies.base import Body
from mqwire.errors import RemoteProtocolError

# Which queues of an ordered topic there are on which broker: in routes when orderMessageEnable is on.
NAMESPACE_ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
# Peers may not make this process hold arbitrary amounts.
MAX_TOTAL_CHARACTERS: Final = 4 * 1024 * 1024


class KVConfigError(Exception):
    """The file cannot be read. The text names it and the reason."""


class KVConfigFull(Exception):
    """No more may be stored."""


class KVConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """The file's content. Source: KVConfigSerializeWrapper."""

    config_table: dict[str, dict[str, str]] = {}


class KVConfigManager:
    """The table; the caller persists `encode()` with `write_durably` after each change."""

    def __init__(self, content: KVConfigSerializeWrapper | None = None) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self._total_characters = 0
        if content is not None:
            for namespace, values in content.config_table.items():
                for key, value in values.items():
                    self.put(namespace, key, value)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value. Raises KVConfigFull."""
        values = self._table.get(namespace, {})
        former = values.get(key)
        growth = len(value) - len(former) if former is not None else len(namespace) + len(key) + len(value)
        if self._total_characters + growth > MAX_TOTAL_CHARACTERS:
            raise KVConfigFull(f"the KV configuration is full: {MAX_TOTAL_CHARACTERS} characters are kept at most")
        self._total_characters += growth
        self._table.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """One value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Forget one value; False when it wasn't there."""
        values = self._table.get(namespace)
        if values is None or key not in values:
            return False
        self._total_characters -= len(namespace) + len(key) + len(values.pop(key))
        if not values:
            del self._table[namespace]
        return True

    def list_by_namespace(self, namespace: str) -> KVTable | None:
        """All values of a namespace, or None when it has none."""
        values = self._table.get(namespace)
        return None if values is None else KVTable(table=dict(values))

    def encode(self) -> bytes:
        """The file's bytes."""
        return KVConfigSerializeWrapper(config_table=self._table).to_json()


def load(path: str) -> KVConfigManager:
    """The table from a file, empty when there is none. Raises KVConfigError."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return KVConfigManager()
    except OSError as error:
        raise KVConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return KVConfigManager(KVConfigSerializeWrapper.from_json(content))
    except (RemoteProtocolError, KVConfigFull) as error:
        raise KVConfigError(f"{path} is damaged: {error}; restore it from a backup, or move it away") from error


def write_durably(path: str, content: bytes) -> None:
    """Replace a file's content; after a crash at any step it holds the old or the new content whole. Raises OSError."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
