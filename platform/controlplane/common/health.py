"""Probes. /healthz: this process answers. /readyz: it can also do its work (database and cache reachable)."""

from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 as long as the process serves requests."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when every dependency answers, else 503 with the names of those that don't."""
    checks = {"database": _database_answers(), "cache": cache_answers()}
    ready = all(checks.values())
    return JsonResponse({"status": "ok" if ready else "unavailable", "checks": checks}, status=200 if ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Exception:  # whatever the driver raises means: not ready
        return False
    return True


def cache_answers() -> bool:
    """Whether the cache, which holds the rate limits, takes a value and gives it back."""
    try:
        cache.set("readyz", 1, timeout=5)
        return bool(cache.get("readyz") == 1)
    except Exception:  # whatever the client raises means: not ready
        return False
