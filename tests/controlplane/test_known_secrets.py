"""What outlasts a member who leaves or loses rights: it is listed, and ends in the same step where the remover wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.authentication import token_authenticate
from controlplane.accounts.models import ApiToken, User
from controlplane.alerts.channels import channel_create
from controlplane.alerts.models import AlertChannel
from controlplane.clusters import credential_services
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import Permissions, credential_create, credential_reveal
from controlplane.clusters.models import Cluster, Credential, CredentialRole
from controlplane.common.errors import BrokerUnreachable, Conflict, InvalidInput, NotAllowed
from controlplane.common.models import AuditEvent
from controlplane.tenants.known_secrets import known_secrets
from controlplane.tenants.models import Membership, Role
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.services import member_secrets, membership_remove, membership_update
from controlplane.tenants.token_services import IssuedToken, api_token_issue
from controlplane.topics.masking_rules import masking_rule_create
from tests.controlplane.world import SYSTEM, Json, World

Distributed = Callable[[Cluster], Distribution]


@pytest.fixture(autouse=True)
def _confirming_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    distributes(monkeypatch)


def distributes(monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...] = ()) -> None:
    monkeypatch.setattr(credential_services, "accounts_distribute", lambda _cluster: Distribution(1, missing))


def with_role(world: World, role: Role, user: User | None = None) -> Membership:
    membership = (user or world.bob).memberships.get()
    membership.role = role
    membership.save()
    return membership


def account_token(world: World, actor: Any, role: Role = Role.OPERATOR) -> IssuedToken:
    account = service_account_create(actor=world.alice, tenant=world.acme, name=f"deploy {role}", role=role)
    return api_token_issue(actor=actor, tenant=world.acme, name="deploy", role=role, service_account=account)


def key_pair(world: World, actor: Any, role: CredentialRole = CredentialRole.APP) -> Credential:
    return credential_create(
        actor=actor, cluster=world.cluster, name=f"{role} key", role=role, permissions=Permissions()
    ).credential


def webhook(world: World, actor: Any) -> AlertChannel:
    return channel_create(
        actor=actor, tenant=world.acme, kind="webhook", name="pager", address="https://hooks.example.com/secret-path"
    )[0]


def names(world: World, user: User, still: str | None = None) -> list[str]:
    return [secret.name for secret in known_secrets(world.acme, user, still)]


def test_what_a_member_made_or_has_seen_is_listed(world: World) -> None:
    with_role(world, Role.ADMIN)
    account_token(world, world.bob)
    key_pair(world, world.bob)
    webhook(world, world.bob)
    seen = world.cluster.credentials.get(is_control=False, name="default")
    credential_reveal(actor=world.bob, credential=seen)
    found = known_secrets(world.acme, world.bob)
    assert [(one.kind, one.name, one.place, one.made) for one in found] == [
        ("alert_channel", "pager", "https://hooks.example.com/…", True),
        ("key_pair", "app key", "orders", True),
        ("key_pair", "default", "orders", False),
        ("service_account_token", "deploy", "deploy operator", True),
    ]
    assert known_secrets(world.acme, world.alice) == []
    assert known_secrets(world.globex, world.bob) == []


def test_a_key_that_reads_past_masking_rules_is_more_than_a_developer_may_keep(world: World) -> None:
    with_role(world, Role.ADMIN)
    credential_reveal(actor=world.bob, credential=world.cluster.credentials.get(is_control=False, name="default"))
    assert names(world, world.bob, Role.DEVELOPER) == []
    masking_rule_create(
        actor=world.alice, tenant=world.acme, topic="*", part="property", pattern="KEYS", visible_from="operator"
    )
    assert names(world, world.bob, Role.DEVELOPER) == ["default"]


def test_what_came_by_a_token_of_theirs_counts_as_well(world: World) -> None:
    with_role(world, Role.ADMIN)
    program = TokenActor(api_token_issue(actor=world.bob, tenant=world.acme, name="script", role=Role.ADMIN).token)
    child = account_token(world, program)
    grandchild = api_token_issue(actor=TokenActor(child.token), tenant=world.acme, name="next", role=Role.VIEWER)
    assert {child.token.issuer, grandchild.token.issuer} == {world.bob}
    key_pair(world, program)
    assert sorted(names(world, world.bob)) == ["app key", "deploy", "next"]


def test_what_the_remover_names_ends_in_the_same_step(world: World) -> None:
    membership = with_role(world, Role.ADMIN)
    token, kept = account_token(world, world.bob), account_token(world, world.bob, Role.VIEWER)
    pair, channel = key_pair(world, world.bob), webhook(world, world.bob)
    membership_remove(
        actor=world.alice, membership=membership, revoke=[str(token.token.pk), str(pair.pk), str(channel.pk)]
    )
    assert [token_authenticate(one.text) is not None for one in (token, kept)] == [False, True]
    assert not Credential.objects.filter(pk=pair.pk).exists()
    assert not AlertChannel.objects.filter(pk=channel.pk).exists()
    events = AuditEvent.objects.filter(actor=world.alice.email, tenant_id=world.acme.pk).values_list(
        "action", flat=True
    )
    assert {"token.revoke", "credential.delete", "alert_channel.delete", "member.remove"} <= set(events)


def test_all_of_them_end_by_one_word(world: World) -> None:
    membership = with_role(world, Role.ADMIN)
    account_token(world, world.bob)
    key_pair(world, world.bob)
    membership_remove(actor=world.alice, membership=membership, revoke=["all"])
    assert names(world, world.bob) == []


def test_a_person_who_left_is_known_as_the_issuer(world: World, api: Callable[..., Json]) -> None:
    membership = with_role(world, Role.ADMIN)
    token = account_token(world, world.bob)
    client = api(token=api_token_issue(actor=SYSTEM, tenant=world.acme, name="root", role=Role.ADMIN).text)
    address = f"/api/v1/tenants/acme/tokens/{token.token.pk}/"
    seen = client.call("GET", address).json()
    assert (seen["issuer"], seen["issuer_is_member"]) == ("bob@example.com", True)
    membership_remove(actor=world.alice, membership=membership)
    seen = client.call("GET", address).json()
    assert (seen["issuer"], seen["issuer_is_member"]) == ("bob@example.com", False)
    world.bob.delete()
    seen = client.call("GET", address).json()
    assert (seen["issuer"], seen["created_by"]) == (None, "bob@example.com")


def test_a_lower_role_offers_what_is_beyond_it(world: World) -> None:
    membership = with_role(world, Role.ADMIN)
    strong, weak = account_token(world, world.bob), account_token(world, world.bob, Role.VIEWER)
    admin_pair = key_pair(world, world.bob, CredentialRole.ADMIN)
    key_pair(world, world.bob)
    webhook(world, world.bob)
    assert names(world, world.bob, Role.OPERATOR) == []
    assert names(world, world.bob, Role.DEVELOPER) == ["pager", "admin key", "deploy"]
    assert sorted(names(world, world.bob, Role.VIEWER)) == ["admin key", "app key", "deploy", "pager"]
    chosen = [str(strong.token.pk), str(admin_pair.pk)]
    membership_update(actor=world.alice, membership=membership, role=Role.DEVELOPER, revoke=chosen)
    assert [token_authenticate(one.text) is not None for one in (strong, weak)] == [False, True]
    assert names(world, world.bob, Role.DEVELOPER) == ["pager"]


def test_what_the_person_does_not_know_is_refused_and_nothing_changes(world: World) -> None:
    membership = with_role(world, Role.ADMIN)
    pair, token = key_pair(world, world.alice), account_token(world, world.bob)
    with pytest.raises(InvalidInput):
        membership_remove(actor=world.alice, membership=membership, revoke=[str(token.token.pk), str(pair.pk)])
    assert token_authenticate(token.text) is not None
    assert Membership.objects.filter(pk=membership.pk).exists()


def test_the_last_owner_loses_nothing(world: World) -> None:
    token = account_token(world, world.alice)
    with pytest.raises(Conflict):
        membership_remove(actor=world.alice, membership=world.alice.memberships.get(), revoke=["all"])
    assert token_authenticate(token.text) is not None


def test_who_leaves_revokes_no_more_than_their_role_may(world: World) -> None:
    membership = with_role(world, Role.DEVELOPER)
    credential_reveal(actor=world.bob, credential=world.cluster.credentials.get(is_control=False))
    with pytest.raises(NotAllowed):
        membership_remove(actor=world.bob, membership=membership, revoke=["all"])
    membership_remove(actor=world.bob, membership=membership)
    assert names(world, world.bob) == ["default"]


def test_a_token_without_the_scope_revokes_no_key(world: World) -> None:
    membership = with_role(world, Role.OPERATOR)
    key_pair(world, world.bob)
    token = api_token_issue(
        actor=SYSTEM, tenant=world.acme, name="members", role=Role.ADMIN, scopes=("read", "manage")
    ).token
    with pytest.raises(NotAllowed, match="scope"):
        membership_remove(actor=TokenActor(token), membership=membership, revoke=["all"])


def test_a_daemon_that_does_not_confirm_is_named_and_the_member_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = with_role(world, Role.OPERATOR)
    pair = key_pair(world, world.bob)
    distributes(monkeypatch, missing=("broker-a/0",))
    with pytest.raises(BrokerUnreachable, match="broker-a/0") as raised:
        membership_remove(actor=world.alice, membership=membership, revoke=["all"])
    assert raised.value.extra == {"missing_daemons": ["broker-a/0"]}
    assert not Membership.objects.filter(pk=membership.pk).exists()
    assert Credential.objects.get(pk=pair.pk).state == "deleting"


@pytest.mark.parametrize("state", ["suspending", "resuming", "deleting"])
def test_a_cluster_that_is_on_its_way_up_or_down_may_still_let_the_key_in(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    membership = with_role(world, Role.OPERATOR)
    key_pair(world, world.bob)
    distributes(monkeypatch, missing=("broker-a/0",))
    Cluster.objects.filter(pk=world.cluster.pk).update(state=state)
    with pytest.raises(BrokerUnreachable, match="broker-a/0"):
        membership_remove(actor=world.alice, membership=membership, revoke=["all"])


def test_a_token_that_has_expired_is_no_longer_listed(world: World) -> None:
    with_role(world, Role.ADMIN)
    token = account_token(world, world.bob)
    ApiToken.objects.filter(pk=token.token.pk).update(expires_at=timezone.now())
    assert names(world, world.bob) == []


def test_a_member_sees_their_own_list_and_not_others(world: World) -> None:
    assert member_secrets(actor=world.bob, membership=world.bob.memberships.get()) == []
    with pytest.raises(NotAllowed):
        member_secrets(actor=world.bob, membership=world.alice.memberships.get())


def test_the_api_lists_and_revokes(world: World, api: Callable[..., Json]) -> None:
    membership = with_role(world, Role.ADMIN)
    key_pair(world, world.bob)
    webhook(world, world.bob)
    client = api(token=api_token_issue(actor=SYSTEM, tenant=world.acme, name="root", role=Role.OWNER).text)
    address = f"/api/v1/tenants/acme/members/{membership.pk}/"
    listed = client.call("GET", f"{address}secrets/").json()["secrets"]
    assert [(one["kind"], one["name"]) for one in listed] == [("alert_channel", "pager"), ("key_pair", "app key")]
    assert client.call("GET", f"{address}secrets/?role=operator").json() == {"secrets": []}
    lowered = client.call("PATCH", address, {"role": "viewer", "revoke": [listed[0]["id"]]})
    assert (lowered.status_code, lowered.json()["role"]) == (200, "viewer")
    refused = client.call("DELETE", f"{address}?revoke={listed[0]['id']}")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "revoke")
    assert client.call("DELETE", f"{address}?revoke={listed[1]['id']}").status_code == 204
    assert not Credential.objects.filter(name="app key").exists()
