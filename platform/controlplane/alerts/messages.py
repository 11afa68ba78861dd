"""What is sent to each kind of channel. Pure: the time is passed in.

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

from controlplane.alerts.models import Alert, ChannelKind
from controlplane.alerts.words import sentence
from controlplane.common.sentences import say

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
    """Return the message in a line."""
    return f"[Highwater] {title_words(payload)}"


def title_words(payload: Mapping[str, Any]) -> str:
    """Return the same as a sentence, without who sends it."""
    name, fired, resolved = payload["tenant_name"], payload["fired"], payload["resolved"]
    if payload["event"] == "test":
        return say("%(name)s: this is a test", name=name)
    if payload["event"] == "budget":
        return say("%(name)s: %(percent)s %% of the budget is spent", name=name, percent=payload["threshold_percent"])
    if len(fired) == 1 and not resolved:
        what = say(fired[0]["title"])
        return say("%(name)s: %(what)s in %(cluster)s", name=name, what=what, cluster=fired[0]["cluster"])
    if len(resolved) == 1 and not fired:
        what = say(resolved[0]["title"])
        return say("%(name)s: ended: %(what)s in %(cluster)s", name=name, what=what, cluster=resolved[0]["cluster"])
    if not resolved:
        return say("%(name)s: %(fired)s firing", name=name, fired=len(fired))
    if not fired:
        return say("%(name)s: %(ended)s ended", name=name, ended=len(resolved))
    return say("%(name)s: %(fired)s firing, %(ended)s ended", name=name, fired=len(fired), ended=len(resolved))


def text(payload: Mapping[str, Any]) -> str:
    """Return the message as plain text."""
    if payload["event"] == "test":
        return f"{title(payload)}. Alerts of {payload['tenant_name']} arrive here.\n{payload['url']}"
    if payload["event"] == "budget":
        return f"{title(payload)}\n{payload['sentence']} {payload['url']}"
    lines = [title(payload)]
    for alert in payload["fired"]:
        lines.append(f"{alert['severity'].upper()} in {alert['cluster']}: {alert['sentence']} {alert['url']}")
    for alert in payload["resolved"]:
        lines.append(
            f"Ended in {alert['cluster']}: {alert['title']}, {alert['subject'] or 'the cluster'}. {alert['url']}"
        )
    if payload["not_named"]:
        lines.append(f"And {payload['not_named']} more: {payload['url']}")
    return "\n".join(lines)


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
        return f"It answered HTTP {status}: {body[:200].decode('utf-8', 'replace')}".rstrip(": ")
    if kind in (ChannelKind.WEBHOOK, ChannelKind.SLACK):
        return ""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "It answered something that is not JSON."
    if not isinstance(answer, dict):
        return "It answered something that is not JSON's object."
    code = answer.get("errcode", answer.get("code", answer.get("StatusCode")))
    if code == 0:
        return ""
    return f"It refused: {code} {answer.get('errmsg', answer.get('msg', ''))}"[:300].rstrip()


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
