"""Plans, versions of prices and subscriptions: by the operators' API, and what the database itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from controlplane.accounts.models import User
from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.billing.models import Plan, Price, Subscription, Usage
from controlplane.billing.periods import hour_of
from controlplane.billing.plan_services import subscriptions_default
from controlplane.common.errors import InvalidInput
from controlplane.common.models import AuditEvent
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from spark_etl.jobs.counting import PRICES
from tests.controlplane.billing_world import LONG_AGO, make_plan, subscribe, use
from tests.controlplane.world import SYSTEM, Json, World

PLANS = "/api/v1/operator/plans/"
NEXT_HOUR = hour_of(datetime.now(UTC)) + timedelta(hours=2)
RATES = {"per_million_units": "41.5", "per_million_units_out": "20", "per_gib_month_stored": "0.1234567891"}


@pytest.fixture
def olga(world: World) -> User:
    """An operator of the platform, who is a member of no tenant."""
    return User.objects.create_user("olga@example.com", is_staff=True)


def version(begin: datetime, **values: Any) -> dict[str, Any]:
    return {**RATES, "valid_from": begin.isoformat(), **values}


def test_an_operator_makes_a_plan_and_its_versions(world: World, olga: User, api: Callable[..., Json]) -> None:
    client = api(olga)
    made = client.call("POST", PLANS, {"slug": "standard", "currency": "EUR"})
    assert (made.status_code, made.headers["Location"]) == (201, f"{PLANS}standard/")
    prices = f"{PLANS}standard/prices/"
    first = client.call("POST", prices, version(LONG_AGO, multipliers={"ordered": "1.5"}))
    assert first.status_code == 201, first.json()
    assert first.json()["multipliers"] == {"normal": "1", "ordered": "1.5", "delayed": "1", "transactional": "1"}
    assert first.json()["per_gib_month_stored"] == "0.1234567891"
    second = client.call("POST", prices, version(NEXT_HOUR))
    assert (second.status_code, second.json()["valid_to"]) == (201, None)
    newest, oldest = client.call("GET", prices).json()["results"]
    assert (newest["id"], oldest["id"]) == (second.json()["id"], first.json()["id"])
    assert oldest["valid_to"] == newest["valid_from"]


def test_a_version_between_two_ends_the_one_and_is_ended_by_the_other(olga: User, api: Callable[..., Json]) -> None:
    plan = make_plan()
    client = api(olga)
    later, between = NEXT_HOUR + timedelta(days=9), NEXT_HOUR
    for begin in (later, between):
        assert client.call("POST", f"{plan.path}prices/", version(begin)).status_code == 201
    ranges = list(Price.objects.order_by("valid_from").values_list("valid_from", "valid_to"))
    assert ranges == [(LONG_AGO, between), (between, later), (later, None)]


def test_an_hour_that_a_clock_ahead_was_charged_for_keeps_its_price(
    world: World, olga: User, api: Callable[..., Json]
) -> None:
    """Brokers' clocks may be ahead by a quarter of an hour: usage of the next hour is there before it begins."""
    plan = make_plan()
    use(world.cluster, NEXT_HOUR, "1", price=plan.prices.get())
    client = api(olga)
    answer = client.call("POST", f"{PLANS}standard/prices/", version(NEXT_HOUR))
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "valid_from")
    assert "prices that were charged don't change" in answer.json()["errors"][0]["message"]
    later = NEXT_HOUR + timedelta(hours=1)
    assert client.call("POST", f"{PLANS}standard/prices/", version(later)).status_code == 201


def test_a_version_that_has_not_begun_is_changed_or_removed(olga: User, api: Callable[..., Json]) -> None:
    plan = make_plan()
    client = api(olga)
    made = client.call("POST", f"{plan.path}prices/", version(NEXT_HOUR)).json()
    path = f"{plan.path}prices/{made['id']}/"
    changed = client.call("PUT", path, {**RATES, "per_million_units": "50"})
    assert (changed.status_code, Decimal(changed.json()["per_million_units"])) == (200, Decimal(50))
    assert client.call("DELETE", path).status_code == 204
    assert Price.objects.get().valid_to is None


def test_the_first_version_is_not_removed_from_under_those_who_have_the_plan_then(
    world: World, olga: User, api: Callable[..., Json]
) -> None:
    """Their usage would have no price, and none can be added for a time that is past."""
    plan = make_plan()
    later = NEXT_HOUR + timedelta(days=9)
    Price.objects.update(valid_from=NEXT_HOUR)
    client = api(olga)
    assert client.call("POST", f"{plan.path}prices/", version(later)).status_code == 201
    path = f"{plan.path}prices/{plan.prices.get(valid_from=NEXT_HOUR).pk}/"
    has = subscribe(world.acme, plan, NEXT_HOUR)
    answer = client.call("DELETE", path)
    assert (answer.status_code, answer.json()["code"]) == (409, "price_needed")
    Subscription.objects.filter(pk=has.pk).update(valid_from=later)
    assert client.call("DELETE", path).status_code == 204


