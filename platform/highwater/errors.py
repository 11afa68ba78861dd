"""The SDK's error tree: one root, and every leaf says whose fault it is and whether trying again can help.

HighwaterError
├── ConfigurationError          the caller asked for something impossible
├── ClientStateError            used before start() or after stop()
├── MessageIllegalError         a message that no broker would take, found out before sending
├── NoRouteError                no name server knows a broker for the topic
├── ConnectError                no one answers at the address
├── ConnectionLostError         the connection broke while an answer was awaited
├── RequestTimeoutError         no answer in time (also a TimeoutError)
├── TimeSpentError              a WaitBudget is spent: nothing was sent
├── ProtocolError               the other end sent bytes that are not the protocol
└── BrokerError                 the other end answered with a code other than success
    ├── PermissionDeniedError   16: no right, a wrong signature, or the topic or group is closed
    ├── TopicNotFoundError      17
    ├── MessageRefusedError     13: the broker's own limits
    ├── BusyError               2, 14, 215: busy, or not serving at the moment
    ├── NotFoundError           22, 208: the query has no result
    ├── GroupNotFoundError      26
    ├── ConsumerOfflineError    206
    ├── ConsumerTooOldError     1: its version does not know what is asked of it
    └── NotSupportedError       3: the other end does not know the request

Errors of libraries beneath (sockets, anyio, mqwire) are translated where they arise and never reach the caller.
"""

from __future__ import annotations

from typing import ClassVar

from mqwire.codes import ResponseCode


class HighwaterError(Exception):
    """Root of all errors that the SDK raises.

    `code` is a stable word for programs. `retryable` says that the same call may succeed later; a send may then have
    been stored already, so that sending again can store it twice. `request_id` names the request in a log, where the
    other end gave one.
    """

    code: str = "error"
    retryable: bool = False
    request_id: str | None = None

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        if request_id is not None:
            self.request_id = request_id


class ConfigurationError(HighwaterError, ValueError):
    """A constructor or method was given something that can't work; the message names it and what is allowed."""

    code = "configuration"


class ClientStateError(HighwaterError):
    """The client has not been started, or was stopped."""

    code = "client_state"


class MessageIllegalError(HighwaterError, ValueError):
    """The message is too large, has no topic or breaks a naming rule: change it, sending again won't help."""

    code = "message_illegal"


class NoRouteError(HighwaterError):
    """No name server that answered knows the topic, or it has no queue to write to at the moment."""

    code = "no_route"
    retryable = True


class ConnectError(HighwaterError):
    """No connection could be made. Nothing was sent."""

    code = "connect"
    retryable = True


class ConnectionLostError(HighwaterError):
    """The connection broke before the answer came: the other end may or may not have done what was asked."""

    code = "connection_lost"
    retryable = True


class RequestTimeoutError(HighwaterError, TimeoutError):
    """No answer within the timeout: the other end may or may not have done what was asked."""

    code = "timeout"
    retryable = True


class TimeSpentError(HighwaterError):
    """The client's `WaitBudget` is spent: earlier requests waited for as long as they may together. Nothing was sent."""

    code = "time_spent"
    retryable = True


class ProtocolError(HighwaterError):
    """The other end does not speak the remoting protocol: a wrong port, a proxy, or TLS on one side only."""

    code = "protocol"


class BrokerError(HighwaterError):
    """A broker or name server refused.

    `response_code` is RocketMQ's ResponseCode, `remark` what the other end said, `address` who said it.
    """

    retryable_response_codes: ClassVar[frozenset[int]] = frozenset(
        {
            # DefaultMQProducer.retryResponseCodes, but for NO_PERMISSION and NO_BUYER_ID: no retry changes a right.
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.NOT_IN_CURRENT_UNIT,
            ResponseCode.GO_AWAY,
            ResponseCode.FLOW_CONTROL,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.POLLING_FULL,
        }
    )

    def __init__(self, response_code: int, remark: str | None, address: str, *, request_id: str | None = None) -> None:
        try:
            name = ResponseCode(response_code).name
        except ValueError:
            name = f"CODE_{response_code}"
        super().__init__(f"{address} answered {response_code} {name}: {remark or '(no remark)'}", request_id=request_id)
        self.response_code = response_code
        self.remark = remark
        self.address = address
        self.code = name.lower()
        self.retryable = response_code in self.retryable_response_codes


class PermissionDeniedError(BrokerError):
    """No right to do this, a wrong access key or signature, or a topic or group that is closed for it."""


class TopicNotFoundError(BrokerError):
    """The broker does not have the topic and may not create it."""


class MessageRefusedError(BrokerError):
    """The message breaks one of the broker's limits."""


class BusyError(BrokerError):
    """The broker is busy, read-only or stopping; another one, or the same one later, may take the request."""


class NotFoundError(BrokerError):
    """The query ran and found nothing."""


class GroupNotFoundError(BrokerError):
    """The broker does not have the subscription group and may not create it."""


class ConsumerOfflineError(BrokerError):
    """The request needs a consumer that is connected, and none is."""


class ConsumerTooOldError(BrokerError):
    """The request needs a consumer of a newer version than the one that is connected."""


class NotSupportedError(BrokerError):
    """The other end does not know this request; it is older, newer or of another kind than expected."""


_CLASSES: dict[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_BUSY: BusyError,
    ResponseCode.SERVICE_NOT_AVAILABLE: BusyError,
    ResponseCode.FLOW_CONTROL: BusyError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: NotSupportedError,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefusedError,
    ResponseCode.NO_PERMISSION: PermissionDeniedError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFoundError,
    ResponseCode.QUERY_NOT_FOUND: NotFoundError,
    ResponseCode.NO_MESSAGE: NotFoundError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerOfflineError,
}


def broker_error(response_code: int, remark: str | None, address: str) -> BrokerError:
    """The leaf of the tree that fits a response."""
    return _CLASSES.get(response_code, BrokerError)(response_code, remark, address)
