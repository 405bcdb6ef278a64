import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.joran.JoranConfigurator;
import co.elastic.clients.elasticsearch.ElasticsearchClient;
import com.cloudbees.syslog.Facility;
import com.cloudbees.syslog.MessageFormat;
import com.cloudbees.syslog.Severity;
import com.cloudbees.syslog.sender.AbstractSyslogMessageSender;
import com.cloudbees.syslog.sender.TcpSyslogMessageSender;
import com.cloudbees.syslog.sender.UdpSyslogMessageSender;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.logs.Severity.*;
import io.opentelemetry.exporter.otlp.http.logs.OtlpHttpLogRecordExporter;
import io.opentelemetry.exporter.otlp.logs.OtlpGrpcLogRecordExporter;
import io.opentelemetry.sdk.logs.SdkLoggerProvider;
import io.opentelemetry.sdk.logs.export.BatchLogRecordProcessor;
import io.opentelemetry.sdk.logs.export.LogRecordExporter;
import io.opentelemetry.sdk.resources.Resource;
import java.io.ByteArrayInputStream;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.RootAllocator;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.komamitsu.fluency.fluentd.FluencyBuilderForFluentd;

/** Send three messages by a common Java library: Senders KIND HOST PORT. */
public class Senders {
    static final String[] TEXTS = {"first message", "second: with a colon", "third one, grüße"};

    static void logback(String appender) throws Exception {
        LoggerContext context = new LoggerContext();
        JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        String document = "<configuration>" + appender + "<root level=\"INFO\"><appender-ref ref=\"S\"/></root></configuration>";
        configurator.doConfigure(new ByteArrayInputStream(document.getBytes("UTF-8")));
        Logger logger = context.getLogger("shop");
        for (String text : TEXTS) logger.info(text);
        Thread.sleep(1500);
        context.stop();
    }

    static void syslog(AbstractSyslogMessageSender sender, MessageFormat format) throws Exception {
        sender.setDefaultMessageHostname("web-1");
        sender.setDefaultAppName("shop");
        sender.setDefaultFacility(Facility.USER);
        sender.setDefaultSeverity(Severity.INFORMATIONAL);
        sender.setMessageFormat(format);
        for (String text : TEXTS) sender.sendMessage(text);
        Thread.sleep(300);
    }

    static void otlp(LogRecordExporter exporter) {
        Resource resource = Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), "shop"));
        SdkLoggerProvider provider = SdkLoggerProvider.builder().setResource(resource)
            .addLogRecordProcessor(BatchLogRecordProcessor.builder(exporter).build()).build();
        for (int number = 0; number < 3; number++)
            provider.get("checkout").logRecordBuilder().setBody(TEXTS[number]).setTimestamp(Instant.ofEpochMilli(1795369000125L))
                .setSeverity(io.opentelemetry.api.logs.Severity.INFO).setAttribute(AttributeKey.longKey("number"), (long) number).emit();
        provider.close();
    }

    static void forward(String host, int port) throws Exception {
        FluencyBuilderForFluentd builder = new FluencyBuilderForFluentd();
        builder.setAckResponseMode(true);
        try (var fluency = builder.build(host, port)) {
            for (int number = 0; number < 3; number++)
                fluency.emit("shop.orders", Map.of("message", TEXTS[number], "number", number));
            fluency.flush();
            fluency.waitUntilAllBufferFlushed(10);
        }
    }

    static void bulk(String url) throws Exception {
        try (ElasticsearchClient client = ElasticsearchClient.of(built -> built.host(url))) {
            var answer = client.bulk(request -> {
                for (int number = 0; number < 3; number++) {
                    Map<String, Object> document = Map.of("message", TEXTS[number], "number", number);
                    request.operations(operation -> operation.create(created -> created.index("shop").document(document)));
                }
                return request;
            });
            if (answer.errors()) throw new RuntimeException(answer.toString());
        }
    }

    static void hec(String address) throws Exception {
        String target = "splunk-hec:" + address + "?token=11111111-1111-1111-1111-111111111111&https=false&skipTlsVerify=true&source=shop&host=web-1";
        try (DefaultCamelContext camel = new DefaultCamelContext()) {
            camel.start();
            for (String text : TEXTS) camel.createProducerTemplate().sendBody(target, text);
        }
    }

    static void flight(String host, int port) throws Exception {
        try (var allocator = new RootAllocator();
             FlightClient client = FlightClient.builder(allocator, Location.forGrpcInsecure(host, port)).build()) {
            for (var endpoint : client.getInfo(FlightDescriptor.path("shop")).getEndpoints())
                try (FlightStream stream = client.getStream(endpoint.getTicket())) {
                    while (stream.next()) {
                        var payloads = stream.getRoot().getVector("payload");
                        for (int row = 0; row < payloads.getValueCount(); row++)
                            System.out.println(new String((byte[]) payloads.getObject(row), "UTF-8"));
                    }
                }
        }
    }

    static void kafka(String address, boolean read) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        if (!read) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                for (String text : TEXTS) {
                    ProducerRecord<String, String> produced = new ProducerRecord<>("shop", text);
                    produced.headers().add("app", "shop".getBytes());
                    producer.send(produced);
                }
            }
            return;
        }
        settings.put("group.id", "java");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of("shop"));
            for (int count = 0; count < 3; )
                for (var read3 : consumer.poll(Duration.ofSeconds(1))) { count++; System.out.println(read3.value()); }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[0], host = arguments[1];
        int port = Integer.parseInt(arguments[2]);
        String address = host + ":" + port, url = "http://" + address;
        String graylog = "<graylogHost>" + host + "</graylogHost><graylogPort>" + port + "</graylogPort>";
        UdpSyslogMessageSender udp = new UdpSyslogMessageSender();
        udp.setSyslogServerHostname(host);
        udp.setSyslogServerPort(port);
        TcpSyslogMessageSender tcp = new TcpSyslogMessageSender();
        tcp.setSyslogServerHostname(host);
        tcp.setSyslogServerPort(port);
        switch (kind) {
            case "syslog udp" -> syslog(udp, MessageFormat.RFC_3164);
            case "syslog udp, RFC 5424" -> syslog(udp, MessageFormat.RFC_5424);
            case "syslog tcp" -> syslog(tcp, MessageFormat.RFC_3164);
            case "syslog tcp, RFC 5425" -> syslog(tcp, MessageFormat.RFC_5425);
            case "gelf udp" -> logback("<appender name=\"S\" class=\"de.siegmar.logbackgelf.GelfUdpAppender\">" + graylog + "</appender>");
            case "gelf tcp" -> logback("<appender name=\"S\" class=\"de.siegmar.logbackgelf.GelfTcpAppender\">" + graylog + "</appender>");
            case "loki http" -> logback("<appender name=\"S\" class=\"com.github.loki4j.logback.Loki4jAppender\"><http><url>" + url
                + "/loki/api/v1/push</url></http><format><label><pattern>app=shop</pattern></label><message><pattern>%msg</pattern></message></format></appender>");
            case "forward tcp" -> forward(host, port);
            case "hec http" -> hec(address);
            case "bulk http" -> bulk(url);
            case "otlp grpc" -> otlp(OtlpGrpcLogRecordExporter.builder().setEndpoint(url).build());
            case "otlp http" -> otlp(OtlpHttpLogRecordExporter.builder().setEndpoint(url + "/v1/logs").setCompression("gzip").build());
            case "kafka" -> kafka(address, false);
            case "read kafka" -> kafka(address, true);
            case "read flight" -> flight(host, port);
            default -> throw new IllegalArgumentException(kind);
        }
    }
}
