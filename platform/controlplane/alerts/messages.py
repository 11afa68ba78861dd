"""What is sent to each kind of channel: mail in its readers' languages, everything else in English. Pure: the time is passed in.

Signatures: DingTalk and Feishu sign as their documentation of custom robots says; a webhook gets `Highwater-Signature: v1=` and the
HMAC-SHA256, in hex, of the timestamp's text, a full stop and the body.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus

from controlplane.alerts.kinds import KINDS, Severity
from controlplane.alerts.models import Alert, ChannelKind
from controlplane.alerts.words import sentence
from controlplane.common.sentences import in_words, say, say_as

_SEVERITIES = {Severity.CRITICAL: say_as("of an alert", "CRITICAL"), Severity.WARNING: say_as("of an alert", "WARNING")}
# One message names no more; it says how many more there are.
ALERTS_MAX = 20
# WeCom takes 2048 bytes of text, the others more.
_TEXT_BYTES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Request:
    """A POST."""

    url: str
    headers: dict[str, str]
    body: bytes


def payload_of(
    tenant: str, tenant_name: str, fired: list[Alert], resolved: list[Alert], base_url: str
) -> dict[str, Any]:
    """Return what is sent of alerts that fire and alerts that ended, the same for every channel."""
    return {
        "event": "alerts",
        "tenant": tenant,
        "tenant_name": tenant_name,
        "fired": [_as_json(alert, tenant, base_url) for alert in fired[:ALERTS_MAX]],
        "resolved": [_as_json(alert, tenant, base_url) for alert in resolved[:ALERTS_MAX]],
        "not_named": max(0, len(fired) - ALERTS_MAX) + max(0, len(resolved) - ALERTS_MAX),
        "url": f"{base_url}/t/{tenant}/alerts/",
    }


def budget_payload(
    tenant: str, tenant_name: str, sentence: str, threshold_percent: int, base_url: str
) -> dict[str, Any]:
    """Return what is sent of a budget of which a share is spent."""
    return {
        **payload_of(tenant, tenant_name, [], [], base_url),
        "event": "budget",
        "sentence": sentence,
        "threshold_percent": threshold_percent,
        "url": f"{base_url}/t/{tenant}/usage/",
    }


def trial_payload(tenant: str, tenant_name: str, base_url: str) -> dict[str, Any]:
    """Return a message that only shows that messages arrive."""
    return {**payload_of(tenant, tenant_name, [], [], base_url), "event": "test"}


def title(payload: Mapping[str, Any]) -> str:
    """Return the message in a line, in English."""
    return f"[Highwater] {title_words(payload)}"


def title_words(payload: Mapping[str, Any]) -> str:
    """Return the same as a sentence, without who sends it."""
    name, fired, resolved = payload["tenant_name"], payload["fired"], payload["resolved"]
    if payload["event"] == "test":
        return say("%(name)s: this is a test", name=name)
    if payload["event"] == "budget":
        return say("%(name)s: %(percent)s %% of the budget is spent", name=name, percent=payload["threshold_percent"])
    if len(fired) == 1 and not resolved:
        what = _title(fired[0])
        return say("%(name)s: %(what)s in %(cluster)s", name=name, what=what, cluster=fired[0]["cluster"])
    if len(resolved) == 1 and not fired:
        what = _title(resolved[0])
        return say("%(name)s: ended: %(what)s in %(cluster)s", name=name, what=what, cluster=resolved[0]["cluster"])
    if not resolved:
        return say("%(name)s: %(fired)s firing", name=name, fired=len(fired))
    if not fired:
        return say("%(name)s: %(ended)s ended", name=name, ended=len(resolved))
    return say("%(name)s: %(fired)s firing, %(ended)s ended", name=name, fired=len(fired), ended=len(resolved))


def text(payload: Mapping[str, Any]) -> str:
    """Return the message as plain text, in English."""
    return "\n".join((title(payload), *_lines(payload)))


def mail_words(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return the subject and the text of a mail, in the present language."""
    subject = f"[Highwater] {in_words(title_words(payload))}"
    return subject, "\n".join((subject, *(in_words(line) for line in _lines(payload))))


def _lines(payload: Mapping[str, Any]) -> list[str]:
    """Return what the text has after its title. Rows from before payloads kept sentences have plain English in them."""
    if payload["event"] == "test":
        return [say("Alerts of %(name)s arrive here.", name=payload["tenant_name"]), payload["url"]]
    if payload["event"] == "budget":
        return [say("%(sentence)s %(url)s", sentence=payload["sentence"], url=payload["url"])]
    lines: list[str] = [
        say(
            "%(severity)s in %(cluster)s: %(sentence)s %(url)s",
            severity=_SEVERITIES[alert["severity"]],
            cluster=alert["cluster"],
            sentence=alert["sentence"],
            url=alert["url"],
        )
        for alert in payload["fired"]
    ]
    lines += [
        say(
            "Ended in %(cluster)s: %(what)s, %(subject)s. %(url)s",
            cluster=alert["cluster"],
            what=_title(alert),
            subject=alert["subject"] or say("the cluster"),
            url=alert["url"],
        )
        for alert in payload["resolved"]
    ]
    if payload["not_named"]:
        lines.append(say("And %(count)s more: %(url)s", count=payload["not_named"], url=payload["url"]))
    return lines


