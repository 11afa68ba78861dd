"""What whoever was refused does next, where the refusal itself does not say. Pure."""

from __future__ import annotations

from typing import Final

from highwater.errors import HighwaterError

_KEY_PAIR: Final = (
    "a key pair that may Administer: make one on the cluster's page Credentials in the console, or by `highwater credential create"
    " CLUSTER --name NAME --role admin`, and give it by HIGHWATER_KEY and HIGHWATER_SECRET"
)
_MASTERS: Final = (
    "`highwater admin clusterList` lists the clusters, and `highwater admin haStatus -b BROKER` says who leads a group"
)

# The response code's word (or the error's own), what the refusal says, and the way out. The first that fits counts.
_WAYS_OUT: Final[tuple[tuple[str, str, str], ...]] = (
    ("no_permission", "needs an admin account", f"use {_KEY_PAIR}"),
    ("no_permission", " permission for ", f"use a key pair that has it, or {_KEY_PAIR}"),
    ("no_permission", "No accessKey", f"use {_KEY_PAIR}"),
    ("no_permission", "AccessKey is missing", f"use {_KEY_PAIR}"),
    ("no_permission", "AccessKey or Signature does not match", f"use {_KEY_PAIR}"),
    (
        "no_permission",
        "signature failed",
        "give the access key and the secret of one key pair of this cluster; its page Credentials in the console has them",
    ),
    (
        "topic_not_exist",
        "",
        "`highwater admin topicList` lists the topics, and `highwater admin updateTopic -t TOPIC -c CLUSTER` makes one",
    ),
    (
        "no_route",
        "knows topic",
        "`highwater admin topicList` lists the topics, and `updateTopic -t TOPIC -c CLUSTER` makes one",
    ),
    (
        "subscription_group_not_exist",
        "",
        "`highwater admin consumerProgress` lists the groups, and `highwater admin updateSubGroup -g GROUP -c CLUSTER` makes one",
    ),
    (
        "no_route",
        "no replica of broker group",
        "check the name by `clusterList`; one with brokerId 0 that knows no leader is registered nowhere: `--address HOST:PORT`",
    ),
    ("no_route", "no cluster ", "`highwater admin clusterList` lists the clusters"),
    ("no_route", "has no master", f"{_MASTERS}; a group without one is given one on the cluster's page in the console"),
    ("service_not_available", "slave", _MASTERS),
    ("service_not_available", "master", _MASTERS),
    (
        "request_code_not_supported",
        "",
        "the broker is of another version or kind: `highwater admin brokerStatus -b ADDRESS` shows which",
    ),
)


def way_out(error: HighwaterError) -> str | None:
    """What to do about an error; None where it says so itself, or no one knows."""
    said = str(error)
    return next((way for code, words, way in _WAYS_OUT if error.code == code and words in said), None)
