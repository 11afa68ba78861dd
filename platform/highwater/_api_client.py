"""The platform's REST API, asked by the command line: one origin, one token, no redirects. The description is kept a day."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from highwater.api_commands import Command, commands_of
from highwater.errors import ConfigurationError, ConnectError, HighwaterError

DEFAULT_URL = "http://127.0.0.1:8000"
DESCRIPTION_PATH = "/api/v1/schema/?format=json"
DESCRIPTION_KEPT_S = 24 * 3600
_COMMANDS = msgspec.json.Decoder(tuple[Command, ...])


class Refused(HighwaterError):
    """The API refused. `problem` is its problem object (RFC 9457), empty where something else answered."""

    code = "refused"

    def __init__(self, answer: httpx.Response) -> None:
        try:
            problem = answer.json()
        except ValueError:
            problem = {}
        self.status = answer.status_code
        self.problem: Mapping[str, Any] = problem if isinstance(problem, dict) else {}
        reason = f"{answer.status_code} {answer.reason_phrase}"
        super().__init__(str(self.problem.get("detail") or self.problem.get("title") or reason))


class Api:
    """Requests to one platform. Redirects are not followed: they would take the token elsewhere."""

    def __init__(self, url: str, token: str, timeout_s: float, transport: httpx.BaseTransport | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(
                f"HIGHWATER_URL is {url!r}: give the console's address, such as https://console.example.com"
            )
        self.url = url.rstrip("/") + "/"
        self._token = token
        self._client = httpx.Client(timeout=timeout_s, transport=transport)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(self, method: str, address: str, body: object = ...) -> httpx.Response:
        """Make one request. `address` is a path, or an absolute address of the same origin; `body` is sent as JSON.

        Raises Refused, ConnectError where no one answers in time, ConfigurationError without a token or for another origin.
        """
        whole = urljoin(self.url, address)
        if urlsplit(whole)[:2] != urlsplit(self.url)[:2]:
            raise ConfigurationError(f"{whole} is not at {self.url}: the token is not sent there")
        if not self._token:
            raise ConfigurationError(
                "no API token: set HIGHWATER_TOKEN. Tokens are made on the console's page “API tokens”"
            )
        return self._send(method, whole, {"Authorization": f"Bearer {self._token}"}, body)

    def _send(self, method: str, whole: str, headers: Mapping[str, str], body: object = ...) -> httpx.Response:
        content = None
        if body is not ...:
            content = json.dumps(body, ensure_ascii=False).encode()
            headers = {**headers, "Content-Type": "application/json"}
        try:
            answer = self._client.request(method, whole, headers=headers, content=content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectError(f"no answer from {self.url}: {error}. HIGHWATER_URL names the console") from error
        if answer.is_success:
            return answer
        raise Refused(answer)

    def commands(self, *, afresh: bool = False) -> tuple[Command, ...]:
        """Return the commands of this platform, from a file where that is younger than a day."""
        kept = _kept_at(self.url)
        if not afresh and (found := _read(kept)) is not None:
            return found
        # The description is public.
        answer = self._send("GET", urljoin(self.url, DESCRIPTION_PATH), {})
        try:
            commands = commands_of(answer.json())
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConnectError(
                f"{self.url} answers, but is no Highwater platform: HIGHWATER_URL names the console"
            ) from error
        _write(kept, commands)
        return commands


def is_json(answer: httpx.Response) -> bool:
    """Return whether an answer's body is JSON."""
    return bool(re.match(r"application/([\w.-]+\+)?json\b", answer.headers.get("Content-Type", "")))


def _kept_at(url: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highwater"
    return folder / f"commands-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def _read(path: Path) -> tuple[Command, ...] | None:
    try:
        if time.time() - path.stat().st_mtime > DESCRIPTION_KEPT_S:
            return None
        return _COMMANDS.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):  # none yet, or of another version: asked for again
        return None


def _write(path: Path, commands: tuple[Command, ...]) -> None:
    """Keep them. A folder that takes no file costs a request each time, and nothing else."""
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(commands))
        beside.replace(path)
    except OSError:
        return
