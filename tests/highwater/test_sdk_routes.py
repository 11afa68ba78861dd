"""Routes: from a name server's answer to queues and addresses."""

from __future__ import annotations

from highwater import MessageQueue, TopicRoute
from highwater._pull import parse_expression
from highwater._routes import route_for_new_topic, route_from_data
from mqwire.bodies import BrokerData, QueueData, TopicRouteData


def data(*, perm_b: int = 6, addresses_b: dict[int, str] | None = None, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        order_topic_conf=order,
        queue_datas=[
            QueueData(broker_name="b", read_queue_nums=2, write_queue_nums=1, perm=perm_b),
            QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=2, perm=6),
        ],
        broker_datas=[
            BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1", 1: "h:2"}),
            BrokerData(cluster="c", broker_name="b", broker_addrs={0: "h:3"} if addresses_b is None else addresses_b),
        ],
    )


def shown(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def route(**options: object) -> TopicRoute:
    return route_from_data("t", data(**options))  # type: ignore[arg-type]  # keywords of `data`


def test_write_queues_are_published_to_and_read_queues_subscribed_to() -> None:
    assert shown(route().publish_queues) == ["a0", "a1", "b0"]
    assert shown(route().subscribe_queues) == ["a0", "b0", "b1"]


def test_a_broker_without_write_permission_is_only_read_from() -> None:
    assert shown(route(perm_b=4).publish_queues) == ["a0", "a1"]
    assert shown(route(perm_b=4).subscribe_queues) == ["a0", "b0", "b1"]


def test_a_broker_group_without_a_master_is_only_read_from() -> None:
    without_master = route(addresses_b={2: "h:9"})
    assert shown(without_master.publish_queues) == ["a0", "a1"]
    assert without_master.master_address("b") is None
    assert without_master.read_address("b") == "h:9"


def test_reads_go_to_the_replica_that_was_suggested_or_else_to_the_master() -> None:
    assert route().read_address("a", 1) == "h:2"
    assert route().read_address("a", 7) == "h:1"
    assert route().read_address("unknown") is None


def test_a_question_about_a_group_goes_to_a_master_if_there_is_one() -> None:
    assert route(addresses_b={2: "h:9"}).any_address() == "h:1"


def test_an_order_configuration_fixes_the_queues_even_while_a_broker_is_away() -> None:
    ordered = route(order="a:1;gone:2")
    assert ordered.ordered
    assert shown(ordered.publish_queues) == ["a0", "gone0", "gone1"]


def test_a_new_topic_gets_as_many_of_the_templates_queues_as_asked_for() -> None:
    template = route_from_data("TBW102", data())
    new = route_for_new_topic("new", template, 1)
    assert new.publish_queues == (MessageQueue("new", "a", 0), MessageQueue("new", "b", 0))


def test_tag_expressions_are_parsed_as_rocketmq_does() -> None:
    assert parse_expression("t", " * ", 1).tags == frozenset()
    assert parse_expression("t", "a || b|| c", 1).tags == {"a", "b", "c"}
    assert parse_expression("t", "a||", 1).tags == {"a"}
