"""Every page answers, in each state that it can be in, without a cluster that answers."""

import pytest
from django.test import Client

from controlplane.clusters.models import ClusterState, OperationState
from controlplane.topics.models import TopicState
from tests.console.world import World, make_cluster, make_operation, make_topic


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/login/", "/signup/", "/password/reset/"])
def test_a_stranger_can_open(client: Client, path: str) -> None:
    assert client.get(path).status_code == 200


def test_every_page_of_a_tenant_answers(world: World) -> None:
    make_topic(world.cluster, "payments")
    client = world.client(world.alice)
    for path in (
        "",
        "new-cluster/",
        "members/",
        "tokens/",
        "clusters/orders/",
        "clusters/orders/connect/",
        "clusters/orders/figures/",
        "clusters/orders/curves/?span=24h",
        "clusters/orders/health/",
        "clusters/orders/settings/",
        "clusters/orders/credentials/",
        "clusters/orders/topics/",
        "clusters/orders/new-topic/",
        "clusters/orders/topics/payments/",
        "clusters/orders/topics/payments/delete/",
    ):
        assert client.get(world.path(path)).status_code == 200, path


def test_the_page_of_a_single_broker_says_what_an_acknowledgement_means(world: World) -> None:
    page = world.client(world.alice).get(world.cluster_path("")).content.decode()
    assert "SEND_OK means that the broker holds the message: one copy." in page


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "Give a key or a message id."),
        ("key=two+words", "A key holds no blanks: look for one at a time."),
        ("key=k&since=2026-02-01&until=2026-01-01", "This is before the beginning."),
        ("key=k&until=yesterday", "Use a date and time such as 2026-12-01 00:00."),
        (f"key={'k' * 256}", "at most 255 characters"),
    ],
)
@pytest.mark.parametrize("htmx", [False, True])
def test_a_search_that_can_find_nothing_says_so_beside_the_field(
    world: World, query: str, words: str, htmx: bool
) -> None:
    make_topic(world.cluster, "payments")
    headers = {"HX-Request": "true"} if htmx else {}
    answer = world.client(world.alice).get(
        world.cluster_path(f"topics/payments/messages/search/?{query}"), headers=headers
    )
    assert answer.status_code == 422
    page = answer.content.decode()
    assert words in page
    assert page.count('class="field__error"') == 1
    assert ("<html" in page) is not htmx


def test_a_search_without_an_answer_from_the_cluster_says_so_above_the_form(world: World) -> None:
    make_topic(world.cluster, "payments")
    answer = world.client(world.bob).get(world.cluster_path("topics/payments/messages/search/?key=k"))
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()


@pytest.mark.parametrize("state", list(ClusterState))
def test_a_cluster_in_any_state_has_a_page(world: World, state: ClusterState) -> None:
    make_cluster(world.tenant, "staging", state)
    expected = 404 if state == ClusterState.DELETED else 200
    assert world.client(world.alice).get(world.path("clusters/staging/")).status_code == expected


def test_a_topic_whose_creation_failed_shows_the_cause_and_offers_a_retry(world: World) -> None:
    topic = make_topic(world.cluster, "payments", TopicState.FAILED)
    topic.error = {"cause": "The broker said: disk full.", "hint": "Make room."}
    topic.save()
    page = world.client(world.alice).get(world.cluster_path("topics/payments/")).content.decode()
    assert "The broker said: disk full." in page
    assert "Make room." in page
    assert "Retry" in page


def test_a_topic_may_be_called_new_or_carry_percent_and_bar(world: World) -> None:
    client = world.client(world.alice)
    for name in ("new", "50%|half"):
        make_topic(world.cluster, name)
        listing = client.get(world.cluster_path("topics/"))
        address = next(part for part in listing.content.decode().split('"') if part.endswith(f"{_quoted(name)}/"))
        assert name in client.get(address).content.decode()


def _quoted(name: str) -> str:
    return name.replace("%", "%25").replace("|", "%7C")


def test_offsets_that_are_not_known_are_never_shown_as_zero(world: World) -> None:
    make_topic(world.cluster, "payments")
    page = world.client(world.alice).get(world.cluster_path("topics/payments/")).content.decode()
    assert "The offsets are not known." in page
    assert "0 messages" not in page


def test_a_cluster_that_was_never_sampled_is_not_called_healthy(world: World) -> None:
    world.cluster.name_servers.update(health="unknown", sampled_at=None)
    page = world.client(world.alice).get(world.cluster_path("health/")).content.decode()
    assert "Its health is not known yet." in page


def test_a_daemon_that_is_down_is_named_in_the_health_sentence(world: World) -> None:
    replica = world.cluster.broker_groups.get().replicas.get()
    replica.health, replica.health_message = "down", "Broker broker-a does not answer."
    replica.save()
    page = world.client(world.alice).get(world.cluster_path()).content.decode()
    assert "Broker broker-a does not answer." in page
    assert 'data-health="bad"' in page


def test_times_are_utc_with_the_exact_moment_in_their_title(world: World) -> None:
    page = world.client(world.alice).get(world.path("members/")).content.decode()
    joined = world.tenant.memberships.get(user=world.bob).created_at
    assert f'title="{joined:%Y-%m-%d %H:%M:%S}.{joined.microsecond // 1000:03d} UTC"' in page


def test_a_failed_operation_shows_its_cause_and_offers_a_retry(world: World) -> None:
    operation = make_operation(make_cluster(world.tenant, "staging", ClusterState.FAILED), OperationState.FAILED, 2)
    page = world.client(world.alice).get(world.path(f"operations/{operation.pk}/")).content.decode()
    assert "Port 20017 is in use by another program." in page
    assert "Stop that program, then retry." in page
    assert f"/operations/{operation.pk}/retry/" in page


def test_retrying_a_failed_operation_starts_it_again(world: World) -> None:
    cluster = make_cluster(world.tenant, "staging", ClusterState.FAILED)
    operation = make_operation(cluster, OperationState.FAILED, 2)
    world.client(world.alice).post(world.path(f"operations/{operation.pk}/retry/"))
    operation.refresh_from_db()
    assert operation.state == OperationState.IN_PROGRESS


def test_only_an_operation_in_progress_asks_for_its_progress(world: World) -> None:
    for state, slug in ((OperationState.IN_PROGRESS, "one"), (OperationState.COMPLETED, "two")):
        operation = make_operation(make_cluster(world.tenant, slug), state, 3)
        part = world.client(world.alice).get(world.path(f"operations/{operation.pk}/progress/")).content.decode()
        polls = "data-hx-get" in part
        assert polls == (state == OperationState.IN_PROGRESS)
        assert f'data-state="{state}"' in part
        assert f'aria-busy="{str(polls).lower()}"' in part


def test_no_page_carries_an_inline_script_or_style(world: World) -> None:
    make_topic(world.cluster, "payments")
    client = world.client(world.alice)
    for path in ("", "clusters/orders/", "clusters/orders/connect/", "clusters/orders/topics/payments/", "tokens/"):
        response = client.get(world.path(path))
        page = response.content.decode()
        assert "<style" not in page
        assert " style=" not in page
        assert "javascript:" not in page
        assert all("src=" in tag.split(">")[0] for tag in page.split("<script")[1:])
        assert "unsafe" not in response.headers["Content-Security-Policy"]
