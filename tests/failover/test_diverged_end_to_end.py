"""An unclean promotion over REST, nothing replaced: the old master sets aside what the new one never had; it is looked at,
compared, sent again once, put away. One cluster serves the module, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from highwater import Message, Producer
from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import stored
from tests.support.platform_stack import PlatformStack

TENANT = "diverging"
TOPIC = "payments"
LOST = [f"lost {number}" for number in range(5)]


@pytest.fixture(scope="module")
def live(platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    """A group whose new master lacks five acknowledged messages of the old one, which has come back."""
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, "loose", mode="async", replicas=2)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 1, "write_queue_nums": 1})
        assert answer.status_code == 201, answer.text
        live.wait_group(lambda group: bool(group["state"] == "healthy"), "healthy")
        send(live, "both")
        live.wait_group(lambda group: group["replicas"][1]["gap_bytes"] == "0", "the slave has it")
        live.lose_machine(1)
        send(live, *LOST)
        live.lose_machine(0)
        live.machine_is_back(1)
        live.wait_group(
            lambda group: group["state"] == "no_master" and group["replicas"][1]["role"] == "slave", "noticed"
        )
        answer = live.ask("promote", {"confirm": "broker-a"})
        assert answer.status_code == 202, answer.text
        wait_for(
            lambda: [line["name"] for line in live.failover(answer.json())["timeline"]],
            lambda names: "first_write" in names,
            "first write",
        )
        live.machine_is_back(0)
        assert live.finished(answer.json())["state"] == "completed"
        send(live, "new")
        yield live
        assert api.delete(live.path).status_code == 202


def send(live: LiveGroup, *bodies: str) -> None:
    with Producer(namesrv=live.get()["namesrv_addr"], group="shop", credentials=live.credentials) as producer:
        for body in bodies:
            producer.send(Message(TOPIC, body.encode(), keys=[body.replace(" ", "-")]))


def cut(live: LiveGroup) -> dict[str, Any]:
    found: list[dict[str, Any]] = wait_for(
        lambda: live.get("diverged/")["results"], lambda cuts: bool(cuts), "the old master sets its messages aside"
    )
    assert len(found) == 1
    return found[0]


def address(live: LiveGroup) -> str:
    one = cut(live)
    return f"diverged/{one['group']}/{one['replica_id']}/{one['name']}/"


def test_the_list_says_who_set_aside_how_many_messages_of_which_topics(live: LiveGroup) -> None:
    found = cut(live)
    assert (found["group"], found["replica_id"], found["reason"]) == ("broker-a", 0, "diverged")
    assert (found["messages"], found["topics"]) == ("5", [{"topic": TOPIC, "messages": "5"}])
    assert found["cut_at"] is not None
    assert live.get("diverged/")["silent"] == []


def test_each_message_is_shown_and_the_group_lacks_it(live: LiveGroup) -> None:
    page = live.get(f"{address(live)}messages/")
    assert [one["body"]["text"] for one in page["results"]] == LOST
    assert page["results"][0]["keys"] == ["lost-0"]
    assert {one["fate"] for one in page["results"]} <= {"replaced", "missing"}
    assert page["next_position"] is None


def test_messages_are_read_page_by_page(live: LiveGroup) -> None:
    first = live.get(f"{address(live)}messages/?limit=2")
    rest = live.get(f"{address(live)}messages/?limit=3&position={first['next_position']}")
    assert [one["body"]["text"] for one in first["results"] + rest["results"]] == LOST


def test_they_are_taken_away_as_a_file(live: LiveGroup) -> None:
    lines = live.api.get(f"{live.path}{address(live)}export/").text.splitlines()
    assert [f"lost {number}" in line for number, line in enumerate(lines)] == [True] * 5


def resent(live: LiveGroup, body: dict[str, Any]) -> dict[str, Any]:
    answer = live.api.post(f"{live.path}{address(live)}resends/", json=body)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = wait_for(
        lambda: live.get(f"diverged-resends/{answer.json()['id']}/"),
        lambda resend: resend["state"] != "running",
        "the resend ends",
    )
    return found


def test_selected_ones_are_sent_again_with_their_ids_and_say_where_they_came_from(live: LiveGroup) -> None:
    page = live.get(f"{address(live)}messages/")["results"]
    report = resent(live, {"positions": [int(page[1]["position"]), int(page[3]["position"])]})
    assert (report["state"], report["total"], report["sent"]) == ("completed", "2", "2")
    assert sorted(stored(live, TOPIC)) == ["both", "lost 1", "lost 3", "new"]
    (copy,) = live.get(f"topics/{TOPIC}/messages/search/?key=lost-1")["results"]
    assert copy["message_id"] == page[1]["message_id"]
    assert copy["properties"]["DIVERGED_OF"].startswith("broker-a/0/")


def test_a_second_resend_brings_back_the_others_and_no_message_twice(live: LiveGroup) -> None:
    wait_for(
        lambda: [one["fate"] for one in live.get(f"{address(live)}messages/")["results"]],
        lambda fates: fates.count("moved") + fates.count("present") == 2,  # one may come to lie where it was
        "the index knows what was sent again",
    )
    report = resent(live, {})
    assert (report["sent"], report["skipped"], report["unknown"]) == ("3", "2", "0")
    assert sorted(stored(live, TOPIC)) == ["both", *LOST, "new"]


def test_it_is_marked_as_done_and_the_file_stays(live: LiveGroup) -> None:
    answer = live.api.post(f"{live.path}{address(live)}done/", json={"note": "sent again"})
    assert answer.status_code == 200, answer.text
    assert cut(live)["done"]["note"] == "sent again"


def test_it_is_deleted_only_with_the_groups_name(live: LiveGroup) -> None:
    where = f"{live.path}{address(live)}"
    refused = live.api.delete(where)
    assert (refused.status_code, refused.json()["code"]) == (409, "confirmation_needed")
    assert live.api.delete(f"{where}?confirm=broker-a").status_code == 204
    assert live.get("diverged/")["results"] == []
    actions = [one["action"] for one in live.api.get(f"tenants/{TENANT}/audit-events/").json()["results"]]
    assert {"diverged.resend", "diverged.export", "diverged.done", "diverged.delete"} <= set(actions)
