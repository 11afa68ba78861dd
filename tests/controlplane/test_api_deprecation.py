"""What of the API will end says so itself, in time."""

from __future__ import annotations

from datetime import date
from typing import Any, ClassVar

import pytest
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from controlplane.common.api import Api
from controlplane.common.deprecation import Deprecation
from controlplane.common.errors import NotFound


class OldApi(Api):
    """Its GET will end, its DELETE stays."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    deprecations: ClassVar = {"GET": Deprecation(since=date(2026, 12, 1), ends=date(2027, 6, 1))}

    @extend_schema(operation_id="old_get", responses={204: None})
    def get(self, request: Request, **_: Any) -> Response:
        if "missing" in request.path:
            raise NotFound("There is none.")
        return Response(status=204)

    @extend_schema(operation_id="old_delete", responses={204: None})
    def delete(self, request: Request, **_: Any) -> Response:
        return Response(status=204)


def answer(method: str = "get", address: str = "/api/v1/old/") -> Response:
    found: Response = OldApi.as_view()(getattr(APIRequestFactory(), method)(address))
    return found


@pytest.mark.parametrize(("address", "status"), [("/api/v1/old/", 204), ("/api/v1/old/missing/", 404)])
def test_each_answer_says_since_when_and_until_when(address: str, status: int) -> None:
    found = answer(address=address)
    assert found.status_code == status
    assert found.headers["Deprecation"] == "@1796083200"
    assert found.headers["Sunset"] == "Tue, 01 Jun 2027 00:00:00 GMT"
    assert found.headers["Link"] == '</api/v1/docs/>; rel="deprecation"; type="text/html"'


def test_another_method_of_the_route_says_nothing() -> None:
    assert "Deprecation" not in answer("delete").headers


def test_the_description_marks_the_method_alone() -> None:
    generator = SchemaGenerator(patterns=[path("api/v1/old/", OldApi.as_view())])  # type: ignore[no-untyped-call]  # has no types
    schema = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # has no types
    operations = schema["paths"]["/api/v1/old/"]
    assert [operations[method].get("deprecated", False) for method in ("get", "delete")] == [True, False]


def test_less_time_than_is_promised_is_refused() -> None:
    with pytest.raises(ValueError, match="less than 180 days"):
        Deprecation(since=date(2026, 12, 1), ends=date(2027, 5, 29))
