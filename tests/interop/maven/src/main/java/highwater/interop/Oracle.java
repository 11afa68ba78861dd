package highwater.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** RocketMQ's own codecs and signatures, for comparison with mqwire. Bytes travel as Base64. */
final class Oracle {
    private Oracle() {}

    static void register(Map<String, Driver.Operation> operations) {
        operations.put("acl_sign", Oracle::sign);
        operations.put("decode_records", Oracle::decodeRecords);
        operations.put("encode_records", Oracle::encodeRecords);
        operations.put("encode_batch", Oracle::encodeBatch);
        operations.put("decode_batch", Oracle::decodeBatch);
        operations.put("message_ids", Oracle::messageIds);
        operations.put("hash_codes", order -> {
            List<Integer> hashes = new ArrayList<>();
            order.getJSONArray("texts").forEach(text -> hashes.add(text.toString().hashCode()));
            return hashes;
        });
        operations.put("encode_commands", Oracle::encodeCommands);
        operations.put("decode_commands", Oracle::decodeCommands);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static byte[] bytes(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    private static Map<String, String> strings(JSONObject object) {
        Map<String, String> strings = new LinkedHashMap<>();
        if (object != null) {
            object.forEach((name, value) -> strings.put(name, String.valueOf(value)));
        }
        return strings;
    }

    /** What the client's own hook adds to each request. */
    private static Object sign(JSONObject order) {
        List<Object> signed = new ArrayList<>();
        for (Object item : order.getJSONArray("requests")) {
            JSONObject request = (JSONObject) item;
            RemotingCommand command = RemotingCommand.createRequestCommand(request.getIntValue("code"), null);
            command.setExtFields(new java.util.HashMap<>(strings(request.getJSONObject("fields"))));
            if (request.getString("body") != null) {
                command.setBody(bytes(request.getString("body")));
            }
            SessionCredentials credentials = new SessionCredentials(
                request.getString("access_key"), request.getString("secret_key"), request.getString("token"));
            new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:10911", command);
            signed.add(command.getExtFields());
        }
        return signed;
    }

    private static Object decodeRecords(JSONObject order) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes(order.getString("records")));
        List<Map<String, Object>> decoded = new ArrayList<>();
        while (buffer.hasRemaining()) {
            // read the body, don't inflate it, not for a client, leave the property text out, check the body's CRC
            MessageExt message = MessageDecoder.decode(buffer, true, false, false, false, true);
            if (message == null) {
                decoded.add(null);
                break;
            }
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("topic", message.getTopic());
            fields.put("queue_id", message.getQueueId());
            fields.put("queue_offset", message.getQueueOffset());
            fields.put("physical_offset", message.getCommitLogOffset());
            fields.put("size_bytes", message.getStoreSize());
            fields.put("flag", message.getFlag());
            fields.put("sys_flag", message.getSysFlag());
            fields.put("born_timestamp_ms", message.getBornTimestamp());
            fields.put("born_host", host((InetSocketAddress) message.getBornHost()));
            fields.put("store_timestamp_ms", message.getStoreTimestamp());
            fields.put("store_host", host((InetSocketAddress) message.getStoreHost()));
            fields.put("reconsume_times", message.getReconsumeTimes());
            fields.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
            fields.put("body_crc", message.getBodyCRC());
            fields.put("body", base64(message.getBody() == null ? new byte[0] : message.getBody()));
            fields.put("properties", message.getProperties());
            fields.put("msg_id", message.getMsgId());
            decoded.add(fields);
        }
        return decoded;
    }

    private static List<Object> host(InetSocketAddress address) {
        return List.of(address.getAddress().getHostAddress(), address.getPort());
    }

