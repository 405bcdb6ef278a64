// Send three messages by a common Go library: senders KIND HOST:PORT.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"net/url"
	"os"
	"time"

	"github.com/Graylog2/go-gelf/gelf"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/docker/docker/daemon/logger"
	"github.com/docker/docker/daemon/logger/splunk"
	"github.com/elastic/go-elasticsearch/v8"
	"github.com/elastic/go-elasticsearch/v8/esutil"
	"github.com/fluent/fluent-logger-golang/fluent"
	"github.com/grafana/loki-client-go/loki"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var texts = []string{"first message", "second: with a colon", "third one, grüße"}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func sendSyslog(network, address string) {
	writer, err := syslog.Dial(network, address, syslog.LOG_INFO|syslog.LOG_USER, "shop")
	check(err)
	for _, text := range texts {
		check(writer.Info(text))
	}
	check(writer.Close())
}

func sendGelf(writer interface{ WriteMessage(*gelf.Message) error }) {
	for number, text := range texts {
		extra := map[string]interface{}{"_number": number}
		check(writer.WriteMessage(&gelf.Message{Version: "1.1", Host: "web-1", Short: text, TimeUnix: 1795369000.125, Level: 6, Extra: extra}))
	}
}

func sendForward(host string, port int) {
	logger, err := fluent.New(fluent.Config{FluentHost: host, FluentPort: port, RequestAck: true, SubSecondPrecision: true})
	check(err)
	for number, text := range texts {
		check(logger.Post("shop.orders", map[string]any{"message": text, "number": number}))
	}
	check(logger.Close())
}

func sendHec(address string) {
	config := map[string]string{"splunk-url": "http://" + address, "splunk-token": "anything", "splunk-source": "shop", "splunk-gzip": "true"}
	driver, err := splunk.New(logger.Info{Config: config, ContainerID: "0123456789abcdef", ContainerName: "/shop"})
	check(err)
	for _, text := range texts {
		check(driver.Log(&logger.Message{Line: []byte(text), Source: "stdout", Timestamp: time.Unix(1795369000, 125000000)}))
	}
	check(driver.Close())
}

func sendLoki(address string) {
	config, err := loki.NewDefaultConfig("http://" + address + "/loki/api/v1/push")
	check(err)
	config.BatchWait = 100 * time.Millisecond
	client, err := loki.New(config)
	check(err)
	for _, text := range texts {
		check(client.Handle(model.LabelSet{"app": "shop"}, time.Unix(1795369000, 125000000), text))
	}
	client.Stop()
}

func sendBulk(address string) {
	client, err := elasticsearch.NewClient(elasticsearch.Config{Addresses: []string{"http://" + address}, CompressRequestBody: true})
	check(err)
	indexer, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{Client: client, Index: "shop", NumWorkers: 1})
	check(err)
	for number, text := range texts {
		body := fmt.Sprintf(`{"message":%q,"number":%d}`, text, number)
		failed := func(_ context.Context, _ esutil.BulkIndexerItem, _ esutil.BulkIndexerResponseItem, err error) { panic(err) }
		check(indexer.Add(context.Background(), esutil.BulkIndexerItem{Action: "create", Body: bytes.NewReader([]byte(body)), OnFailure: failed}))
	}
	check(indexer.Close(context.Background()))
	if stats := indexer.Stats(); stats.NumFailed > 0 || stats.NumFlushed != 3 {
		panic(fmt.Sprint(stats))
	}
}

func sendOtlp(exporter sdklog.Exporter, err error) {
	check(err)
	ctx := context.Background()
	described := resource.NewSchemaless(attribute.String("service.name", "shop"))
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(described), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	logger := provider.Logger("checkout")
	for number, text := range texts {
		var record log.Record
		record.SetTimestamp(time.Unix(1795369000, 125000000))
		record.SetSeverity(log.SeverityInfo)
		record.SetBody(attribute.StringValue(text))
		record.AddAttributes(attribute.Int("number", number))
		logger.Emit(ctx, record)
	}
	check(provider.Shutdown(ctx))
}

func sendKafka(address string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic("shop"), kgo.AllowAutoTopicCreation())
	check(err)
	for _, text := range texts {
		record := &kgo.Record{Value: []byte(text), Headers: []kgo.RecordHeader{{Key: "app", Value: []byte("shop")}}}
		check(client.ProduceSync(context.Background(), record).FirstErr())
	}
	client.Close()
}

func readKafka(address string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("shop"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	for count := 0; count < len(texts); {
		fetches := client.PollFetches(context.Background())
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { count++; fmt.Println(string(record.Value)) })
	}
	client.Close()
}

func readFlight(address string) {
	client, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	descriptor := &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"shop"}}
	found, err := client.GetFlightInfo(context.Background(), descriptor)
	check(err)
	for _, endpoint := range found.Endpoint {
		stream, err := client.DoGet(context.Background(), endpoint.Ticket)
		check(err)
		reader, err := flight.NewRecordReader(stream)
		check(err)
		column := reader.Schema().FieldIndices("payload")[0]
		for {
			batch, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			check(err)
			switch values := batch.Column(column).(type) {
			case *array.Binary:
				for row := 0; row < values.Len(); row++ {
					fmt.Println(string(values.Value(row)))
				}
			case *array.LargeBinary:
				for row := 0; row < values.Len(); row++ {
					fmt.Println(string(values.Value(row)))
				}
			default:
				panic(fmt.Sprintf("messages are %T", values))
			}
		}
	}
}

func main() {
	kind, address := os.Args[1], os.Args[2]
	location, err := url.Parse("tcp://" + address)
	check(err)
	ctx := context.Background()
	switch kind {
	case "syslog udp", "syslog tcp":
		sendSyslog(kind[len(kind)-3:], address)
	case "gelf udp":
		writer, err := gelf.NewUDPWriter(address)
		check(err)
		sendGelf(writer)
	case "gelf tcp":
		writer, err := gelf.NewTCPWriter(address)
		check(err)
		sendGelf(writer)
		check(writer.Close())
	case "forward tcp":
		var port int
		fmt.Sscan(location.Port(), &port)
		sendForward(location.Hostname(), port)
	case "hec http":
		sendHec(address)
	case "loki http":
		sendLoki(address)
	case "bulk http":
		sendBulk(address)
	case "otlp grpc":
		sendOtlp(otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(address), otlploggrpc.WithInsecure()))
	case "otlp http":
		sendOtlp(otlploghttp.New(ctx, otlploghttp.WithEndpoint(address), otlploghttp.WithInsecure(), otlploghttp.WithCompression(otlploghttp.GzipCompression)))
	case "kafka":
		sendKafka(address)
	case "read kafka":
		readKafka(address)
	case "read flight":
		readFlight(address)
	default:
		panic(kind)
	}
}
