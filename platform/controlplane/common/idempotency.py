"""`Idempotency-Key` on POST (draft-ietf-httpapi-idempotency-key-header-07): the same key and request get the stored answer.

same key, other request -> 422 · same key, first request still in flight -> 409 · stored for 24 h · only successes
are stored, so that a corrected request may use the key again.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.common.encryption import derive_key
from controlplane.common.errors import Conflict, InvalidInput, Unprocessable
from controlplane.common.models import IdempotencyRecord
from controlplane.common.principals import principal_of

KEPT_FOR = timedelta(hours=24)
# A request that ran this long was cut off (its worker was killed): the key is free again.
_IN_FLIGHT_MAX = timedelta(minutes=2)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("Location", "ETag")

P = ParamSpec("P")
V = TypeVar("V", bound=APIView)
Handler = Callable[Concatenate[V, Request, P], Response]


def idempotent(handler: Handler[V, P]) -> Handler[V, P]:
    """Wrap a view's `post`. Without the header the request simply runs."""

    @functools.wraps(handler)
    def wrapped(view: V, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        key = _key_of(request)
        if key is None:
            return handler(view, request, *args, **kwargs)
        record, stored = _begin(request, key)
        if stored is not None:
            return stored
        try:
            response = handler(view, request, *args, **kwargs)
        except BaseException:
            record.delete()
            raise
        _finish(record, key, response)
        return response

    wrapped.takes_idempotency_key = True  # type: ignore[attr-defined]  # the description reads it
    return wrapped


def idempotency_records_expire() -> int:
    """Delete what is older than 24 h; returns how many."""
    deleted, _ = IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT_FOR).delete()
    return deleted


def _key_of(request: Request) -> str | None:
    text = request.headers.get("Idempotency-Key")
    if text is None:
        return None
    # The draft's form is a quoted string; bare ones are common.
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _KEY.fullmatch(key):
        raise InvalidInput.for_field("Idempotency-Key", "Use 1 to 255 printable ASCII characters.", "invalid")
    return key


def _begin(request: Request, key: str) -> tuple[IdempotencyRecord, Response | None]:
    """Write that the request is in flight, or return what was answered before; raises as the module says."""
    principal = principal_of(request)
    key_hash = hashlib.sha256(key.encode("ascii")).hexdigest()
    fingerprint = _fingerprint(request)
    now = timezone.now()
    same_key = IdempotencyRecord.objects.filter(principal=principal, key_hash=key_hash)
    same_key.filter(created_at__lt=now - KEPT_FOR).delete()
    same_key.filter(state=IdempotencyRecord.State.IN_FLIGHT, created_at__lt=now - _IN_FLIGHT_MAX).delete()
    try:
        with transaction.atomic():
            return (
                IdempotencyRecord.objects.create(principal=principal, key_hash=key_hash, fingerprint=fingerprint),
                None,
            )
    except IntegrityError:
        record = same_key.first()
    in_flight = Conflict("The first request with this Idempotency-Key is still running.", code="idempotency_in_flight")
    if record is None:  # it failed and was deleted a moment ago
        raise in_flight
    if record.fingerprint != fingerprint:
        raise Unprocessable(
            "This Idempotency-Key was used with another request.",
            code="idempotency_key_reused",
            hint="Use a fresh key for each new request.",
        )
    if record.state == IdempotencyRecord.State.IN_FLIGHT:
        raise in_flight
    return record, _stored_answer(record, key)


def _finish(record: IdempotencyRecord, key: str, response: Response) -> None:
    if not 200 <= response.status_code < 300:
        record.delete()
        return
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    renderer = response.accepted_renderer if hasattr(response, "accepted_renderer") else None
    answer = json.dumps({"headers": headers, "data": response.data}, cls=getattr(renderer, "encoder_class", None))
    record.state = IdempotencyRecord.State.ANSWERED
    record.status = response.status_code
    record.answer = _cipher(key).encrypt(answer.encode("utf-8"))
    record.save(update_fields=["state", "status", "answer", "updated_at"])


def _stored_answer(record: IdempotencyRecord, key: str) -> Response:
    try:
        answer: dict[str, Any] = json.loads(_cipher(key).decrypt(bytes(record.answer)))
    except InvalidToken:
        raise Conflict(
            "The stored answer can't be read any more.", code="idempotency_answer_lost", hint="Use a fresh key."
        ) from None
    headers = {**answer["headers"], "Idempotent-Replayed": "true"}
    return Response(answer["data"], status=record.status, headers=headers)


def _fingerprint(request: Request) -> str:
    digest = hashlib.sha256()
    for part in ((request.method or "").encode(), request.get_full_path().encode(), request._request.body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _cipher(key: str) -> Fernet:
    return Fernet(derive_key(settings.SECRET_KEY, b"idempotency answer " + key.encode("ascii")))
