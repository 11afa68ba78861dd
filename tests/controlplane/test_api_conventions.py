"""What holds for every endpoint: problem objects, request ids, pages, entity tags, idempotency keys, rate headers."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.test import Client, override_settings
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from redis.exceptions import RedisError

from controlplane.clusters.models import Cluster, NameServer, Operation
from controlplane.clusters.services import cluster_create
from controlplane.common import throttling
from controlplane.common.idempotency import idempotency_records_expire
from controlplane.common.models import IdempotencyRecord
from tests.controlplane.world import Json, World, make_cluster

CLUSTERS = "/api/v1/tenants/acme/clusters/"
ORDERS = f"{CLUSTERS}orders/"

PROBLEMS = [
    ("GET", "/api/v1/tenants/nothing/", None, 404, "not_found"),
    ("GET", "/api/v1/nothing/", None, 404, "not_found"),
    ("GET", f"{ORDERS}topics/no such topic!/", None, 404, "not_found"),
    ("PUT", ORDERS, {}, 405, "method_not_allowed"),
    ("POST", CLUSTERS, {}, 400, "invalid_input"),
    ("POST", CLUSTERS, {"slug": "orders"}, 409, "slug_taken"),
    ("POST", CLUSTERS, {"slug": "big", "mode": "dledger", "replicas": 4}, 400, "invalid_input"),
    ("POST", CLUSTERS, {"slug": "No Slug"}, 400, "invalid_input"),
    ("GET", f"{CLUSTERS}?limit=1000", None, 400, "invalid_input"),
    ("GET", f"{CLUSTERS}?cursor=nonsense", None, 400, "invalid_input"),
    ("GET", f"{CLUSTERS}?cursor=cD1ub25zZW5zZQ==", None, 400, "invalid_input"),
    ("GET", f"{CLUSTERS}?limit=0000000011000", None, 400, "invalid_input"),
    # A time that no year holds in UTC, and a name with NUL.
    ("GET", f"{CLUSTERS}?cursor=cD05OTk5LTEyLTMxVDIzJTNBNTklM0E1OS0yMyUzQTU5", None, 400, "invalid_input"),
    ("GET", f"{ORDERS}topics/?cursor=cD0A", None, 400, "invalid_input"),
    ("GET", "/api/v1/operations/54efc4d1-b1aa-43e6-9a30-5fce8d0c39c5/", None, 404, "not_found"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), PROBLEMS)
def test_errors_are_problem_objects(
    world: World, api: Callable[..., Json], method: str, path: str, body: object, status: int, code: str
) -> None:
    answer = api(world.alice).call(method, path, body)
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (status, code, f"urn:highwater:problem:{code}")
    assert problem["request_id"] == answer["X-Request-ID"]
    assert problem["instance"] == path.partition("?")[0].replace(" ", "%20").replace("%20", " ")


@pytest.mark.parametrize("body", ["{", "[" * 100_000, r'{"\udfff": "half of a surrogate pair"}'])
def test_a_malformed_body_is_a_problem_object(world: World, api: Callable[..., Json], body: str) -> None:
    answer = api(world.alice).generic("POST", CLUSTERS, body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


def test_another_content_type_is_a_problem_object(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).generic("POST", CLUSTERS, "slug=x", content_type="application/x-www-form-urlencoded")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_invalid_fields_are_named(world: World, api: Callable[..., Json]) -> None:
    body = {"name": "x", "topic_perms": {"invoices": "WRITE"}}
    answer = api(world.alice).call("POST", f"{ORDERS}credentials/", body)
    assert [error["field"] for error in answer.json()["errors"]] == ["topic_perms.invoices"]


def test_a_stranger_is_told_how_to_authenticate(world: World, api: Callable[..., Json]) -> None:
    answer = api().call("GET", CLUSTERS)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="highwater"')


def test_a_wrong_token_is_refused(world: World, api: Callable[..., Json]) -> None:
    assert api(token="hw_test_0123456789ab_" + "x" * 43).call("GET", CLUSTERS).status_code == 401


def test_an_error_of_ours_is_a_problem_object_without_detail(world: World) -> None:
    client = Json(world.alice, raise_request_exception=False)
    with patch("controlplane.clusters.apis.cluster_list", side_effect=RuntimeError("a secret")):
        answer = client.call("GET", CLUSTERS)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert b"secret" not in answer.content


def test_a_request_id_of_the_client_is_kept(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("GET", CLUSTERS, X_Request_ID="trace-0001")
    assert answer["X-Request-ID"] == "trace-0001"


def test_a_request_id_that_could_forge_log_lines_is_replaced(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("GET", CLUSTERS, X_Request_ID="x\u2028forged line")
    assert re.fullmatch(r"[0-9a-f]{32}", answer["X-Request-ID"])


def test_pages_follow_one_another_to_the_end(world: World, api: Callable[..., Json]) -> None:
    wanted = {"orders"} | {make_cluster(world.acme, f"more-{number}").slug for number in range(4)}
    client, path, seen = api(world.alice), f"{CLUSTERS}?limit=2", []
    while path:
        page = client.call("GET", path).json()
        seen += [cluster["slug"] for cluster in page["results"]]
        path = page["next"]
    assert sorted(seen) == sorted(wanted)


def test_times_are_rfc_3339_in_utc(world: World, api: Callable[..., Json]) -> None:
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", api(world.alice).call("GET", ORDERS).json()["created_at"]
    )


def test_a_known_entity_tag_saves_the_body(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    etag = client.call("GET", ORDERS)["ETag"]
    answer = client.call("GET", ORDERS, If_None_Match=etag)
    assert (answer.status_code, answer.content) == (304, b"")


def test_a_change_on_a_stale_entity_tag_is_refused(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    etag = client.call("GET", ORDERS)["ETag"]
    assert client.call("PATCH", ORDERS, {"name": "First"}, If_Match=etag).status_code == 200
    answer = client.call("PATCH", ORDERS, {"name": "Second"}, If_Match=etag)
    assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
    assert Cluster.objects.get(slug="orders").name == "First"


def test_a_new_sample_that_says_the_same_is_not_a_change(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    NameServer.objects.update(health="healthy", sampled_at=timezone.now())
    etag = client.call("GET", ORDERS)["ETag"]
    NameServer.objects.update(sampled_at=timezone.now() + timedelta(seconds=10))
    assert client.call("PATCH", ORDERS, {"name": "New"}, If_Match=etag).status_code == 200


def test_the_same_key_and_request_get_the_stored_answer(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    first, second = (client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key='"key-1"') for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert (first["Location"], second["Idempotent-Replayed"]) == (second["Location"], "true")
    assert Operation.objects.count() == 1


def test_the_same_key_with_another_request_is_refused(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="key-1")
    answer = client.call("POST", CLUSTERS, {"slug": "other"}, Idempotency_Key="key-1")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_a_key_in_flight_is_refused(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    inner: list[int] = []

    def create(**values: object) -> object:
        inner.append(client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="key-1").status_code)
        return cluster_create(**values)  # type: ignore[arg-type]  # passed through

    with patch("controlplane.clusters.apis.cluster_create", side_effect=create):
        outer = client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="key-1")
    assert (outer.status_code, inner) == (202, [409])


def test_a_failed_request_leaves_its_key_free(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    assert client.call("POST", CLUSTERS, {"slug": "orders"}, Idempotency_Key="key-1").status_code == 409
    assert client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="key-1").status_code == 202


def test_keys_of_two_people_do_not_meet(world: World, api: Callable[..., Json]) -> None:
    for user, slug in ((world.alice, "of-alice"), (world.charlie, "of-charlie")):
        answer = api(user).call("POST", "/api/v1/tenants/", {"slug": slug}, Idempotency_Key="key-1")
        assert answer.status_code == 201


def test_a_stored_answer_does_not_show_its_secret_to_who_reads_the_table(
    world: World, api: Callable[..., Json]
) -> None:
    client, path = api(world.alice), "/api/v1/tenants/acme/tokens/"
    first, second = (client.call("POST", path, {"name": "ci"}, Idempotency_Key="key-1") for _ in range(2))
    assert first.json()["token"] == second.json()["token"]
    record = IdempotencyRecord.objects.get()
    assert first.json()["token"].encode() not in bytes(record.answer)
    assert "key-1" not in record.key_hash


def test_stored_answers_are_kept_for_a_day(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    client.call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="key-1")
    assert idempotency_records_expire() == 0
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert idempotency_records_expire() == 1


def test_a_key_with_blanks_is_refused(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("POST", CLUSTERS, {"slug": "fresh"}, Idempotency_Key="two words")
    assert answer.status_code == 400


def test_every_answer_says_what_is_left_of_the_rate(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("GET", CLUSTERS)
    assert answer["RateLimit-Policy"] == '"api";q=1200;w=60'
    assert re.fullmatch(r'"api";r=1199;t=\d+', answer["RateLimit"])


def test_too_many_requests_are_answered_with_when_to_come_back(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    with patch.object(throttling.ApiThrottle, "rate", "2/min", create=True):
        statuses = [client.call("GET", CLUSTERS) for _ in range(3)]
    assert [answer.status_code for answer in statuses] == [200, 200, 429]
    assert 1 <= int(statuses[-1]["Retry-After"]) <= 61
    assert statuses[-1].json()["code"] == "throttled"


def test_a_cache_that_is_away_turns_rate_limits_off_and_nothing_else(world: World, api: Callable[..., Json]) -> None:
    with patch.object(throttling.ApiThrottle.cache, "get", side_effect=RedisError("away")):
        answer = api(world.alice).call("GET", CLUSTERS)
    assert answer.status_code == 200
    assert "RateLimit" not in answer


def test_answers_are_not_cached_by_others(world: World, api: Callable[..., Json]) -> None:
    assert api(world.alice).call("GET", ORDERS)["Cache-Control"] == "private, no-cache"


def test_nul_in_an_address_is_refused_before_the_database_sees_it(world: World, api: Callable[..., Json]) -> None:
    assert api(world.alice).get("/api/v1/tenants/acme/operations/?cluster=%00").status_code == 400


@override_settings(ALLOWED_HOSTS=["testserver"])
def test_probes_answer_without_a_login(db: None, api: Callable[..., Json]) -> None:
    assert api().get("/healthz").json() == {"status": "ok"}
    assert api().get("/readyz").json() == {"status": "ok", "checks": {"database": True, "cache": True}}


def test_strangers_do_not_have_the_description_made_again_and_again(db: None) -> None:
    def description(query: str) -> bytes:
        answer = Client().get(f"/api/v1/schema/?format=json{query}")
        assert answer.status_code == 200
        return answer.content

    first = description("")
    with patch.object(SchemaGenerator, "get_schema", side_effect=AssertionError("it takes seconds of the processor")):
        assert description("&version=2&lang=zh-hans") == first
