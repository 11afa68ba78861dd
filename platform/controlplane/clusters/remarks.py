"""What a broker or the way to it answered, as a page says it: the kind of a refusal in the reader's language, and the broker's own
words, which are English, named as such. Pure.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.common.sentences import from_sdk, say
from highwater.errors import BrokerError, HighwaterError
from mqwire.codes import ResponseCode

_MEANINGS: Final[Mapping[int, str]] = {
    ResponseCode.SYSTEM_ERROR: say("an error inside the broker"),
    ResponseCode.SYSTEM_BUSY: say("the broker is busy"),
    ResponseCode.FLOW_CONTROL: say("the broker is busy"),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: say("the broker does not know this request"),
    ResponseCode.FLUSH_DISK_TIMEOUT: say("the message was not on the disk in time"),
    ResponseCode.SLAVE_NOT_AVAILABLE: say("too few replicas are in sync"),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: say("the replicas did not confirm the message in time"),
    ResponseCode.MESSAGE_ILLEGAL: say("the message breaks a limit of the broker"),
    ResponseCode.SERVICE_NOT_AVAILABLE: say("the broker does not serve this at the moment"),
    ResponseCode.NO_PERMISSION: say("no permission"),
    ResponseCode.TOPIC_NOT_EXIST: say("the broker does not have the topic"),
    ResponseCode.QUERY_NOT_FOUND: say("nothing was found"),
    ResponseCode.NO_MESSAGE: say("nothing was found"),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: say("the broker does not have the consumer group"),
    ResponseCode.INVALID_PARAMETER: say("a value that the broker does not take"),
    ResponseCode.CONSUMER_NOT_ONLINE: say("no such consumer is connected"),
}


def error_words(error: HighwaterError) -> str:
    """Return what went wrong, without the address of a broker that refused."""
    if isinstance(error, BrokerError):
        return refusal_words(error.response_code, error.code, error.remark)
    message = error.args[0] if error.args else ""
    return from_sdk(message) if isinstance(message, str) and message else type(error).__name__


def refusal_words(response_code: int, name: str, remark: str | None) -> str:
    """Return why a broker refused; `name` stands for a code of which nothing else is known."""
    meaning = _MEANINGS.get(response_code, name)
    said = (remark or "").strip().rstrip(".")
    return say("%(meaning)s. The broker’s own words: %(remark)s.", meaning=meaning, remark=said) if said else meaning