def _title(alert: Mapping[str, Any]) -> str:
    """Return what is wrong in a few words."""
    kind = KINDS.get(alert["kind"])
    return str(alert["title"]) if kind is None else kind.title


def request_of(
    kind: str, url: str, secret: str, payload: Mapping[str, Any], delivery_id: str, now: datetime
) -> Request:
    """Return the request for a channel of this kind."""
    seconds = int(now.timestamp())
    headers = {"Content-Type": "application/json; charset=utf-8"}
    words = _cut(text(payload))
    body: dict[str, Any]
    match kind:
        case ChannelKind.SLACK:
            body = {"text": _slack(words)}
        case ChannelKind.DINGTALK:
            body = {"msgtype": "text", "text": {"content": words}}
            if secret:
                url = f"{url}{'&' if '?' in url else '?'}{_dingtalk_signature(secret, round(now.timestamp() * 1000))}"
        case ChannelKind.FEISHU:
            body = {"msg_type": "text", "content": {"text": words}}
            if secret:
                key = f"{seconds}\n{secret}".encode()
                signature = base64.b64encode(hmac.digest(key, b"", hashlib.sha256)).decode()
                body = {"timestamp": str(seconds), "sign": signature, **body}
        case ChannelKind.WECOM:
            body = {"msgtype": "text", "text": {"content": words}}
        case _:
            body = {"id": delivery_id, "sent_at": now.isoformat(), **payload}
    content = json.dumps(body, ensure_ascii=False).encode()
    if kind == ChannelKind.WEBHOOK:
        headers |= {
            "Highwater-Event": str(payload["event"]),
            "Highwater-Delivery": delivery_id,
            "Highwater-Timestamp": str(seconds),
        }
        if secret:
            headers["Highwater-Signature"] = f"v1={webhook_signature(secret, str(seconds), content)}"
    return Request(url, headers, content)


def webhook_signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature, in hex, that a receiver compares with the header's."""
    return hmac.digest(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hex()


def answer_problem(kind: str, status: int, body: bytes) -> str:
    """Return why the receiver did not take the message; empty when it did. Chats answer 200 with a code of their own."""
    if not 200 <= status < 300:
        said = storable(body[:200].decode("utf-8", "replace")).strip()
        if not said:
            return say("It answered HTTP %(status)s", status=status)
        return say("It answered HTTP %(status)s: %(said)s", status=status, said=said)
    if kind in (ChannelKind.WEBHOOK, ChannelKind.SLACK):
        return ""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return say("It answered something that is not JSON.")
    if not isinstance(answer, dict):
        return say("It answered something that is not JSON’s object.")
    code = answer.get("errcode", answer.get("code", answer.get("StatusCode")))
    if code == 0:
        return ""
    said = f"{code} {answer.get('errmsg', answer.get('msg', ''))}"[:300].rstrip()
    return say("It refused: %(said)s", said=storable(said))


def storable(text: str) -> str:
    """Return the text as PostgreSQL stores it: a receiver may answer NUL, and half of a character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _as_json(alert: Alert, tenant: str, base_url: str) -> dict[str, Any]:
    return {
        "id": str(alert.pk),
        "cluster": alert.cluster.slug,
        "kind": alert.kind,
        "title": alert.title,
        "severity": str(alert.severity),
        "subject": alert.subject,
        "sentence": sentence(alert.kind, alert.subject, alert.value, alert.detail),
        "since": alert.since.isoformat(),
        "resolved_at": None if alert.resolved_at is None else alert.resolved_at.isoformat(),
        "url": f"{base_url}/t/{tenant}/alerts/{alert.pk}/",
    }


def _dingtalk_signature(secret: str, milliseconds: int) -> str:
    digest = hmac.digest(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256)
    return f"timestamp={milliseconds}&sign={quote_plus(base64.b64encode(digest))}"


def _slack(words: str) -> str:
    """Escape what Slack takes for markup: topics and groups are named by people."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(words: str) -> str:
    """Cut at a character that fits into WeCom's limit."""
    encoded = words.encode()
    return words if len(encoded) <= _TEXT_BYTES_MAX else encoded[: _TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "…"
