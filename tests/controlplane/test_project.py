"""What holds for the Django project as a whole: migrations, settings, headers, sign-up."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from controlplane.accounts.models import User
from controlplane.common.logging import logging_configuration

ROOT = Path(settings.ROOT_DIR)
PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "controlplane.settings.production",
    "SECRET_KEY": "fIw9c4rQe2yZ8uLk3mNpXv7bTs1aJd6gHh0oCqWzRtYxEiUvBn",
    "ALLOWED_HOSTS": "console.example.com",
    "HIGHWATER_PUBLIC_URL": "https://console.example.com",
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "DJANGO_ALLOW_ASYNC_UNSAFE": "",  # the browser tests' own
}


def manage(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **PRODUCTION, **changes}
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env={name: value for name, value in environment.items() if value},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )


def test_migrations_are_complete(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_the_deployment_check_is_clean_with_production_settings() -> None:
    result = manage("check", "--deploy", "--fail-level", "WARNING")
    assert result.returncode == 0, result.stderr
    assert "no issues (0 silenced)" in result.stdout


def test_production_does_not_start_without_a_key() -> None:
    result = manage("check", SECRET_KEY="")
    assert result.returncode != 0
    assert "SECRET_KEY" in result.stderr


def test_a_logged_error_shows_no_local_variables() -> None:
    def fails(password: str) -> None:
        raise ValueError("no such user")

    formatter = logging_configuration(level="INFO", json_lines=False)["formatters"]["structlog"]
    written = formatter.pop("()")(**formatter)
    try:
        fails("hunter2")
    except ValueError:
        record = logging.LogRecord("web", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    printed = written.format(record)
    assert "no such user" in printed
    assert "hunter2" not in printed.replace('fails("hunter2")', "")


def test_every_page_forbids_inline_scripts_and_other_origins(db: None) -> None:
    policy = Client().get("/login/")["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


def test_passwords_are_hashed_by_argon2_outside_of_tests() -> None:
    result = manage(
        "shell", "--no-imports", "-c", "from django.contrib.auth.hashers import make_password as m; print(m('x'))"
    )
    assert result.stdout.startswith("argon2$argon2id$"), result.stderr


@pytest.mark.parametrize("email", ["Dora@Example.com", "dora@example.com"])
def test_someone_signs_up_and_is_logged_in(db: None, email: str) -> None:
    client = Client()
    form = {"email": email, "password1": "correct-horse-battery", "password2": "correct-horse-battery"}
    assert client.post("/signup/", form).status_code == 302
    user = User.objects.get()
    assert user.email == "dora@example.com"
    assert client.session["_auth_user_id"] == str(user.pk)


def test_a_user_logs_in_whatever_the_case_of_the_address(db: None) -> None:
    User.objects.create_user("dora@example.com", "correct-horse-battery")
    client = Client()
    form = {"login": "DORA@example.com", "password": "correct-horse-battery"}
    assert client.post("/login/", form).status_code == 302
    assert "_auth_user_id" in client.session


def test_a_weak_password_is_refused(db: None) -> None:
    Client().post("/signup/", {"email": "dora@example.com", "password1": "password", "password2": "password"})
    assert not User.objects.exists()


def test_no_module_of_the_control_plane_reaches_into_the_daemons() -> None:
    pattern = re.compile(r"^\s*(?:from|import)\s+(?:brokerd|namesrvd)\b", re.MULTILINE)
    for path in (ROOT / "platform" / "controlplane").rglob("*.py"):
        assert not pattern.search(path.read_text("utf-8")), path
