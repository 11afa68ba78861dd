"""Stored messages through the whole platform: a stock client's message is found, traced, sent again and handled on request."""

from __future__ import annotations

import uuid
from typing import Any

from tests.interop.clients import DriverProcess
from tests.interop.content import plans
from tests.interop.platform_cluster import PlatformCluster
from tests.processes import wait_until


def test_a_stock_clients_message_is_traced_sent_again_and_handled_on_request(
    java_client: DriverProcess, tenant_cluster: PlatformCluster
) -> None:
    topic, group = f"topic-{uuid.uuid4().hex[:8]}", f"c-{uuid.uuid4().hex[:8]}"
    tenant_cluster.create_topic(topic, queues=1)
    api, path = tenant_cluster.api, tenant_cluster.path
    (message,) = plans(topic, 1, sizes=[100])
    with java_client.consumer(tenant_cluster.cluster, topic, group=group, trace=True) as consumer:
        (sent,) = java_client.produce(tenant_cluster.cluster, topic, [message], group=f"p-{group}", trace=True)
        consumer.receive(1)

        def story() -> dict[str, Any]:
            answer = api.get(f"{path}message-trace/", params={"q": sent["msg_id"], "topic": topic})
            assert answer.status_code == 200, answer.text
            traces: dict[str, Any] = answer.json()["traces"]
            return traces

        wait_until(
            lambda: [one["result"] for one in story()["deliveries"]] == ["success"], timeout_s=60.0, what="the trace"
        )
        assert [one["group"] for one in story()["sends"]] == [f"p-{group}"]

        place = f"{path}topics/{topic}/messages/{sent['broker']}/{sent['queue_id']}/{sent['queue_offset']}/"
        resent = api.post(f"{place}resend/", json={"tags": "again"})
        assert resent.status_code == 201, resent.text
        (copy,) = consumer.receive(1)
        assert copy["properties"]["RESEND_OF"] == sent["offset_msg_id"]
        assert api.post(f"{place}resend/", json={}).json()["code"] == "resent_before"

        (member,) = api.get(f"{path}consumer-groups/{group}/members/").json()["members"]
        body = {"group": group, "client_id": member["client_id"]}
        handled = api.post(f"{place}consume/", json=body)
        assert (handled.status_code, handled.json()["result"]) == (200, "CR_SUCCESS"), handled.text
        assert len(consumer.receive(1)) == 1
        (again,) = api.get(f"{path}topics/{topic}/messages/", params={"since": "2020-01-01T00:00:00Z"}).json()[
            "results"
        ][1:]
        assert again["tags"] == "again"
