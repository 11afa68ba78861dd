package highwater.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A stock RocketMQ client that takes orders: one JSON object per line on standard input, one answer per line on standard
 * output, in order. tests/interop/clients.py is the other end and documents the orders.
 *
 * <p>Order: {"id": 1, "op": "produce", "namesrv": "...", "access_key": null, "secret_key": null, ...}. Answer: {"id": 1,
 * "ok": true, "result": ...} or {"id": 1, "ok": false, "error": "...", "exception": "MQBrokerException",
 * "response_code": 16}.
 */
public final class Driver {
    private Driver() {}

    interface Operation {
        Object run(JSONObject order) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        // The protocol owns standard output; whatever a library prints goes to the log.
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Map<String, Operation> operations = new LinkedHashMap<>();
        Producing.register(operations);
        Consuming.register(operations);
        Administration.register(operations);
        Oracle.register(operations);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JSONObject order = JSON.parseObject(line);
            answers.println(JSON.toJSONString(answer(operations, order), JSONWriter.Feature.WriteNulls));
            answers.flush();
        }
        // Standard input has ended: the test is over, and clients' own threads must not keep this process.
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(Map<String, Operation> operations, JSONObject order) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", order.get("id"));
        try {
            Operation operation = operations.get(order.getString("op"));
            if (operation == null) {
                throw new IllegalArgumentException("unknown op " + order.getString("op"));
            }
            answer.put("result", operation.run(order));
            answer.put("ok", true);
        } catch (Exception error) {
            answer.put("ok", false);
            answer.putAll(describe(error));
        }
        return answer;
    }

    /** The class, text and broker response code of an exception; the code is searched for in its causes too. */
    static Map<String, Object> describe(Throwable error) {
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("exception", error.getClass().getSimpleName());
        description.put("error", String.valueOf(error.getMessage()));
        Integer code = null;
        for (Throwable cause = error; cause != null && code == null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                code = ((MQBrokerException) cause).getResponseCode();
            } else if (cause instanceof MQClientException) {
                code = ((MQClientException) cause).getResponseCode();
            }
        }
        description.put("response_code", code);
        return description;
    }

    /** The hook that signs requests, or null where the order has no credentials. */
    static RPCHook hook(JSONObject order) {
        String accessKey = order.getString("access_key");
        if (accessKey == null) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(accessKey, order.getString("secret_key")));
    }
}
