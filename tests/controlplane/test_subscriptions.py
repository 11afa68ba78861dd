"""Which members of a group subscribe otherwise than the others."""

from __future__ import annotations

from controlplane.consumers.subscriptions import Difference, OddMember, Subscribed, compare

ALL = Subscribed("*")
PAID = Subscribed("paid")


def test_the_minority_is_named_with_what_differs() -> None:
    usual = {"orders": ALL, "refunds": ALL}
    found = compare({"a": usual, "b": {"orders": PAID, "stock": ALL}, "c": usual})
    assert found.has_majority
    assert found.odd == (
        OddMember(
            "b",
            (Difference("orders", PAID, ALL), Difference("refunds", None, ALL), Difference("stock", ALL, None)),
        ),
    )


def test_another_type_of_expression_is_a_difference() -> None:
    sql = Subscribed("paid", "SQL92")
    (odd,) = compare({"a": {"orders": PAID}, "b": {"orders": PAID}, "c": {"orders": sql}}).odd
    assert odd == OddMember("c", (Difference("orders", sql, PAID),))


def test_tags_in_another_order_are_the_same_and_so_are_nothing_and_all() -> None:
    assert compare({"a": {"orders": Subscribed("x||y")}, "b": {"orders": Subscribed("y || x")}}).odd == ()
    assert compare({"a": {"orders": Subscribed("")}, "b": {"orders": ALL}}).odd == ()


def test_without_a_majority_the_difference_is_to_one_that_is_named() -> None:
    found = compare({"b": {"orders": PAID}, "a": {"orders": ALL}})
    assert (found.has_majority, found.example) == (False, "a")
    assert [one.client_id for one in found.odd] == ["b"]


def test_a_group_of_which_no_one_reports_has_no_odd_member() -> None:
    assert compare({}).odd == ()
