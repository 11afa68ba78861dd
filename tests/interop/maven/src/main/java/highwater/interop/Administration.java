package highwater.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What mqadmin does, through the same class that it uses. */
final class Administration {
    private static final Map<String, DefaultMQAdminExt> ADMINS = new LinkedHashMap<>();

    private Administration() {}

    static void register(Map<String, Driver.Operation> operations) {
        operations.put("create_topic", Administration::createTopic);
        operations.put("delete_topic", Administration::deleteTopic);
        operations.put("create_group", Administration::createGroup);
        operations.put("topic_route", Administration::topicRoute);
        operations.put("cluster_info", Administration::clusterInfo);
        operations.put("offsets", Administration::offsets);
        operations.put("search_offset", Administration::searchOffset);
        operations.put("view_message", Administration::viewMessage);
        operations.put("query_key", Administration::queryKey);
        operations.put("consume_stats", Administration::consumeStats);
        operations.put("member_ids", Administration::memberIds);
        operations.put("running_info", Administration::runningInfo);
        operations.put("consume_directly", Administration::consumeDirectly);
        operations.put("consume_status", Administration::consumeStatus);
        operations.put("runtime_info", order ->
            admin(order).fetchBrokerRuntimeStats(order.getString("address")).getTable());
        operations.put("broker_config", order -> admin(order).getBrokerConfig(order.getString("address")));
        operations.put("close_admins", Administration::close);
    }

