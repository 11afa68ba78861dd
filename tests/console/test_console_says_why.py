"""Pages without what they are for say why, and what to do; what a broker or the API answered reads as a sentence there."""

import pytest
from django.test import Client
from django.urls import reverse

from controlplane.clusters.models import OperationState
from controlplane.console.templatetags.console import coded, ended
from tests.console.world import World, make_operation

GROUP = "clusters/orders/groups/broker-a"


@pytest.mark.parametrize("verb", ["transfer", "replace"])
def test_a_group_of_which_no_replica_can_be_chosen_offers_no_button_that_asks_for_one(world: World, verb: str) -> None:
    page = world.client(world.alice).get(world.path(f"{GROUP}/{verb}/")).content.decode()
    assert "No replica can be chosen at the moment." in page
    assert "Show what would happen" not in page
    assert "Back to the cluster" in page


def test_a_log_in_that_failed_elsewhere_for_no_known_reason_says_so(client: Client) -> None:
    page = client.get(reverse("socialaccount_login_error")).content.decode()
    assert "Your provider did not confirm who you are." in page


def test_who_is_not_allowed_reads_the_role_without_the_quotes_of_the_api(world: World) -> None:
    page = world.client(world.victor).get(world.path("new-cluster/")).content.decode()
    assert "This needs the role <code>operator</code> or above" in page
    assert "`" not in page


def test_what_stands_in_backquotes_is_still_text() -> None:
    assert coded("the role `<b>` & more") == "the role <code>&lt;b&gt;</code> &amp; more"
    assert coded("one ` alone, <b>") == "one ` alone, &lt;b&gt;"


@pytest.mark.parametrize(("said", "read"), [("no answer", "no answer."), ("No answer.", "No answer."), ("", "")])
def test_a_sentence_before_another_one_ends(said: str, read: str) -> None:
    assert ended(said) == read


@pytest.mark.parametrize(("state", "says"), [(OperationState.IN_PROGRESS, True), (OperationState.COMPLETED, False)])
def test_only_work_that_goes_on_can_be_left(world: World, state: OperationState, *, says: bool) -> None:
    operation = make_operation(world.cluster, state, 1)
    page = world.client(world.alice).get(world.path(f"operations/{operation.pk}/")).content.decode()
    assert ("You may leave this page" in page) is says


def test_a_disk_of_which_nothing_is_known_is_not_said_to_be_full(world: World) -> None:
    page = world.client(world.alice).get(world.cluster_path()).content.decode()
    assert "share of the disk not known" in page
    assert " full</dd>" not in page
