"""What every answer tells browsers, and which cookies they keep, also with production's settings."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from tests.controlplane.test_project import manage

ANSWERS = {
    "a page": "/login/",
    "a page that is not there": "/no-such-page/",
    "a redirect": "/tenants/",
    "the API": "/api/v1/tenants/",
    "a look at the platform's health": "/healthz",
    "a refusal before anything is looked at": "/%00/",
    "a style sheet": "/static/css/base.css",
    "a script": "/static/js/console.js",
    "a picture": "/static/img/logo.svg",
}

# Asked of a process with production's settings, whose database is not there.
_PRODUCTION = """
import json
from django.conf import settings
from django.contrib.messages.storage import default_storage
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from controlplane.accounts.known_browsers import browser_cookie_set

# Files have their names by no manifest, which `collectstatic` would make.
override_settings(STORAGES={"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}).enable()
browser = Client(headers={"host": "console.example.com"})
cookies = {}
def keep(answer):
    for name, cookie in answer.cookies.items():
        cookies[name] = {key: cookie[key] for key in ("secure", "path", "domain", "samesite", "httponly")}
    return answer
page = keep(browser.get("/", secure=True))
keep(browser.post("/theme/", {"theme": "dark"}, secure=True))
keep(browser.post("/language/", {"language": "zh-hans"}, secure=True))
request = RequestFactory().get("/")
request.session = {}
storage, answer = default_storage(request), HttpResponse()
storage.add(20, "done")
storage.update(answer)
request.browser_id_given = "x" * 43
browser_cookie_set(request, answer)
keep(answer)
lost = browser.get("/no-such-page/", secure=True)
refused = browser.get("/%00/", secure=True)
print(json.dumps({
    "cookies": cookies,
    "names": sorted(value for name in dir(settings) if name.endswith("COOKIE_NAME") and (value := getattr(settings, name))),
    "hsts": [one.headers.get("Strict-Transport-Security") for one in (page, lost, refused)],
    "session": [settings.SESSION_COOKIE_SECURE, settings.SESSION_COOKIE_HTTPONLY, settings.SESSION_COOKIE_SAMESITE,
                settings.SESSION_COOKIE_DOMAIN, settings.SESSION_COOKIE_PATH],
    "theme": "data-cookie=\\"__Host-theme\\"" in page.content.decode(),
}))
"""


@pytest.mark.django_db
@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_says_what_browsers_may_do_with_it(answer: str) -> None:
    headers = Client().get(ANSWERS[answer]).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = headers["Content-Security-Policy"].split("; ")
    for directive in ("default-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert directive in policy
    assert not [one for one in headers if one.startswith("Access-Control-")], "no other origin reads what is here"


@pytest.mark.django_db
def test_what_is_led_to_https_or_refused_without_it_says_so_too(settings: pytest.FixtureRequest) -> None:
    settings.SECURE_SSL_REDIRECT = True  # type: ignore[attr-defined]  # pytest-django's
    for path in ("/login/", "/api/v1/tenants/"):
        headers = Client().get(path).headers
        assert (headers["X-Content-Type-Options"], headers["Cross-Origin-Resource-Policy"]) == (
            "nosniff",
            "same-origin",
        )


def test_in_production_no_other_host_can_set_a_cookie_of_ours_and_browsers_come_back_by_https() -> None:
    asked = manage("shell", "--no-imports", "-c", _PRODUCTION)
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout.splitlines()[-1])
    assert [name for name in told["names"] if not name.startswith("__Host-")] == []
    kept = {"__Host-theme", "__Host-language", "__Host-messages", "__Host-browser", "__Host-csrftoken"}
    assert set(told["cookies"]) == kept
    assert told["session"] == [True, True, "Lax", None, "/"]
    for name, cookie in told["cookies"].items():
        assert name.startswith("__Host-")
        assert (cookie["secure"], cookie["path"], cookie["domain"], cookie["samesite"]) == (True, "/", "", "Lax"), name
        assert cookie["httponly"] is True or name == "__Host-theme", name  # which a script writes
    assert told["hsts"] == ["max-age=31536000; includeSubDomains; preload"] * 3
    assert told["theme"], "the page's script writes a cookie of another name than the page reads"