    private static InetSocketAddress address(JSONArray host) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(host.getString(0)), host.getIntValue(1));
    }

    private static Object encodeRecords(JSONObject order) throws Exception {
        List<String> encoded = new ArrayList<>();
        for (Object item : order.getJSONArray("records")) {
            JSONObject fields = (JSONObject) item;
            MessageExt message = new MessageExt();
            message.setTopic(fields.getString("topic"));
            message.setQueueId(fields.getIntValue("queue_id"));
            message.setQueueOffset(fields.getLongValue("queue_offset"));
            message.setCommitLogOffset(fields.getLongValue("physical_offset"));
            message.setFlag(fields.getIntValue("flag"));
            message.setSysFlag(fields.getIntValue("sys_flag"));
            message.setBornTimestamp(fields.getLongValue("born_timestamp_ms"));
            message.setBornHost(address(fields.getJSONArray("born_host")));
            message.setStoreTimestamp(fields.getLongValue("store_timestamp_ms"));
            message.setStoreHost(address(fields.getJSONArray("store_host")));
            if (message.getBornHostBytes().capacity() > 8) {
                message.setBornHostV6Flag();
            }
            if (message.getStoreHostBytes().capacity() > 8) {
                message.setStoreHostAddressV6Flag();
            }
            message.setReconsumeTimes(fields.getIntValue("reconsume_times"));
            message.setPreparedTransactionOffset(fields.getLongValue("prepared_transaction_offset"));
            message.setBody(bytes(fields.getString("body")));
            message.setBodyCRC(UtilAll.crc32(message.getBody()));
            strings(fields.getJSONObject("properties")).forEach((name, value) -> put(message, name, value));
            encoded.add(base64(MessageDecoder.encode(message, false)));
        }
        return encoded;
    }

    private static void put(Message message, String name, String value) {
        // putUserProperty refuses RocketMQ's own names, which records carry as well.
        MessageAccessor.putProperty(message, name, value);
    }

    private static Object encodeBatch(JSONObject order) {
        List<Message> messages = new ArrayList<>();
        for (Object item : order.getJSONArray("messages")) {
            JSONObject fields = (JSONObject) item;
            Message message = new Message("batch", bytes(fields.getString("body")));
            message.setFlag(fields.getIntValue("flag"));
            MessageAccessor.setProperties(message, strings(fields.getJSONObject("properties")));
            messages.add(message);
        }
        return base64(MessageDecoder.encodeMessages(messages));
    }

    private static Object decodeBatch(JSONObject order) throws Exception {
        List<Map<String, Object>> decoded = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(bytes(order.getString("body"))))) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("flag", message.getFlag());
            fields.put("body", base64(message.getBody()));
            fields.put("properties", message.getProperties());
            decoded.add(fields);
        }
        return decoded;
    }

    private static Object messageIds(JSONObject order) throws Exception {
        List<Object> ids = new ArrayList<>();
        for (Object item : order.getJSONArray("positions")) {
            JSONObject position = (JSONObject) item;
            InetSocketAddress host = address(position.getJSONArray("host"));
            byte[] ip = host.getAddress().getAddress();
            ByteBuffer packed = ByteBuffer.allocate(ip.length + 4).put(ip).putInt(host.getPort()).flip();
            ByteBuffer room = ByteBuffer.allocate(ip.length + 4 + 8);
            String id = MessageDecoder.createMessageId(room, packed, position.getLongValue("offset"));
            MessageId decoded = MessageDecoder.decodeMessageId(id);
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("id", id);
            fields.put("host", host((InetSocketAddress) decoded.getAddress()));
            fields.put("offset", decoded.getOffset());
            ids.add(fields);
        }
        return ids;
    }

    private static Object encodeCommands(JSONObject order) throws Exception {
        List<String> encoded = new ArrayList<>();
        for (Object item : order.getJSONArray("commands")) {
            JSONObject fields = (JSONObject) item;
            RemotingCommand command = RemotingCommand.createRequestCommand(fields.getIntValue("code"), null);
            command.setOpaque(fields.getIntValue("opaque"));
            command.setRemark(fields.getString("remark"));
            command.setExtFields(new java.util.HashMap<>(strings(fields.getJSONObject("fields"))));
            command.setBody(bytes(fields.getString("body")));
            if (fields.getBooleanValue("response")) {
                command.markResponseType();
            }
            if (fields.getBooleanValue("oneway")) {
                command.markOnewayRPC();
            }
            command.setSerializeTypeCurrentRPC(SerializeType.valueOf(fields.getString("serialize_type")));
            ByteBuffer frame = command.encode();
            byte[] frameBytes = new byte[frame.remaining()];
            frame.get(frameBytes);
            encoded.add(base64(frameBytes));
        }
        return encoded;
    }

    private static Object decodeCommands(JSONObject order) throws Exception {
        List<Object> decoded = new ArrayList<>();
        for (Object item : order.getJSONArray("frames")) {
            ByteBuffer frame = ByteBuffer.wrap(bytes(item.toString()));
            frame.getInt(); // the pipeline's frame decoder takes the length off before RemotingCommand sees the rest
            RemotingCommand command = RemotingCommand.decode(frame.slice());
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("code", command.getCode());
            fields.put("language", command.getLanguage().name());
            fields.put("version", command.getVersion());
            fields.put("opaque", command.getOpaque());
            fields.put("flag", command.getFlag());
            fields.put("remark", command.getRemark());
            fields.put("fields", command.getExtFields() == null ? Map.of() : new TreeMap<>(command.getExtFields()));
            fields.put("body", base64(command.getBody() == null ? new byte[0] : command.getBody()));
            fields.put("serialize_type", command.getSerializeTypeCurrentRPC().name());
            decoded.add(fields);
        }
        return decoded;
    }
}
