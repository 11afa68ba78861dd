"""Transactions are not served yet: Java's own transactional producer is told so, and what to do instead."""

from __future__ import annotations

from pathlib import Path

from highwater import Admin
from tests.interop.stock import run_java
from tests.interop.targets import Target

PROGRAM = """
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Transactions {
    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("transactions");
        producer.setNamesrvAddr(arguments[0]);
        producer.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                System.out.println("executed");
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            producer.sendMessageInTransaction(new Message(arguments[1], "half".getBytes()), null);
            System.out.println("sent");
        } catch (MQClientException error) {
            System.out.print("refused: ");
            error.printStackTrace(System.out);  // the broker's words are two causes down
        }
        producer.shutdown();
    }
}
"""


def test_javas_transactional_producer_is_refused_with_a_way_out(target: Target, topic: str, tmp_path: Path) -> None:
    output = run_java(PROGRAM, tmp_path, [target.cluster.namesrv, topic])
    assert "refused: " in output
    assert "does not serve transactions yet; nothing was stored. Send an ordinary message" in output
    assert "executed" not in output
    with Admin(target.cluster.namesrv) as admin:
        assert admin.topic_stats(topic).message_count == 0
