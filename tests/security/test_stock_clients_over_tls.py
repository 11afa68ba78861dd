"""The stock Java client with `useTLS`, against a name server and a broker that take nothing else. Go's (2.1.2) has no TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqwire.codes import ResponseCode
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.interop.stock import ProgramFailed, run_java
from tests.processes import wait_until
from tests.remoting import exchange
from tests.security.certificates import Authority
from tests.security.test_tls import keys, route_request, secured

JAVA_PROGRAM = """
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        try {
            System.out.println(producer.send(new Message(arguments[1], "Hello".getBytes(StandardCharsets.UTF_8))));
        } finally {
            producer.shutdown(); // its threads would keep the program from ending
        }
    }
}
"""

JAVA_WITH_TLS = JAVA_PROGRAM.replace("producer.start();", "producer.setUseTLS(true);\n        producer.start();")


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "ca")
    enforcing = {"tls.server.mode": "enforcing"}
    names = NameServerDaemon(folder / "names", keys(authority, "names", **enforcing)).start()
    conf = {**keys(authority, "broker", **enforcing), "tls.enable": "true"}
    broker = BrokerDaemon(folder / "broker", names.address, conf).start()

    def registered() -> bool:
        with secured(names.address, authority.client_context()) as stream:
            reply = exchange(stream, route_request())
            return reply.code == ResponseCode.SUCCESS and broker.address.encode() in bytes(reply.body)

    try:
        wait_until(registered, timeout_s=60, what="the registration over TLS")
        yield names.address
    finally:
        broker.kill()
        names.kill()


def test_a_java_program_sends_over_tls(namesrv: str, tmp_path: Path) -> None:
    assert "sendStatus=SEND_OK" in run_java(JAVA_WITH_TLS, tmp_path, [namesrv, "hello-java"])


def test_a_program_without_tls_is_not_served(namesrv: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="RemotingSendRequestException"):
        run_java(JAVA_PROGRAM, tmp_path, [namesrv, "hello-plain"])
