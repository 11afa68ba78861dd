"""What services and the SDK say of groups, messages and budgets is read in the language of the page."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings
from django.template import Context, Template
from django.test import Client
from django.urls import reverse
from django.utils import translation

from controlplane.billing.models import BudgetAlert
from controlplane.clusters.remarks import error_words
from controlplane.common.catalogues import read_catalogue
from controlplane.common.sentences import from_sdk, say
from controlplane.consumers.models import DeadLetterReplay, ReplayState
from controlplane.insight.words import trend_words, warnings_of
from highwater import sentences as sdk
from highwater.errors import broker_error
from mqwire.codes import ResponseCode
from tests.console.test_console_lag import NOW
from tests.console.world import World
from tests.controlplane.billing_world import lag_window
from tests.controlplane.world import dead_letter_replay, offset_reset

_SDK = Path(settings.ROOT_DIR) / "platform" / "highwater"


def chinese(client: Client) -> Client:
    client.cookies["language"] = "zh-hans"
    return client


def shown_in_chinese(text: str) -> str:
    with translation.override("zh-hans"):
        return Template("{{ text }}").render(Context({"text": text}))


@pytest.fixture
def stopped(world: World) -> DeadLetterReplay:
    """A replay that a rule stopped, and that skipped one message."""
    place = {"broker_name": "broker-a", "queue_id": 0, "offset": 3}
    return dead_letter_replay(
        world.cluster,
        ReplayState.STOPPED,
        message=say("The cluster was deleted."),
        outcomes=[{**place, "outcome": "skipped", "reason": say("The cluster has no topic %(topic)s.", topic="gone")}],
    )


def replay_address(world: World, replay: DeadLetterReplay) -> str:
    return reverse("console:dead-letter-replay", args=[world.tenant.slug, world.cluster.slug, "billing", replay.pk])


def test_how_a_replay_ended_is_read_in_chinese(world: World, stopped: DeadLetterReplay) -> None:
    page = chinese(world.client(world.alice)).get(replay_address(world, stopped)).content.decode()
    assert "集群已被删除。" in page
    assert "集群中没有主题 gone。" in page


def test_how_a_replay_ended_is_read_in_english(world: World, stopped: DeadLetterReplay) -> None:
    page = world.client(world.alice).get(replay_address(world, stopped)).content.decode()
    assert "The cluster was deleted." in page
    assert "The cluster has no topic gone." in page


def test_the_api_shows_a_replay_in_english_to_a_reader_of_chinese_pages(
    world: World, stopped: DeadLetterReplay
) -> None:
    shown = chinese(world.client(world.alice)).get(stopped.path).json()
    assert shown["message"] == "The cluster was deleted."
    assert shown["outcomes"][0]["reason"] == "The cluster has no topic gone."


def test_why_a_queue_was_not_reset_is_read_in_chinese(world: World) -> None:
    reset = offset_reset(world.cluster)
    reset.queues[1] |= {"outcome": "failed", "error": say("not asked: %(problem)s", problem="no route")}
    reset.save()
    lag_window(world.cluster, NOW, lag=3)
    page = chinese(world.client(world.alice)).get(world.cluster_path("lag/billing/")).content.decode()
    assert "no route" in page
    assert "未执行" in page


def test_a_warning_names_a_length_of_time_in_chinese(world: World) -> None:
    window = lag_window(world.cluster, NOW, lag=500, stuck=True)
    assert "该消费者组停滞" in shown_in_chinese(warnings_of([window], NOW)[0].sentence)


def test_a_trend_is_said_in_both_languages() -> None:
    assert (trend_words(3.2), shown_in_chinese(trend_words(3.2))) == ("grows by 3.20 messages/s", "每秒增加 3.20 条")


def test_a_budgets_alert_names_its_month_in_chinese(world: World) -> None:
    alert = BudgetAlert(
        tenant=world.tenant,
        month=NOW.date().replace(year=2026, month=11, day=1),
        threshold_percent=80,
        spent=Decimal(81),
        budget=Decimal(100),
        currency="EUR",
    )
    assert alert.sentence.startswith("80 % of the budget for November 2026 is reached: ")
    assert shown_in_chinese(alert.sentence).startswith("已达到 2026 年 11 月预算的 80%")


def test_what_the_sdk_says_is_read_in_chinese_with_what_it_counts() -> None:
    times = sdk.say_count("once", "%(count)s times", 3)
    text = from_sdk(sdk.say("Its delivery failed %(tries)s. It is delivered again after its delay.", tries=times))
    assert text == "Its delivery failed 3 times. It is delivered again after its delay."
    assert shown_in_chinese(text) == "投递失败 3 次。延迟之后会再次投递。"


def test_why_a_broker_refused_is_read_in_chinese_and_its_own_words_are_named_as_such() -> None:
    words = error_words(broker_error(ResponseCode.NO_PERMISSION, "no right to PUB orders", "127.0.0.1:1"))
    assert words == "no permission. The broker’s own words: no right to PUB orders."
    meaning, own_words = shown_in_chinese(words).split("。", 1)
    assert meaning == "没有权限"
    assert "no right to PUB orders" in own_words


def test_a_code_that_no_one_knows_stands_for_itself() -> None:
    assert error_words(broker_error(4711, None, "127.0.0.1:1")) == "code_4711"


def test_every_message_of_the_sdk_has_a_chinese_one_with_its_placeholders() -> None:
    catalogue = read_catalogue(Path(settings.ROOT_DIR) / "web" / "locale" / "zh_Hans")
    calls = [
        node
        for path in _SDK.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("say", "say_count")
    ]
    assert len(calls) > 60
    for call in calls:
        texts = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        message = "\0".join(texts)
        placeholders = [set(re.findall(r"%\(\w+\)s", text)) for text in (message, catalogue[message])]
        assert placeholders[0] == placeholders[1], message
