"""Programs as a newcomer would write them, from source text to a delivered message."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.interop.stock import ProgramFailed, run_go, run_java
from tests.interop.targets import Target

JAVA_PROGRAM = """
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        System.out.println(producer.send(new Message(arguments[1], "Hello".getBytes(StandardCharsets.UTF_8))));
        producer.shutdown();
    }
}
"""

GO_PROGRAM = """
package main

import (
    "context"
    "fmt"
    "os"

    "github.com/apache/rocketmq-client-go/v2"
    "github.com/apache/rocketmq-client-go/v2/primitive"
    "github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
    p, err := rocketmq.NewProducer(producer.WithNameServer([]string{os.Args[1]}), producer.WithGroupName("hello"))
    if err != nil {
        panic(err)
    }
    if err := p.Start(); err != nil {
        panic(err)
    }
    result, err := p.SendSync(context.Background(), primitive.NewMessage(os.Args[2], []byte("Hello")))
    if err != nil {
        panic(err)
    }
    fmt.Println(result)
    _ = p.Shutdown()
}
"""


@pytest.fixture
def topic(target: Target) -> str:
    name = f"hello-{uuid.uuid4().hex[:8]}"
    target.create_topic(name)
    return name


def test_a_java_program_sends_a_message(target: Target, topic: str, tmp_path: Path) -> None:
    assert "sendStatus=SEND_OK" in run_java(JAVA_PROGRAM, tmp_path, [target.cluster.namesrv, topic])


def test_a_go_program_sends_a_message(target: Target, topic: str, tmp_path: Path) -> None:
    assert "sendStatus=0" in run_go(GO_PROGRAM, tmp_path, [target.cluster.namesrv, topic])


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="no such luck"):
        run_go('package main\n\nfunc main() { panic("no such luck") }\n', tmp_path)
