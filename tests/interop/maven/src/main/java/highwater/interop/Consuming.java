package highwater.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Receiving: push consumers that collect what they get, lite pull and plain pull. */
final class Consuming {
    private static final Map<String, Collector> CONSUMERS = new HashMap<>();
    // A client commits each 5 s, for the first time 10 s after its start: every test of that would wait as long.
    private static final ScheduledExecutorService COMMITTING = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "committing");
        thread.setDaemon(true);
        return thread;
    });

    private Consuming() {}

    static void register(Map<String, Driver.Operation> operations) {
        operations.put("consumer_start", Consuming::start);
        operations.put("consumer_poll", order -> collector(order).poll(
            order.getIntValue("count"), order.getLongValue("timeout_ms")));
        operations.put("consumer_stop", Consuming::stop);
        operations.put("lite_pull", Consuming::litePull);
        operations.put("pull", Consuming::pull);
    }

    /** A push consumer and everything that its listener was given. */
    private static final class Collector {
        final DefaultMQPushConsumer consumer;
        final boolean failing;
        final int succeedAfterReconsumes;
        ScheduledFuture<?> commits;
        private final List<Map<String, Object>> received = new ArrayList<>();
        private int polled;

        Collector(DefaultMQPushConsumer consumer, JSONObject order) {
            this.consumer = consumer;
            this.failing = order.containsKey("fail_until_reconsume_times");
            this.succeedAfterReconsumes = order.getIntValue("fail_until_reconsume_times");
        }

        synchronized boolean take(List<MessageExt> messages) {
            boolean success = true;
            for (MessageExt message : messages) {
                received.add(describe(message));
                if (failing && message.getReconsumeTimes() < succeedAfterReconsumes) {
                    success = false;
                }
            }
            notifyAll();
            return success;
        }

        /** What came since the last poll, once that is at least count messages or the time is over. */
        synchronized List<Map<String, Object>> poll(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + timeoutMs * 1_000_000;
            while (received.size() - polled < count) {
                long leftMs = (deadline - System.nanoTime()) / 1_000_000;
                if (leftMs <= 0) {
                    break;
                }
                wait(leftMs);
            }
            List<Map<String, Object>> fresh = new ArrayList<>(received.subList(polled, received.size()));
            polled = received.size();
            return fresh;
        }
    }

    private static Collector collector(JSONObject order) {
        Collector collector = CONSUMERS.get(order.getString("consumer"));
        if (collector == null) {
            throw new IllegalArgumentException("no consumer " + order.getString("consumer"));
        }
        return collector;
    }

    private static Object start(JSONObject order) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(order.getString("group"), Driver.hook(order));
        consumer.setNamesrvAddr(order.getString("namesrv"));
        consumer.setInstanceName(order.getString("instance") != null
            ? order.getString("instance") : UUID.randomUUID().toString());
        consumer.setPollNameServerInterval(1000); // the group's retry topic is found by this poll
        // A client raises its subscription's version when it balances; when it then fails to send a heartbeat (another
        // one is under way), the broker refuses its pulls until the next regular one.
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            order.getString("from") != null ? order.getString("from") : "CONSUME_FROM_FIRST_OFFSET"));
        consumer.setEnableTrace(order.getBooleanValue("trace"));
        if (order.getBooleanValue("broadcasting")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (order.containsKey("max_reconsume_times")) {
            consumer.setMaxReconsumeTimes(order.getIntValue("max_reconsume_times"));
        }
        if (order.containsKey("suspend_ms")) {
            consumer.setSuspendCurrentQueueTimeMillis(order.getLongValue("suspend_ms"));
        }
        if (order.containsKey("threads")) {
            consumer.setConsumeThreadMin(order.getIntValue("threads"));
            consumer.setConsumeThreadMax(order.getIntValue("threads"));
        }
        String expression = order.getString("expression");
        consumer.subscribe(order.getString("topic"), expression == null ? "*" : expression);
        Collector collector = new Collector(consumer, order);
        if (order.getBooleanValue("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> collector.take(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                collector.take(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        collector.commits = COMMITTING.scheduleWithFixedDelay(
            consumer.getDefaultMQPushConsumerImpl()::persistConsumerOffset, 1, 1, TimeUnit.SECONDS);
        String name = UUID.randomUUID().toString();
        CONSUMERS.put(name, collector);
        return name;
    }

    private static Object stop(JSONObject order) {
        Collector collector = collector(order);
        CONSUMERS.remove(order.getString("consumer"));
        collector.commits.cancel(false);
        collector.consumer.shutdown();
        return null;
    }

    /** Reads a topic with the lite pull consumer until count messages are there or the time is over. */
    private static Object litePull(JSONObject order) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(order.getString("group"), Driver.hook(order));
        consumer.setNamesrvAddr(order.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(order.getString("topic"), "*");
        consumer.start();
        try {
            List<Map<String, Object>> received = new ArrayList<>();
            long deadline = System.nanoTime() + order.getLongValue("timeout_ms") * 1_000_000;
            while (received.size() < order.getIntValue("count") && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(500)) {
                    received.add(describe(message));
                }
            }
            consumer.commitSync();
            return received;
        } finally {
            consumer.shutdown();
        }
    }

    /** One plain pull of one queue, with its status and offsets. */
    @SuppressWarnings("deprecation")
    private static Object pull(JSONObject order) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(order.getString("group"), Driver.hook(order));
        consumer.setNamesrvAddr(order.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.start();
        try {
            MessageQueue queue = null;
            for (MessageQueue candidate : consumer.fetchSubscribeMessageQueues(order.getString("topic"))) {
                if (candidate.getQueueId() == order.getIntValue("queue_id")) {
                    queue = candidate;
                }
            }
            PullResult pulled = consumer.pull(
                queue, order.getString("expression"), order.getLongValue("offset"), order.getIntValue("count"));
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("status", pulled.getPullStatus().name());
            result.put("next_begin_offset", pulled.getNextBeginOffset());
            result.put("min_offset", pulled.getMinOffset());
            result.put("max_offset", pulled.getMaxOffset());
            List<Map<String, Object>> messages = new ArrayList<>();
            if (pulled.getMsgFoundList() != null) {
                pulled.getMsgFoundList().forEach(message -> messages.add(describe(message)));
            }
            result.put("messages", messages);
            return result;
        } finally {
            consumer.shutdown();
        }
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("topic", message.getTopic());
        description.put("queue_id", message.getQueueId());
        description.put("queue_offset", message.getQueueOffset());
        description.put("commit_log_offset", message.getCommitLogOffset());
        description.put("msg_id", message.getMsgId());
        description.put("offset_msg_id", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        description.put("tags", message.getTags());
        description.put("keys", message.getKeys());
        description.put("properties", message.getProperties());
        description.put("size", message.getBody() == null ? 0 : message.getBody().length);
        try {
            description.put("sha256", Content.sha256(message.getBody() == null ? new byte[0] : message.getBody()));
        } catch (java.security.GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
        description.put("sys_flag", message.getSysFlag());
        description.put("flag", message.getFlag());
        description.put("reconsume_times", message.getReconsumeTimes());
        description.put("born_host", String.valueOf(message.getBornHost()));
        description.put("store_host", String.valueOf(message.getStoreHost()));
        description.put("born_timestamp_ms", message.getBornTimestamp());
        description.put("store_timestamp_ms", message.getStoreTimestamp());
        description.put("received_at_ms", System.currentTimeMillis());
        return description;
    }
}