def test_a_version_that_has_begun_is_neither_changed_nor_removed(olga: User, api: Callable[..., Json]) -> None:
    plan = make_plan()
    path = f"{plan.path}prices/{plan.prices.get().pk}/"
    for method, body in (("PUT", RATES), ("DELETE", None)):
        answer = api(olga).call(method, path, body)
        assert (answer.status_code, answer.json()["code"]) == (409, "price_used")
    assert plan.prices.get().per_million_units == 40


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"valid_from": (NEXT_HOUR + timedelta(minutes=30)).isoformat()}, "valid_from"),
        (
            {
                "valid_from": (datetime.now(UTC) - timedelta(days=3))
                .replace(minute=0, second=0, microsecond=0)
                .isoformat()
            },
            "valid_from",
        ),
        ({"valid_from": LONG_AGO.isoformat()}, "valid_from"),
        ({"per_million_units": "-1"}, "per_million_units"),
        ({"per_million_units": "1e20"}, "per_million_units"),
        ({"per_million_units": "NaN"}, "per_million_units"),
        ({"multipliers": {"priority": "2"}}, "multipliers"),
        ({"multipliers": {"ordered": "-2"}}, "multipliers"),
    ],
)
def test_a_bad_version_is_reported_beside_its_field(
    olga: User, api: Callable[..., Json], changes: dict[str, Any], field: str
) -> None:
    plan = make_plan()
    answer = api(olga).call("POST", f"{plan.path}prices/", version(NEXT_HOUR, **changes))
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"].split(".")[0] == field
    assert plan.prices.count() == 1


@pytest.mark.parametrize(
    "change", [{"per_million_units": 1}, {"currency": "USD"}, {"valid_from": LONG_AGO + timedelta(hours=1)}]
)
def test_the_database_refuses_to_change_a_price_that_usage_was_priced_with(
    world: World, change: dict[str, Any]
) -> None:
    price = make_plan().prices.get()
    use(world.cluster, datetime.now(UTC), "1", price=price)
    with pytest.raises(IntegrityError, match="usage was priced"), transaction.atomic():
        Price.objects.filter(pk=price.pk).update(**change)
    with pytest.raises(IntegrityError, match="usage was priced"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("delete from billing_price where id = %s", [price.pk])
    with pytest.raises(IntegrityError, match="usage was priced"), transaction.atomic():
        Price.objects.filter(pk=price.pk).update(valid_to=datetime.now(UTC) - timedelta(hours=2))
    Price.objects.filter(pk=price.pk).update(valid_to=NEXT_HOUR)  # to end it later is no change of what was charged


def test_the_database_refuses_versions_that_overlap(world: World) -> None:
    plan = make_plan()
    rates = {name: Decimal(value) for name, value in RATES.items()}
    with pytest.raises(IntegrityError, match="must not overlap"), transaction.atomic():
        Price.objects.create(plan=plan, valid_from=NEXT_HOUR, currency="EUR", **rates)
    Price.objects.create(plan=plan, valid_from=LONG_AGO - timedelta(days=1), valid_to=LONG_AGO, currency="EUR", **rates)


def test_the_database_refuses_subscriptions_that_overlap(world: World) -> None:
    plan = make_plan()
    subscribe(world.acme, plan)
    with pytest.raises(IntegrityError, match="must not overlap"), transaction.atomic():
        subscribe(world.acme, plan, NEXT_HOUR)
    subscribe(world.globex, plan, NEXT_HOUR)


def test_an_operator_moves_a_tenant_to_another_plan(world: World, olga: User, api: Callable[..., Json]) -> None:
    make_plan()
    make_plan("premium")
    client, path = api(olga), "/api/v1/operator/subscriptions/"
    first = {"tenant": "acme", "plan": "standard", "valid_from": LONG_AGO.isoformat()}
    assert client.call("POST", path, first).status_code == 201
    assert client.call("POST", path, {**first, "plan": "premium"}).json()["errors"][0]["field"] == "valid_from"
    moved = client.call("POST", path, {**first, "plan": "premium", "valid_from": NEXT_HOUR.isoformat()})
    assert moved.status_code == 201
    ranges = list(Subscription.objects.order_by("valid_from").values_list("plan__slug", "valid_from", "valid_to"))
    assert ranges == [("standard", LONG_AGO, NEXT_HOUR), ("premium", NEXT_HOUR, None)]
    ended = client.call("POST", path, {**first, "plan": None, "valid_from": NEXT_HOUR.isoformat()})
    assert ended.status_code == 204
    assert Subscription.objects.get().valid_to == NEXT_HOUR
    assert api(world.bob).call("GET", "/api/v1/tenants/acme/plan/").json()["plan"]["slug"] == "standard"


def test_the_highest_rate_is_one_that_every_tenants_usage_can_still_be_priced_beside(
    olga: User, api: Callable[..., Json]
) -> None:
    prices = f"{make_plan().path}prices/"
    answer = api(olga).call("POST", prices, version(NEXT_HOUR, per_million_units="100000000"))
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "per_million_units")
    highest = version(NEXT_HOUR, per_million_units="99999999", per_gib_month_stored="99999998.9999999999")
    assert api(olga).call("POST", prices, highest).status_code == 201
    with connection.cursor() as cursor:
        cursor.execute(PRICES)
        assert len(cursor.fetchall()) == 2


