import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The only member of a group, with Java's own client: commits offset and metadata of each partition, and leaves. */
public class JavaGroup {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        Map<TopicPartition, OffsetAndMetadata> given = new HashMap<>();
        for (int at = 3; at + 1 < args.length; at += 2) {
            TopicPartition partition = new TopicPartition(args[1], (at - 3) / 2);
            given.put(partition, new OffsetAndMetadata(Long.parseLong(args[at]), args[at + 1]));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(args[1]));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
            consumer.commitSync(given);
        }
    }
}
