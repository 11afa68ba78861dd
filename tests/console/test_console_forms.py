"""What the forms accept, and where their errors appear."""

import re

from django.test import Client

from controlplane.accounts.models import ApiToken
from controlplane.clusters.models import ClusterState, OperationType
from controlplane.tenants.models import Role, Tenant
from tests.console.world import World


def _error_of(page: str, field: str) -> str:
    """The text of the error beside a field."""
    match = re.search(rf'id="id_{field}_error">(.*?)</div>', page, re.DOTALL)
    assert match is not None, f"no error beside {field}"
    return re.sub(r"<[^>]*>", "", match[1]).strip()


def test_signing_up_leads_to_a_first_tenant(client: Client, db: None) -> None:
    response = client.post(
        "/signup/",
        {"email": "dana@example.com", "password1": "correct-horse-7", "password2": "correct-horse-7"},
        follow=True,
    )
    assert response.redirect_chain[-1][0] == "/tenants/new/"
    assert "First, a tenant" in response.content.decode()


def test_a_tenant_gets_its_short_name_from_its_name(world: World) -> None:
    response = world.client(world.alice).post("/tenants/new/", {"name": "Blue Ocean", "slug": ""})
    assert response.headers["Location"] == "/t/blue-ocean/"
    assert Tenant.objects.get(slug="blue-ocean").memberships.get().role == Role.OWNER


def test_a_short_name_that_is_taken_is_reported_beside_the_field(world: World) -> None:
    response = world.client(world.alice).post("/tenants/new/", {"name": "Mine", "slug": "globex"})
    assert response.status_code == 422
    assert _error_of(response.content.decode(), "slug") == "The name `globex` is taken."


def test_creating_a_cluster_leads_to_its_progress(world: World) -> None:
    response = world.client(world.alice).post(
        world.path("new-cluster/"), {"slug": "payments", "flush_disk_type": "SYNC_FLUSH"}
    )
    cluster = world.tenant.clusters.get(slug="payments")
    operation = cluster.operations.get(type=OperationType.CLUSTER_CREATE)
    assert cluster.flush_disk_type == "SYNC_FLUSH"
    assert response.headers["Location"] == world.path(f"operations/{operation.pk}/")


def test_a_cluster_name_that_breaks_the_rule_is_reported_beside_the_field(world: World) -> None:
    response = world.client(world.alice).post(
        world.path("new-cluster/"), {"slug": "Not A Slug", "flush_disk_type": "ASYNC_FLUSH"}
    )
    page = response.content.decode()
    assert response.status_code == 422
    assert "lower-case letters" in _error_of(page, "slug")
    assert 'aria-invalid="true"' in page
    assert 'value="Not A Slug"' in page


def test_a_topic_name_that_rocketmq_refuses_is_reported_beside_the_field(world: World) -> None:
    client = world.client(world.alice)
    for name, words in (
        ("with blank", "Use letters, digits and the characters % | _ - only."),
        ("TBW102", "`TBW102` is a name that RocketMQ keeps for itself."),
        ("x" * 128, "A topic&#x27;s name has at most 127 characters."),
        ("", "This field is required."),
    ):
        form = {"name": name, "message_type": "NORMAL", "read_queue_nums": 8, "write_queue_nums": 8}
        response = client.post(world.cluster_path("new-topic/"), form)
        assert response.status_code == 422
        assert _error_of(response.content.decode(), "name") == words


def test_a_queue_count_out_of_range_is_reported_beside_the_field(world: World) -> None:
    form = {"name": "payments", "message_type": "NORMAL", "read_queue_nums": 0, "write_queue_nums": 8}
    response = world.client(world.alice).post(world.cluster_path("new-topic/"), form)
    assert _error_of(response.content.decode(), "read_queue_nums") == "Use 1 to 128 queues."


