"""Input that no one types by mistake: each form says what is wrong with it beside the field, and keeps it."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.alerts.models import AlertChannel
from controlplane.clusters.configuration import configuration_get
from controlplane.clusters.models import ConfigurationChange
from controlplane.tenants.models import Tenant
from tests.console.world import World, make_topic

pytestmark = pytest.mark.django_db

# Python makes no number of more than 4,300 digits.
DIGITS = "9" * 5000
AS_CODE = {"X-Wants": "curl"}


@pytest.fixture
def alice(world: World) -> Client:
    return world.client(world.alice)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("lag_messages", str(2 * 10**15), "Use a number from 0 to 1000000000000000."),
        ("growth_per_second", "200000000", "Use a number from 0 to 100000000."),
    ],
)
def test_a_threshold_above_the_highest_is_refused_beside_its_field(
    alice: Client, world: World, field: str, value: str, said: str
) -> None:
    typed = {"lag_messages": "5", "growth_per_second": "1", field: value}
    answer = alice.post(world.cluster_path("lag/billing/thresholds/"), typed)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert f'id="id_{field}_error"' in page
    assert said in page
    assert f'value="{value}"' in page


def test_a_life_of_thousands_of_digits_is_no_choice(alice: Client, world: World) -> None:
    typed = {"name": "ci", "role": "viewer", "scopes": ["read"], "life_days": DIGITS}
    assert alice.post(world.path("tokens/"), typed).status_code == 422
    assert alice.post(world.path("tokens/"), typed, headers=AS_CODE).status_code == 200


def test_a_position_of_thousands_of_digits_is_left_out_of_the_code(alice: Client, world: World) -> None:
    address = world.cluster_path("diverged/broker-a/0/1-2/")
    answer = alice.post(address, {"which": "selected", "position": ["7", DIGITS]}, headers=AS_CODE)
    assert answer.status_code == 200
    assert DIGITS not in answer.json()["curl"]


@pytest.mark.parametrize("moment", ["0001-01-01 00:00", "9999-12-31 23:59"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai"])
def test_a_moment_at_the_calendars_ends_is_refused_beside_its_field(
    alice: Client, world: World, moment: str, zone: str
) -> None:
    """In the tenant's zone there is no such time."""
    make_topic(world.cluster, "payments")
    Tenant.objects.filter(pk=world.tenant.pk).update(time_zone=zone)
    for address in (
        world.path(f"audit/?until={moment}"),
        world.cluster_path(f"topics/payments/?from={moment}"),
        world.cluster_path(f"topics/payments/messages/search/?key=k&since={moment}"),
    ):
        page = alice.get(address).content.decode()
        assert "Use a year from 2 to 9998." in page
        assert f'value="{moment}"' in page


@pytest.mark.parametrize("typed", ["2026-12-01 25:00", "9999-12-31 23:59"])
def test_a_search_that_can_not_be_made_is_no_empty_file(alice: Client, world: World, typed: str) -> None:
    """It would say that nothing was done."""
    answer = alice.get(world.path("audit/csv/"), {"until": typed})
    assert answer.status_code == 422
    assert answer.headers["Content-Type"].startswith("text/html")
    assert f'value="{typed}"' in answer.content.decode()


@pytest.mark.parametrize("name", ["put_back", "version"])
def test_a_number_that_no_change_has_is_refused_by_the_configuration(alice: Client, world: World, name: str) -> None:
    wanted = {state.key.name: state.wanted for state in configuration_get(world.cluster).keys}
    typed = {**wanted, "fileReservedTime": "96", "version": "0", name: "9" * 12, "act": "save"}
    answer = alice.post(
        world.cluster_path("settings/configuration/"), {k: v for k, v in typed.items() if v is not False}
    )
    assert answer.status_code == 422
    assert not ConfigurationChange.objects.exists()


@pytest.mark.parametrize(
    ("name", "slug"),
    [("a" * 38 + " team", "a" * 38), ("my_first__team", "my-first-team"), ("Émile & fils", "emile-fils")],
)
def test_a_short_name_that_is_left_empty_is_made_from_the_name(alice: Client, name: str, slug: str) -> None:
    """As the form promises, also where it is cut after a blank."""
    assert alice.post("/tenants/new/", {"name": name, "slug": ""}).headers.get("Location") == f"/t/{slug}/"


def test_a_property_that_is_typed_twice_is_not_sent_once(alice: Client, world: World) -> None:
    make_topic(world.cluster, "payments")
    typed = {"body": "paid", "properties": "colour=blue\nsize=9\n colour = red"}
    answer = alice.post(world.cluster_path("topics/payments/send/"), typed, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert "colour is there twice." in answer.content.decode()


CHANNEL = {"kind": "webhook", "name": "pager", "address": "https://example.com/hook"}


@pytest.mark.parametrize("name", ["pager\u202e", "pa\u200bger", "pager\x07"])
def test_a_channels_name_shows_all_that_it_is(alice: Client, world: World, name: str) -> None:
    answer = alice.post(world.path("alerts/channels/"), {**CHANNEL, "name": name})
    assert answer.status_code == 422
    assert "can&#x27;t be seen in a name. Leave it out." in answer.content.decode()


def test_who_reads_chinese_is_told_so_what_a_channel_can_not_do(alice: Client, world: World) -> None:
    alice.cookies["language"] = "zh-hans"
    page = alice.post(world.path("alerts/channels/"), {**CHANNEL, "kind": "slack", "secret": "s"}).content.decode()
    assert "signs no messages" not in page
    assert "Slack 不对消息签名。" in page
    email = AlertChannel.objects.get(tenant=world.tenant, kind="email")
    switched = alice.post(world.path(f"alerts/channels/{email.pk}/"), {"act": "off"}, follow=True).content.decode()
    assert "E-mail to owners" not in switched


@pytest.mark.parametrize("odd", ["a%3Fb", "a%23b", "%25"])
def test_a_place_that_no_broker_can_have_is_not_found(alice: Client, world: World, odd: str) -> None:
    make_topic(world.cluster, "payments")
    place = world.cluster_path(f"topics/payments/messages/{odd}/0/0/consume/")
    assert [alice.get(place).status_code, alice.post(place).status_code] == [404, 404]
    code = alice.post(world.cluster_path(f"diverged/{odd}/0/{odd}/"), {"position": "1"}, headers=AS_CODE)
    assert code.status_code == 200
    assert f"/diverged/{odd}/0/{odd}/resends/" in code.json()["curl"]
