"""What trace records say of one message, put together."""

from __future__ import annotations

from highwater.trace_story import trace_story
from mqwire.trace_records import TraceKind, TraceRecord


def pub(message_id: str = "M", **members: object) -> TraceRecord:
    values = {
        "timestamp_ms": 10,
        "topic": "orders",
        "group": "shop",
        "cost_ms": 2,
        "is_success": True,
        "message_type": 0,
    }
    return TraceRecord(TraceKind.PUB, message_id, **{**values, **members})  # type: ignore[arg-type]  # as each test says


def before(request_id: str = "R1", timestamp_ms: int = 20, retried: int = 0) -> TraceRecord:
    return TraceRecord(TraceKind.SUB_BEFORE, "M", timestamp_ms, group="billing", request_id=request_id, retried=retried)


def after(
    request_id: str = "R1", *, code: int | None = 0, is_success: bool = True, group: str = "billing"
) -> TraceRecord:
    return TraceRecord(
        TraceKind.SUB_AFTER,
        "M",
        25,
        group=group,
        request_id=request_id,
        cost_ms=5,
        code=code,
        is_success=is_success,
    )


def test_a_delivery_is_its_begin_and_its_end() -> None:
    story = trace_story("M", [("10.0.0.8", after()), ("10.0.0.7", pub()), ("10.0.0.8", before())])
    (send,), (delivery,) = story.sends, story.deliveries
    assert (send.address, send.message_type, send.is_success) == ("10.0.0.7", "normal", True)
    assert (delivery.began_ms, delivery.address, delivery.cost_ms, delivery.result) == (20, "10.0.0.8", 5, "success")


def test_the_address_is_the_one_that_the_broker_saw_whatever_the_record_says() -> None:
    (send,) = trace_story("M", [("10.0.0.7", pub(client_host="192.0.2.1"))]).sends
    assert send.address == "10.0.0.7"


def test_a_delivery_without_an_end_has_no_result() -> None:
    (delivery,) = trace_story("M", [("a", before())]).deliveries
    assert (delivery.result, delivery.cost_ms) == ("", None)


def test_of_a_delivery_of_which_only_the_end_is_left_the_begin_is_reckoned() -> None:
    (delivery,) = trace_story("M", [("a", after())]).deliveries
    assert (delivery.began_ms, delivery.retried) == (20, None)


def test_why_a_delivery_failed_follows_from_its_code() -> None:
    reported = [("a", after(f"R{code}", code=code, is_success=False)) for code in (None, 0, 1, 2, 3, 4, 9)]
    results = {one.result for one in trace_story("M", reported).deliveries}
    assert results == {"failed", "time_out", "exception", "returned_null", "9"}


def test_records_of_other_messages_are_left_out_and_those_of_a_batch_are_not() -> None:
    story = trace_story("M", [("a", pub("other")), ("a", pub("L,M,N")), ("a", pub("MM"))])
    assert len(story.sends) == 1


def test_a_record_that_came_twice_counts_once() -> None:
    assert len(trace_story("M", [("a", pub()), ("a", pub())]).sends) == 1


def test_the_same_request_id_at_two_clients_is_two_deliveries() -> None:
    assert len(trace_story("M", [("a", before()), ("b", before())]).deliveries) == 2


def test_without_records_there_is_no_story() -> None:
    assert not trace_story("M", [])


def test_a_record_from_another_address_than_the_messages_is_marked() -> None:
    records = [("10.0.0.7", pub()), ("10.0.0.9", pub(timestamp_ms=11))]
    assert [one.is_from_sender for one in trace_story("M", records, sender="10.0.0.7").sends] == [True, False]
    assert {one.is_from_sender for one in trace_story("M", records).sends} == {None}


def test_the_end_of_a_transaction_from_another_address_is_marked() -> None:
    ended = TraceRecord(TraceKind.END_TRANSACTION, "M", 12, group="shop", transaction_state="COMMIT_MESSAGE")
    (transaction,) = trace_story("M", [("10.0.0.9", ended)], sender="10.0.0.7").transactions
    assert transaction.is_from_sender is False


def test_an_end_that_names_another_group_ends_no_delivery_of_this_one() -> None:
    deliveries = trace_story("M", [("a", before()), ("a", after(group="spy"))]).deliveries
    assert sorted((one.group, one.result) for one in deliveries) == [("billing", ""), ("spy", "success")]


def test_an_end_without_a_group_is_marked_and_gives_way_to_one_with_it() -> None:
    (delivery,) = trace_story("M", [("a", before()), ("a", after(group=""))]).deliveries
    assert (delivery.result, delivery.end_names_group) == ("success", False)
    records = [("a", before()), ("a", after(group="", code=1, is_success=False)), ("a", after())]
    own = [one for one in trace_story("M", records).deliveries if one.group == "billing"]
    assert [(one.result, one.end_names_group) for one in own] == [("success", True)]
