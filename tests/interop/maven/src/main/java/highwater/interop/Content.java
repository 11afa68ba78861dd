package highwater.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.rocketmq.common.message.Message;

/** Message bodies that each language computes for itself from a seed; see tests/interop/content.py. */
final class Content {
    private Content() {}

    /** AES-128-CTR key stream of the seed's SHA-256; "text" bodies are its hexadecimal digits, so they compress. */
    static byte[] body(String seed, int size, String kind) throws GeneralSecurityException {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(seed.getBytes(StandardCharsets.UTF_8));
        boolean text = "text".equals(kind);
        Cipher cipher = Cipher.getInstance("AES/CTR/NoPadding");
        SecretKeySpec key = new SecretKeySpec(Arrays.copyOf(digest, 16), "AES");
        cipher.init(Cipher.ENCRYPT_MODE, key, new IvParameterSpec(new byte[16]));
        byte[] stream = cipher.doFinal(new byte[text ? (size + 1) / 2 : size]);
        if (!text) {
            return stream;
        }
        return Arrays.copyOf(HexFormat.of().formatHex(stream).getBytes(StandardCharsets.US_ASCII), size);
    }

    static String sha256(byte[] body) throws GeneralSecurityException {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    }

    /** One message of a plan. */
    static Message message(String topic, JSONObject plan) throws GeneralSecurityException {
        byte[] body = body(plan.getString("seed"), plan.getIntValue("size"), plan.getString("kind"));
        Message message = new Message(topic, body);
        if (plan.getString("tag") != null) {
            message.setTags(plan.getString("tag"));
        }
        if (plan.getString("keys") != null) {
            message.setKeys(plan.getString("keys"));
        }
        if (plan.getIntValue("delay_level") > 0) {
            message.setDelayTimeLevel(plan.getIntValue("delay_level"));
        }
        JSONObject properties = plan.getJSONObject("properties");
        if (properties != null) {
            for (Map.Entry<String, Object> property : properties.entrySet()) {
                message.putUserProperty(property.getKey(), String.valueOf(property.getValue()));
            }
        }
        return message;
    }
}
