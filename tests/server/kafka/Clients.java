import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** Java's own clients: makes a topic, produces, consumes as a group, and tells what administrators see. */
public class Clients {
    public static void main(String[] given) throws Exception {
        int count = Integer.parseInt(given[2]);
        Map<String, Object> base = new HashMap<>(Map.of("bootstrap.servers", given[0]));
        try (Admin admin = Admin.create(base)) {
            admin.createTopics(List.of(new NewTopic(given[1], 1, (short) 1))).all().get();
            produce(base, given[1], count);
            consume(base, given[1], count);
            tell(admin, given[1]);
            System.out.println("times " + times(admin, base));
            System.out.println("newer " + newer(base, given[1]));
            admin.deleteConsumerGroups(List.of("java")).all().get();
            System.out.println("groups " + admin.listGroups().all().get().size());
        }
    }

    static void produce(Map<String, Object> base, String topic, int count) {
        Map<String, Object> settings = new HashMap<>(base);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("compression.type", "lz4");
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < count; number++)
                producer.send(new ProducerRecord<>(topic, "k", "value-" + number));
        }
    }

    /** The settings of a consumer of strings. */
    static Map<String, Object> reading(Map<String, Object> base, String group) {
        Map<String, Object> settings = new HashMap<>(base);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("group.id", group);
        return settings;
    }

    static void consume(Map<String, Object> base, String topic, int count) {
        Map<String, Object> settings = reading(base, "java");
        settings.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            int found = 0;
            for (long until = System.nanoTime() + 30_000_000_000L; found < count && System.nanoTime() < until; )
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    if (!one.value().equals("value-" + found) || one.offset() != found) throw new RuntimeException(one.toString());
                    found++;
                }
            consumer.commitSync();
            System.out.println("consumed " + found);
        }
    }

    /** Reports the time of a record in a topic with CreateTime: of the acknowledgement, of the record, and its offset. */
    static String times(Admin admin, Map<String, Object> base) throws Exception {
        NewTopic topic = new NewTopic("times", 1, (short) 1).configs(Map.of("message.timestamp.type", "CreateTime"));
        admin.createTopics(List.of(topic)).all().get();
        Map<String, Object> settings = new HashMap<>(base);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        long sent, time = 1_700_000_000_000L;
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>("times", 0, time - 1, "k", "early")).get();
            sent = producer.send(new ProducerRecord<>("times", 0, time, "k", "v")).get().timestamp();
        }
        TopicPartition partition = new TopicPartition("times", 0);
        Map<String, Object> reading = reading(base, "times");
        reading.put("enable.auto.commit", "false");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(reading)) {
            consumer.assign(List.of(partition));
            long offset = consumer.offsetsForTimes(Map.of(partition, time)).get(partition).offset();
            consumer.seek(partition, offset);
            for (long until = System.nanoTime() + 30_000_000_000L; System.nanoTime() < until; )
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                    return sent + " " + record.timestampType() + " " + record.timestamp() + " " + offset;
        }
        return "nothing";
    }

    /** What a consumer of the newer group protocol is told. */
    static String newer(Map<String, Object> base, String topic) {
        Map<String, Object> settings = reading(base, "newer");
        settings.put("group.protocol", "consumer");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            for (long until = System.nanoTime() + 30_000_000_000L; System.nanoTime() < until; )
                consumer.poll(Duration.ofMillis(200));
            return "nothing";
        } catch (org.apache.kafka.common.errors.UnsupportedVersionException error) {
            return error.getMessage();
        }
    }

    static void tell(Admin admin, String topic) throws Exception {
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        System.out.println("partitions " + described.partitions().size());
        System.out.println("state " + admin.describeConsumerGroups(List.of("java")).all().get().get("java").groupState());
        System.out.println("committed " + admin.listConsumerGroupOffsets("java").partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 0)).offset());
        System.out.println("end " + admin.listOffsets(Map.of(new TopicPartition(topic, 0), OffsetSpec.latest())).all().get().get(new TopicPartition(topic, 0)).offset());
        System.out.println("nodes " + admin.describeCluster().nodes().get().size());
    }
}
