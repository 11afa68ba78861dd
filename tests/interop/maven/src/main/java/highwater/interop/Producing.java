package highwater.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sending: sync, async, oneway, batch, ordered. */
final class Producing {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new LinkedHashMap<>();
    private static final int ASYNC_IN_FLIGHT = 64;

    private Producing() {}

    static void register(Map<String, Driver.Operation> operations) {
        operations.put("produce", Producing::produce);
        operations.put("close_producers", Producing::close);
    }

    private static DefaultMQProducer producer(JSONObject order) throws Exception {
        String group = order.getString("group");
        String key = String.join("|", order.getString("namesrv"), group, String.valueOf(order.get("access_key")),
            String.valueOf(order.get("secret_key")), String.valueOf(order.get("client")));
        DefaultMQProducer known = PRODUCERS.get(key);
        if (known != null) {
            return known;
        }
        DefaultMQProducer producer = new DefaultMQProducer(group, Driver.hook(order));
        producer.setNamesrvAddr(order.getString("namesrv"));
        // Clients of one instance name share one connection and its hook, so every one gets a name of its own.
        producer.setInstanceName(UUID.randomUUID().toString());
        JSONObject client = order.getJSONObject("client");
        if (client != null) {
            if (client.containsKey("retries")) {
                producer.setRetryTimesWhenSendFailed(client.getIntValue("retries"));
                producer.setRetryTimesWhenSendAsyncFailed(client.getIntValue("retries"));
            }
            if (client.containsKey("timeout_ms")) {
                producer.setSendMsgTimeout(client.getIntValue("timeout_ms"));
            }
            if (client.containsKey("poll_ms")) {
                producer.setPollNameServerInterval(client.getIntValue("poll_ms"));
            }
            if (client.containsKey("trace")) {
                producer.setEnableTrace(client.getBooleanValue("trace"));
            }
            if (client.containsKey("compress_over")) {
                producer.setCompressMsgBodyOverHowmuch(client.getIntValue("compress_over"));
            }
        }
        producer.start();
        PRODUCERS.put(key, producer);
        return producer;
    }

    private static Object close(JSONObject order) {
        PRODUCERS.values().forEach(DefaultMQProducer::shutdown);
        PRODUCERS.clear();
        return null;
    }

    private static Object produce(JSONObject order) throws Exception {
        DefaultMQProducer producer = producer(order);
        String topic = order.getString("topic");
        String mode = order.getString("mode");
        JSONArray plans = order.getJSONArray("messages");
        List<Map<String, Object>> outcomes = Collections.synchronizedList(new ArrayList<>());
        if (mode.equals("batch")) {
            produceBatches(producer, topic, plans, order.getIntValue("batch_size", 32), outcomes);
            return outcomes;
        }
        Semaphore slots = new Semaphore(ASYNC_IN_FLIGHT);
        for (int index = 0; index < plans.size(); index++) {
            JSONObject plan = plans.getJSONObject(index);
            String label = plan.getString("seed");
            Message message = Content.message(topic, plan);
            try {
                switch (mode) {
                    case "sync" -> outcomes.add(outcome(label, producer.send(message)));
                    case "oneway" -> producer.sendOneway(message);
                    case "ordered" -> outcomes.add(
                        outcome(label, producer.send(message, BY_HASH, plan.getString("sharding_key"))));
                    case "async" -> {
                        slots.acquire();
                        producer.send(message, callback(label, outcomes, slots));
                    }
                    default -> throw new IllegalArgumentException("unknown mode " + mode);
                }
            } catch (Exception error) {
                if (mode.equals("async")) {
                    slots.release();
                }
                outcomes.add(failure(label, error));
            }
        }
        slots.acquire(ASYNC_IN_FLIGHT); // every callback has been called
        return outcomes;
    }

    private static final MessageQueueSelector BY_HASH =
        (queues, message, shardingKey) -> queues.get(Math.floorMod(shardingKey.hashCode(), queues.size()));

    private static SendCallback callback(String label, List<Map<String, Object>> outcomes, Semaphore slots) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                outcomes.add(outcome(label, result));
                slots.release();
            }

            @Override
            public void onException(Throwable error) {
                outcomes.add(failure(label, error));
                slots.release();
            }
        };
    }

    private static void produceBatches(DefaultMQProducer producer, String topic, JSONArray plans, int batchSize,
        List<Map<String, Object>> outcomes) throws Exception {
        for (int start = 0; start < plans.size(); start += batchSize) {
            List<Message> batch = new ArrayList<>();
            List<String> labels = new ArrayList<>();
            for (int index = start; index < Math.min(start + batchSize, plans.size()); index++) {
                JSONObject plan = plans.getJSONObject(index);
                batch.add(Content.message(topic, plan));
                labels.add(plan.getString("seed"));
            }
            try {
                SendResult result = producer.send(batch);
                String[] messageIds = result.getMsgId().split(",");
                String[] offsetIds = result.getOffsetMsgId().split(",");
                for (int index = 0; index < labels.size(); index++) {
                    Map<String, Object> outcome = outcome(labels.get(index), result);
                    outcome.put("msg_id", messageIds[index]);
                    outcome.put("offset_msg_id", index < offsetIds.length ? offsetIds[index] : null);
                    outcome.put("queue_offset", result.getQueueOffset() + index);
                    outcomes.add(outcome);
                }
            } catch (Exception error) {
                labels.forEach(label -> outcomes.add(failure(label, error)));
            }
        }
    }

    private static Map<String, Object> outcome(String label, SendResult result) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("seed", label);
        outcome.put("status", result.getSendStatus().name());
        outcome.put("queue_id", result.getMessageQueue().getQueueId());
        outcome.put("broker", result.getMessageQueue().getBrokerName());
        outcome.put("queue_offset", result.getQueueOffset());
        outcome.put("msg_id", result.getMsgId());
        outcome.put("offset_msg_id", result.getOffsetMsgId());
        return outcome;
    }

    private static Map<String, Object> failure(String label, Throwable error) {
        Map<String, Object> failure = Driver.describe(error);
        failure.put("seed", label);
        failure.put("status", null);
        return failure;
    }
}
