"""What `./dev up` makes of the platform besides the demo cluster: an operator who can log in, and a plan with prices."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client, override_settings

from controlplane.accounts.models import User
from controlplane.billing.models import Plan
from controlplane.billing.plan_services import subscriptions_default
from controlplane.billing.selectors import price_at, subscription_at
from deploy.local.demo import PLAN, Console, ensure_prices
from tests.controlplane.world import Json, World

EMAIL = "operator@highwater.example"


class Browser(Console):
    """The demo's own client, on Django's test client instead of a connection."""

    def __init__(self, user: User) -> None:
        self._client = Json(user)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        answer = self._client.call(method, path, body)
        assert answer.status_code < 400, answer.content
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def operator(db: None) -> User:
    return User.objects.create_user(EMAIL, is_staff=True)


def test_the_demo_tenants_usage_has_a_price(world: World, operator: User) -> None:
    ensure_prices(Browser(operator), datetime.now(UTC))
    subscriptions_default()
    subscription = subscription_at(world.acme, datetime.now(UTC))
    assert subscription is not None
    price = price_at(subscription.plan, datetime.now(UTC))
    assert price is not None
    assert (subscription.plan.slug, price.currency) == (PLAN, "USD")
    assert price.per_million_units > 0


def test_a_second_up_makes_no_second_plan(world: World, operator: User) -> None:
    for _ in range(2):
        ensure_prices(Browser(operator), datetime.now(UTC))
    assert [plan.prices.count() for plan in Plan.objects.all()] == [1]


def test_plans_of_the_operators_own_are_left_alone(world: World, operator: User) -> None:
    Plan.objects.create(slug="mine", name="Mine", currency="EUR")
    ensure_prices(Browser(operator), datetime.now(UTC))
    assert [plan.slug for plan in Plan.objects.all()] == ["mine"]


def test_an_operator_is_made_once_and_then_left_alone(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for password in ("correct horse battery", "another one entirely"):
        monkeypatch.setenv("HIGHWATER_OPERATOR_PASSWORD", password)
        call_command("make_operator", EMAIL, "--create")
    user = User.objects.get(email=EMAIL)
    assert user.is_staff
    assert user.check_password("correct horse battery")
    User.objects.update(is_staff=False)
    call_command("make_operator", EMAIL, "--create")
    assert not User.objects.get(email=EMAIL).is_staff


def test_an_operator_made_at_the_machine_logs_in_without_a_mail(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIGHWATER_OPERATOR_PASSWORD", "correct horse battery")
    call_command("make_operator", EMAIL, "--create")
    with override_settings(ACCOUNT_EMAIL_VERIFICATION="mandatory"):
        client.post("/login/", {"login": EMAIL, "password": "correct horse battery"})
    assert client.session.get("_auth_user_id")


def test_an_operator_without_a_password_is_refused(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIGHWATER_OPERATOR_PASSWORD", raising=False)
    with pytest.raises(CommandError, match="HIGHWATER_OPERATOR_PASSWORD"):
        call_command("make_operator", EMAIL, "--create")
