"""Plain HTTP, log-outs, guessed passwords, addresses, and whom the log names: what browsers, programs and readers get."""

from __future__ import annotations

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.test import Client
from structlog.testing import capture_logs

from tests.controlplane.world import Json, World

pytestmark = pytest.mark.django_db


def test_a_program_is_refused_over_plain_http_and_a_browser_is_led_to_https(settings: pytest.FixtureRequest) -> None:
    settings.SECURE_SSL_REDIRECT = True  # type: ignore[attr-defined]  # pytest-django's
    refused = Client().get("/api/v1/tenants/", headers={"Authorization": "Bearer hw_x"})
    assert refused.status_code == 403
    assert refused.json()["code"] == "https_required"
    led = Client().get("/login/")
    assert led.status_code == 301
    assert led.headers["Location"].startswith("https://")
    assert Client().get("/api/v1/tenants/", secure=True).status_code == 401


def test_a_log_out_empties_the_browsers_cache(world: World) -> None:
    client = Client()
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    assert client.post("/logout/").headers["Clear-Site-Data"] == '"cache"'
    assert "Clear-Site-Data" not in client.get("/login/").headers


@pytest.mark.parametrize("password", ["Highwater2026!", "rocketmq-broker", "4dmin-c0ns0le-1", "P@ssw0rd-2026-2026"])
def test_words_of_the_product_make_no_password(password: str) -> None:
    with pytest.raises(ValidationError, match="words of this product"):
        validate_password(password)


@pytest.mark.parametrize("password", ["rocketmq staple horse", "correct horse battery staple", "qk7-Zr2w-9Lmx-0"])
def test_a_password_may_have_such_a_word_beside_others(password: str) -> None:
    validate_password(password)


def test_the_log_names_the_account_that_was_refused(world: World) -> None:
    with capture_logs() as lines:
        assert (
            Json(world.bob).call("POST", "/api/v1/tenants/acme/invitations/", {"email": "x@example.com"}).status_code
            == 403
        )
        assert Client().get("/api/v1/tenants/").status_code == 401
    refused = [line for line in lines if line["event"] == "request"]
    assert [line.get("refused") for line in refused] == [world.bob.principal, None]


def test_an_address_is_added_to_an_account_by_who_shows_the_password_again(world: World) -> None:
    """Else a borrowed browser, or a stolen session, adds one to which a new password is mailed."""
    world.alice.set_password("correct horse battery staple")
    world.alice.save()
    client = Client()
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    asked = client.post("/email/", {"email": "thief@example.com", "action_add": ""})
    assert asked.status_code == 302
    assert asked.headers["Location"].startswith("/reauthenticate/")
    assert not EmailAddress.objects.filter(email="thief@example.com").exists()
