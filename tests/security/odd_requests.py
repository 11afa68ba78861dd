"""Well-signed requests with odd fields and bodies, for every code that a broker serves: what only a holder of a key gets to."""

from __future__ import annotations

import json
import random

from brokerd.acl_needs import NEEDS
from mqwire.acl import sign_request
from mqwire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, SubscriptionGroupConfig
from mqwire.codes import RequestCode, SerializeType
from mqwire.command import RemotingCommand
from tests.mutated_frames import INTERESTING_NUMBERS, mutated
from tests.security.accounts import PROGRAM, TENANT_ADMIN

# Deleting what the good client uses, or closing the broker to it, is an administrator's right: no fault that fuzzing finds.
_CODES = sorted(NEEDS.keys() - {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER})
_NAMES = [
    *(
        "orders",
        "fuzzed",
        "%RETRY%g",
        "%DLQ%g",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_METADATA",
        "g",
        "CID_ONSAPI_PULL",
    ),
    *("", " ", "a/../b", "x" * 300, "标签", "a@b", "a\nb", "\x00", "orders;orders;fuzzed"),
]
_NAMING = [
    *(
        "topic",
        "group",
        "consumerGroup",
        "producerGroup",
        "b",
        "a",
        "c",
        "defaultTopic",
        "srcGroup",
        "destGroup",
        "topicList",
    ),
    *(
        "clientId",
        "brokerName",
        "key",
        "uniqKey",
        "originMsgId",
        "msgId",
        "expressionType",
        "subscription",
        "groupName",
    ),
]
_NUMBERING = [
    *(
        "queueId",
        "offset",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
        "d",
    ),
    *(
        "e",
        "f",
        "g",
        "h",
        "j",
        "l",
        "timestamp",
        "beginTimestamp",
        "endTimestamp",
        "maxNum",
        "delayLevel",
        "maxReconsumeTimes",
    ),
    *(
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicSysFlag",
        "timeout",
        "topicSeq",
        "maxTopicNum",
        "groupSeq",
        "maxGroupNum",
    ),
    *("maxMsgBytes", "count", "batch", "m", "order", "isForce", "unitMode", "cleanOffset"),
]
_ODD_TEXTS = [
    "",
    "-1",
    "-9223372036854775809",
    "1e9",
    "0x10",
    "١٢",
    "true",
    "null",
    "TAG",
    "*",
    "a || b",
    "\ud800".encode("utf-8", "replace").decode(),
]
_PROPERTIES = [
    "",
    "KEYS\x01k\x02",
    "DELAY\x013\x02",
    "TRAN_MSG\x01true\x02",
    "\x01\x02",
    "a\x01b",
    "TAGS\x01t\x02WAIT\x01false\x02",
]


def _bodies() -> list[bytes]:
    subscription = SubscriptionData(topic="orders", sub_string="a || b", tags_set=["a", "b"], code_set=[97, 98])
    consumer = ConsumerData(group_name="g", subscription_data_set=[subscription])
    queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": number} for number in (0, 1, -1)]
    topics = [
        {
            "topicName": "fuzzed",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "attributes": {"message.type": "FIFO"},
        }
    ]
    return [
        b"",
        b"body",
        HeartbeatData(
            client_id="c", consumer_data_set=[consumer], producer_data_set=[ProducerData(group_name="p")]
        ).to_json(),
        SubscriptionGroupConfig(group_name="g", attributes={"+a": "b"}).to_json(),
        json.dumps({"groupConfigList": [{"groupName": "g"}, {"groupName": "h", "retryQueueNums": 3}]}).encode(),
        json.dumps({"topicConfigList": topics}).encode(),
        json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode(),
        json.dumps({"clientId": "c", "group": "g", "subscriptionData": {"topic": "orders", "subString": "*"}}).encode(),
        b"\x00\x00\x00\x1b" + bytes(23),  # a batch's message, as far as its length says
    ]


_BODIES = _bodies()


def _mostly(names: list[str], source: random.Random) -> list[str]:
    """All but a few, so that some requests lack none that they need."""
    return source.sample(names, len(names) - source.randint(0, 3))


def odd_request(source: random.Random) -> bytes:
    """A frame that the codec and the signature let through."""
    fields = {}
    for name in _mostly(_NAMING, source):
        fields[name] = source.choice(_NAMES) if source.random() < 0.3 else "g" if "roup" in name else "orders"
    for name in _mostly(_NUMBERING, source):
        number = source.choice([0, 1, 2, 4, 6, source.choice(INTERESTING_NUMBERS)])
        fields[name] = str(number) if source.random() < 0.9 else source.choice(_ODD_TEXTS)
    fields["i" if source.random() < 0.5 else "properties"] = source.choice(_PROPERTIES)
    body = source.choice(_BODIES)
    request = RemotingCommand.request(
        source.choice(_CODES),
        ext_fields=fields,
        body=mutated(body, source) if source.random() < 0.5 else body,
        serialize_type=source.choice(list(SerializeType)),
        oneway=source.random() < 0.1,
    )
    sign_request(request, source.choice([PROGRAM, TENANT_ADMIN]))
    return request.encode()
