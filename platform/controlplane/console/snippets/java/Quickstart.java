import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

public class Quickstart {
    public static void main(String[] args) throws Exception {
        System.setProperty("tls.test.mode.enable", "false"); // @TLS@
        System.setProperty("tls.client.authServer", "true"); // @TLS@
        System.setProperty("tls.client.trustCertPath", "ca.pem"); // @TLS@
        RPCHook acl = new AclClientRPCHook(new SessionCredentials("@ACCESS_KEY@", "@SECRET_KEY@"));
        String key = UUID.randomUUID().toString();
        CountDownLatch received = new CountDownLatch(1);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("quickstart-java", acl);
        consumer.setNamesrvAddr("@NAMESRV_ADDR@");
        // A new group begins with the oldest message: its first run also prints what the topic holds already.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("@TOPIC@", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                System.out.println("received " + new String(message.getBody(), StandardCharsets.UTF_8));
                if (key.equals(message.getKeys())) {
                    received.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setUseTLS(true); // @TLS@
        consumer.start();

        DefaultMQProducer producer = new DefaultMQProducer("quickstart-java", acl);
        producer.setNamesrvAddr("@NAMESRV_ADDR@");
        producer.setUseTLS(true); // @TLS@
        producer.start();
        byte[] body = "Hello from Java".getBytes(StandardCharsets.UTF_8);
        SendResult result = producer.send(new Message("@TOPIC@", "greeting", key, body));
        System.out.println("sent " + result.getSendStatus() + " " + result.getMsgId());

        boolean complete = received.await(60, TimeUnit.SECONDS);
        producer.shutdown();
        consumer.shutdown();
        System.exit(complete ? 0 : 1);
    }
}