def test_a_cluster_is_deleted_only_after_its_name_was_typed(world: World) -> None:
    client = world.client(world.alice)
    refused = client.post(world.cluster_path("settings/"), {"typed": "order"})
    assert _error_of(refused.content.decode(), "typed") == "This is not orders. Nothing was deleted."
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.RUNNING
    client.post(world.cluster_path("settings/"), {"typed": "orders"})
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.DELETING


def test_a_property_without_an_equals_sign_is_reported_beside_the_field(world: World) -> None:
    from tests.console.world import make_topic

    make_topic(world.cluster, "payments")
    response = world.client(world.alice).post(
        world.cluster_path("topics/payments/send/"),
        {"body": "x", "properties": "colour=blue\nsize"},
        headers={"HX-Request": "true"},
    )
    assert response.status_code == 422
    assert _error_of(response.content.decode(), "properties") == "“size” is not name=value."


def test_a_message_to_a_cluster_that_does_not_answer_says_so_and_keeps_what_was_typed(world: World) -> None:
    from tests.console.world import make_topic

    make_topic(world.cluster, "payments")
    response = world.client(world.alice).post(
        world.cluster_path("topics/payments/send/"), {"body": "precious words"}, headers={"HX-Request": "true"}
    )
    page = response.content.decode()
    assert "The cluster does not answer" in page
    assert "precious words" in page


def test_an_api_token_is_shown_once(world: World) -> None:
    client = world.client(world.alice)
    form = {"name": "deploy", "role": "developer", "scopes": ["read", "messages"], "life_days": "30"}
    response = client.post(world.path("tokens/"), form)
    page = response.content.decode()
    shown = re.findall(r"hw_test_[0-9a-f]{12}_[A-Za-z0-9_-]{20,}", page)
    token = ApiToken.objects.get(name="deploy")
    assert len(set(shown)) == 1
    assert response.headers["Cache-Control"] == "no-store, private"
    assert (token.role, token.scopes, token.user) == ("developer", ["messages", "read"], world.alice)
    assert shown[0] not in client.get(world.path("tokens/")).content.decode()


def test_a_revoked_token_leaves_the_list(world: World) -> None:
    client = world.client(world.alice)
    client.post(world.path("tokens/"), {"name": "deploy", "role": "developer", "scopes": ["read"], "life_days": "0"})
    token = ApiToken.objects.get(name="deploy")
    client.post(world.path(f"tokens/{token.pk}/revoke/"))
    assert not ApiToken.objects.get(pk=token.pk).is_live
    assert str(token.public_id) not in client.get(world.path("tokens/")).content.decode()


def test_a_member_can_not_be_invited_again_and_the_page_says_why(world: World) -> None:
    response = world.client(world.alice).post(world.path("members/"), {"email": "bob@example.com", "role": "viewer"})
    assert _error_of(response.content.decode(), "email") == "bob@example.com is a member already."


def test_a_secret_is_shown_only_on_demand_and_each_look_is_recorded(world: World) -> None:
    from controlplane.clusters.secrets import secret_decrypt
    from controlplane.common.models import AuditEvent

    client = world.client(world.bob)
    secret = secret_decrypt(world.cluster.credentials.get(is_control=False).secret_encrypted)
    assert secret not in client.get(world.cluster_path("connect/")).content.decode()
    assert not AuditEvent.objects.filter(action="credential.reveal").exists()
    response = client.post(world.cluster_path("connect/reveal/"))
    # In the field, and in the programs of four languages.
    assert response.content.decode().count(secret) == 5
    assert response.headers["Cache-Control"] == "no-store, private"
    assert AuditEvent.objects.get(action="credential.reveal").actor == "bob@example.com"


def test_the_theme_is_remembered_without_scripts(client: Client, db: None) -> None:
    response = client.post("/theme/", {"theme": "dark", "next": "/login/"}, follow=True)
    assert response.redirect_chain == [("/login/", 302)]
    assert 'data-theme="dark"' in response.content.decode()


def test_the_theme_switch_does_not_lead_to_other_sites(client: Client, db: None) -> None:
    response = client.post("/theme/", {"theme": "dark", "next": "https://example.org/"})
    assert response.headers["Location"] == "/"
