"""Administration of brokers and name servers: what they report, their configuration, accounts, write permission, KV."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from highwater._admin_base import AdminBase, gather
from highwater._admin_models import AclAccount
from highwater._edge import read_body, read_header
from highwater.errors import ProtocolError
from mqwire import bodies
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_broker import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from mqwire.headers_namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


class BrokerAdmin(AdminBase):
    """Brokers and name servers."""

    async def broker_runtime_info(self, address: str) -> dict[str, str]:
        """What a broker reports of itself (brokerVersionDesc, putTps, bootTimestamp …), in its own words."""
        response = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(read_body(response, bodies.KVTable).table.items()))

    async def broker_config(self, address: str) -> dict[str, str]:
        """A broker's configuration, every key with its value in force."""
        response = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        return _parse_properties(bytes(response.body))

    async def update_broker_config(self, address: str, properties: Mapping[str, str]) -> None:
        """Change keys of a running broker; it refuses those that can't be changed so."""
        body = "".join(f"{name}={value}\n" for name, value in properties.items()).encode()
        await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Take a broker group out of writing: clients send elsewhere, reading goes on. Returns how many topics it had.

        Done on every name server; it lasts until the broker registers again or add_write_perm().
        """
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        responses = await self._client.ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(read_header(one, WipeWritePermOfBrokerResponseHeader).wipe_topic_count for one in responses)

    async def add_write_perm(self, broker_name: str) -> int:
        """The inverse of wipe_write_perm()."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        responses = await self._client.ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(read_header(one, AddWritePermOfBrokerResponseHeader).add_topic_count for one in responses)

    # -- the name servers' keys and values

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value on every name server."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._client.ask_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv_config(self, namespace: str, key: str) -> str | None:
        """A value from one name server; None if there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        response = await self._client.ask_name_server(
            RequestCode.GET_KV_CONFIG, header, accept=(ResponseCode.QUERY_NOT_FOUND,)
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read_header(response, GetKVConfigResponseHeader).value

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Forget a value on every name server."""
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self._client.ask_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """All values of a namespace from one name server; empty if there is none."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        response = await self._client.ask_name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE, header, accept=(ResponseCode.QUERY_NOT_FOUND,)
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        return dict(sorted(read_body(response, bodies.KVTable).table.items()))

    # -- accounts

    async def upsert_acl_account(self, address_or_cluster: str, account: AclAccount) -> tuple[str, ...]:
        """Create or replace an account on one broker, or on every master of a cluster; returns the addresses."""
        header = CreateAccessConfigRequestHeader(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address or None,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=_join_perms(account.topic_perms),
            group_perms=_join_perms(account.group_perms),
        )
        addresses = await self._masters_of(address_or_cluster)
        await gather(partial(self._ask, one, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header) for one in addresses)
        return addresses

    async def delete_acl_account(self, access_key: str, address_or_cluster: str | None = None) -> tuple[str, ...]:
        """Delete an account from one broker, from every master of a cluster, or from every master there is."""
        header = DeleteAccessConfigRequestHeader(access_key=access_key)
        addresses = await self._masters_of(address_or_cluster)
        await gather(partial(self._ask, one, RequestCode.DELETE_ACL_CONFIG, header) for one in addresses)
        return addresses


def _join_perms(perms: Mapping[str, str]) -> str | None:
    return ",".join(f"{name}={perm}" for name, perm in perms.items()) or None


def _parse_properties(text: bytes) -> dict[str, str]:
    """The lines `key=value` that a broker writes its configuration in (MixAll.properties2String)."""
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ProtocolError("the broker's configuration is not UTF-8") from error
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in sorted(pairs)}