    private static DefaultMQAdminExt admin(JSONObject order) throws MQClientException {
        String key = String.join("|", order.getString("namesrv"), String.valueOf(order.get("access_key")),
            String.valueOf(order.get("secret_key")));
        DefaultMQAdminExt known = ADMINS.get(key);
        if (known != null) {
            return known;
        }
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Driver.hook(order), 5000);
        admin.setNamesrvAddr(order.getString("namesrv"));
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        ADMINS.put(key, admin);
        return admin;
    }

    private static Object close(JSONObject order) {
        ADMINS.values().forEach(DefaultMQAdminExt::shutdown);
        ADMINS.clear();
        return null;
    }

    private static List<String> masters(JSONObject order) throws Exception {
        List<String> masters = new ArrayList<>();
        for (BrokerData broker : admin(order).examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            masters.add(broker.getBrokerAddrs().get(0L));
        }
        return masters;
    }

    private static Object createTopic(JSONObject order) throws Exception {
        TopicConfig config = new TopicConfig(order.getString("topic"));
        config.setReadQueueNums(order.getIntValue("queues"));
        config.setWriteQueueNums(order.getIntValue("queues"));
        for (String master : masters(order)) {
            admin(order).createAndUpdateTopicConfig(master, config);
        }
        return masters(order);
    }

    private static Object deleteTopic(JSONObject order) throws Exception {
        java.util.Set<String> masters = new java.util.HashSet<>(masters(order));
        admin(order).deleteTopicInBroker(masters, order.getString("topic"));
        return null;
    }

    private static Object createGroup(JSONObject order) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(order.getString("group"));
        if (order.containsKey("retry_max_times")) {
            config.setRetryMaxTimes(order.getIntValue("retry_max_times"));
        }
        for (String master : masters(order)) {
            admin(order).createAndUpdateSubscriptionGroupConfig(master, config);
        }
        return null;
    }

    private static Object topicRoute(JSONObject order) throws Exception {
        TopicRouteData route = admin(order).examineTopicRouteInfo(order.getString("topic"));
        List<Map<String, Object>> queues = new ArrayList<>();
        for (QueueData queue : route.getQueueDatas()) {
            queues.add(Map.of("broker", queue.getBrokerName(), "read", queue.getReadQueueNums(),
                "write", queue.getWriteQueueNums(), "perm", queue.getPerm()));
        }
        Map<String, Object> brokers = new LinkedHashMap<>();
        route.getBrokerDatas().forEach(broker -> brokers.put(broker.getBrokerName(), broker.getBrokerAddrs()));
        return Map.of("queues", queues, "brokers", brokers);
    }

    private static Object clusterInfo(JSONObject order) throws Exception {
        ClusterInfo info = admin(order).examineBrokerClusterInfo();
        Map<String, Object> brokers = new LinkedHashMap<>();
        info.getBrokerAddrTable().forEach((name, broker) -> brokers.put(name, broker.getBrokerAddrs()));
        return Map.of("clusters", info.getClusterAddrTable(), "brokers", brokers);
    }

    private static Object offsets(JSONObject order) throws Exception {
        TopicStatsTable stats = admin(order).examineTopicStats(order.getString("topic"));
        List<Map<String, Object>> queues = new ArrayList<>();
        for (MessageQueue queue : stats.getOffsetTable().keySet()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("queue_id", queue.getQueueId());
            row.put("broker", queue.getBrokerName());
            // Both ways to ask: the statistics of the topic, and the codes for one queue.
            row.put("stats_min", stats.getOffsetTable().get(queue).getMinOffset());
            row.put("stats_max", stats.getOffsetTable().get(queue).getMaxOffset());
            row.put("min", admin(order).minOffset(queue));
            row.put("max", admin(order).maxOffset(queue));
            row.put("earliest_ms", admin(order).earliestMsgStoreTime(queue));
            queues.add(row);
        }
        return queues;
    }

    private static Object searchOffset(JSONObject order) throws Exception {
        MessageQueue queue = new MessageQueue(
            order.getString("topic"), order.getString("broker"), order.getIntValue("queue_id"));
        return admin(order).searchOffset(queue, order.getLongValue("timestamp_ms"));
    }

    private static Object viewMessage(JSONObject order) throws Exception {
        return Consuming.describe(admin(order).viewMessage(order.getString("topic"), order.getString("msg_id")));
    }

    private static Object queryKey(JSONObject order) throws Exception {
        QueryResult result = admin(order).queryMessage(
            order.getString("topic"), order.getString("key"), 64, 0, Long.MAX_VALUE);
        List<Map<String, Object>> found = new ArrayList<>();
        result.getMessageList().forEach(message -> found.add(Consuming.describe(message)));
        return found;
    }

    private static Object memberIds(JSONObject order) throws Exception {
        List<String> ids = new ArrayList<>();
        admin(order).examineConsumerConnectionInfo(order.getString("group")).getConnectionSet()
            .forEach(connection -> ids.add(connection.getClientId()));
        return ids;
    }

    private static Object consumeStatus(JSONObject order) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        admin(order).getConsumeStatus(order.getString("topic"), order.getString("group"), order.getString("client_id"))
            .forEach((client, queues) -> queues.forEach((queue, offset) -> rows.add(
                Map.of("client", client, "queue_id", queue.getQueueId(), "offset", offset))));
        return rows;
    }

    private static Object runningInfo(JSONObject order) throws Exception {
        ConsumerRunningInfo info = admin(order).getConsumerRunningInfo(
            order.getString("group"), order.getString("client_id"), order.getBooleanValue("jstack"));
        List<String> topics = new ArrayList<>();
        info.getSubscriptionSet().forEach(subscription -> topics.add(subscription.getTopic()));
        List<Map<String, Object>> queues = new ArrayList<>();
        info.getMqTable().forEach((queue, progress) -> queues.add(Map.of("topic", queue.getTopic(),
            "broker", queue.getBrokerName(), "queue_id", queue.getQueueId(), "commit", progress.getCommitOffset())));
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("properties", info.getProperties());
        row.put("topics", topics);
        row.put("queues", queues);
        row.put("jstack", info.getJstack());
        return row;
    }

    private static Object consumeDirectly(JSONObject order) throws Exception {
        ConsumeMessageDirectlyResult result = admin(order).consumeMessageDirectly(order.getString("group"),
            order.getString("client_id"), order.getString("topic"), order.getString("msg_id"));
        return Map.of("result", String.valueOf(result.getConsumeResult()), "order", result.isOrder());
    }

    private static Object consumeStats(JSONObject order) throws Exception {
        ConsumeStats stats = admin(order).examineConsumeStats(order.getString("group"), order.getString("topic"));
        List<Map<String, Object>> queues = new ArrayList<>();
        stats.getOffsetTable().forEach((queue, offset) -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", queue.getTopic());
            row.put("queue_id", queue.getQueueId());
            row.put("broker_offset", offset.getBrokerOffset());
            row.put("consumer_offset", offset.getConsumerOffset());
            queues.add(row);
        });
        return queues;
    }
}