def test_the_audit_trail_has_the_rates_before_a_change(olga: User, api: Callable[..., Json]) -> None:
    plan = make_plan()
    client = api(olga)
    path = f"{plan.path}prices/{client.call('POST', f'{plan.path}prices/', version(NEXT_HOUR)).json()['id']}/"
    assert client.call("PUT", path, {**RATES, "per_million_units": "50"}).status_code == 200
    event = AuditEvent.objects.get(action="price.update")
    assert event.details["changes"] == {"per_million_units": ["41.5", "50"]}


def test_the_audit_trail_has_the_plan_before_a_change(world: World, olga: User, api: Callable[..., Json]) -> None:
    former, next_one = make_plan(), make_plan(slug="next")
    subscribe(world.acme, former)
    body = {"tenant": "acme", "plan": next_one.slug, "valid_from": NEXT_HOUR.isoformat()}
    assert api(olga).call("POST", "/api/v1/operator/subscriptions/", body).status_code == 201
    event = AuditEvent.objects.filter(action="subscription.set").latest("sequence")
    assert event.details["changes"] == {"plan": [former.slug, "next"]}


@pytest.mark.parametrize(("field", "value"), [("tenant", "nobody"), ("plan", "nothing")])
def test_what_does_not_exist_is_not_subscribed(
    world: World, olga: User, api: Callable[..., Json], field: str, value: str
) -> None:
    make_plan()
    body = {"tenant": "acme", "plan": "standard", "valid_from": LONG_AGO.isoformat(), field: value}
    answer = api(olga).call("POST", "/api/v1/operator/subscriptions/", body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)


def test_a_plan_without_a_price_is_not_given(world: World, olga: User, api: Callable[..., Json]) -> None:
    Plan.objects.create(slug="empty", name="Empty", currency="EUR")
    body = {"tenant": "acme", "plan": "empty", "valid_from": LONG_AGO.isoformat()}
    answer = api(olga).call("POST", "/api/v1/operator/subscriptions/", body)
    assert (answer.status_code, answer.json()["code"]) == (409, "no_price")


def test_tenants_without_a_plan_get_the_default_one_once(world: World) -> None:
    plan = make_plan()
    assert subscriptions_default() == 0
    Plan.objects.filter(pk=plan.pk).update(is_default=True)
    subscribe(world.globex, make_plan("premium"))
    assert (subscriptions_default(), subscriptions_default()) == (1, 0)
    assert Subscription.objects.get(tenant=world.acme).valid_from == hour_of(world.acme.created_at)


def test_there_is_one_default_plan(olga: User, api: Callable[..., Json]) -> None:
    client = api(olga)
    for slug in ("standard", "premium"):
        client.call("POST", PLANS, {"slug": slug, "currency": "EUR", "is_default": True})
    assert Plan.objects.get(is_default=True).slug == "premium"
    assert client.call("PATCH", f"{PLANS}standard/", {"is_default": True}).status_code == 200
    assert Plan.objects.get(is_default=True).slug == "standard"


@pytest.mark.parametrize(
    ("body", "field"), [({"slug": "x y", "currency": "EUR"}, "slug"), ({"slug": "yen", "currency": "JPY"}, "currency")]
)
def test_a_bad_plan_is_reported_beside_its_field(
    olga: User, api: Callable[..., Json], body: dict[str, str], field: str
) -> None:
    answer = api(olga).call("POST", PLANS, body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)


def test_a_token_operates_only_when_it_was_issued_for_an_operator(
    world: World, olga: User, api: Callable[..., Json]
) -> None:
    scopes = (*ALL_SCOPES, OPERATE_SCOPE)
    text = api_token_issue(actor=SYSTEM, tenant=world.acme, name="ops", user=olga, scopes=scopes).text
    world.acme.memberships.create(user=olga, role="viewer")
    assert api(token=text).call("GET", PLANS).status_code == 200
    User.objects.filter(pk=olga.pk).update(is_staff=False)
    assert api(token=text).call("GET", PLANS).status_code == 404
    for actor, user in ((SYSTEM, None), (SYSTEM, world.bob), (world.alice, olga)):
        with pytest.raises(InvalidInput):
            api_token_issue(actor=actor, tenant=world.acme, name="ops", user=user, scopes=scopes)
    service = api_token_issue(actor=SYSTEM, tenant=world.acme, name="all", role="owner").text
    assert api(token=service).call("GET", PLANS).status_code == 404


def test_unpriced_usage_keeps_no_price_from_being_changed(world: World) -> None:
    price = make_plan().prices.get()
    use(world.cluster, datetime.now(UTC))
    Price.objects.filter(pk=price.pk).update(per_million_units=1)
    assert Usage.objects.get().price is None
