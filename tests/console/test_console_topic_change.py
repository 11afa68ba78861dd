"""A topic is changed on a page of its own."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from django.http import HttpResponse

from controlplane.common.errors import InvalidInput
from controlplane.console.views import topics as view
from controlplane.topics.models import Topic
from controlplane.topics.services import TopicOptions
from tests.console.world import World, make_topic

PAGE = "topics/payments/change/"


class Service:
    """Takes changes; `error` is raised instead."""

    def __init__(self) -> None:
        self.options: list[TopicOptions] = []
        self.error: InvalidInput | None = None

    def update(self, *, options: TopicOptions, topic: Topic, **_: object) -> Topic:
        if self.error is not None:
            raise self.error
        self.options.append(options)
        return topic


@pytest.fixture
def service(world: World, monkeypatch: pytest.MonkeyPatch) -> Service:
    make_topic(world.cluster, "payments")
    twin = Service()
    monkeypatch.setattr(view, "topic_update", twin.update)
    return twin


def send(world: World, *, wants: str = "", **typed: Any) -> HttpResponse:
    shown = {"read_queue_nums": "8", "write_queue_nums": "8", "perm": "6", "description": "What payments are for"}
    headers = {"X-Wants": wants} if wants else {}
    answer: HttpResponse = world.client(world.bob).post(  # type: ignore[assignment]  # Django's own answer, with more on it
        world.cluster_path(PAGE), {**shown, **typed}, headers=headers
    )
    return answer


def test_what_is_typed_goes_to_the_brokers_and_the_kind_stays(world: World, service: Service) -> None:
    answer = send(world, write_queue_nums="2", perm="4")
    assert (answer.status_code, answer.headers["Location"]) == (302, world.cluster_path("topics/payments/"))
    (options,) = service.options
    assert (options.read_queue_nums, options.write_queue_nums, options.perm) == (8, 2, 4)
    assert (options.message_type, options.description) == ("NORMAL", "What payments are for")


def test_the_curl_line_has_only_what_is_otherwise(world: World, service: Service) -> None:
    words = shlex.split(
        json.loads(send(world, wants="curl", write_queue_nums="2").content)["curl"].replace("\\\n", " ")
    )
    assert json.loads(words[words.index("-d") + 1]) == {"write_queue_nums": 2}
    assert service.options == []


def test_a_size_is_typed_as_people_write_it(world: World, service: Service) -> None:
    send(world, retention_bytes="1.5 GiB", quota_stored_bytes="20 GB", quota_bytes_per_second="512")
    (options,) = service.options
    assert (options.retention_bytes, options.quota_stored_bytes) == (1_610_612_736, 20_000_000_000)
    assert options.quota_bytes_per_second == 512


def test_what_is_no_size_is_said_at_its_field(world: World, service: Service) -> None:
    answer = send(world, retention_bytes="a lot")
    assert answer.status_code == 422
    assert "Write a size, such as 500 MiB or 10 GiB." in answer.content.decode()
    assert service.options == []


def test_a_limit_is_shown_as_it_was_typed_and_its_section_is_open(world: World, service: Service) -> None:
    Topic.objects.filter(name="payments").update(retention_bytes=10 * 1024**3)
    page = world.client(world.bob).get(world.cluster_path(PAGE)).content.decode()
    assert 'value="10 GiB"' in page
    assert '<details class="fold" open>' in page


def test_a_limit_that_was_emptied_is_null_in_the_curl_line(world: World, service: Service) -> None:
    Topic.objects.filter(name="payments").update(retention_hours=24)
    words = shlex.split(json.loads(send(world, wants="curl", retention_hours="").content)["curl"].replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1]) == {"retention_hours": None}


def test_a_number_that_is_refused_is_said_at_its_field(world: World, service: Service) -> None:
    service.error = InvalidInput.for_field("read_queue_nums", "Use 1 to 1024.", "out_of_range")
    answer = send(world, read_queue_nums="5000")
    assert answer.status_code == 422
    assert "Use 1 to 1024." in answer.content.decode()


def test_the_topics_page_leads_there_for_those_who_may(world: World, service: Service) -> None:
    page = world.client(world.bob).get(world.cluster_path("topics/payments/")).content.decode()
    assert world.cluster_path(PAGE) in page
    viewers = world.client(world.victor)
    assert world.cluster_path(PAGE) not in viewers.get(world.cluster_path("topics/payments/")).content.decode()
    assert viewers.get(world.cluster_path(PAGE)).status_code == 403
