package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	var exporter sdklog.Exporter
	var err error
	if os.Args[1] == "grpc" {
		options := []otlploggrpc.Option{otlploggrpc.WithEndpoint(os.Args[2]), otlploggrpc.WithInsecure()}
		if len(os.Args) > 3 {
			options = append(options, otlploggrpc.WithCompressor("gzip"))
		}
		exporter, err = otlploggrpc.New(ctx, options...)
	} else {
		options := []otlploghttp.Option{otlploghttp.WithEndpoint(os.Args[2]), otlploghttp.WithInsecure()}
		if len(os.Args) > 3 {
			options = append(options, otlploghttp.WithCompression(otlploghttp.GzipCompression))
		}
		exporter, err = otlploghttp.New(ctx, options...)
	}
	check(err)
	res := resource.NewSchemaless(attribute.String("service.name", "shop"), attribute.String("host.name", "web-1"), attribute.Int("process.pid", 77))
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	logger := provider.Logger("orders", log.WithInstrumentationVersion("1.2"))
	traceID, _ := trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	spanID, _ := trace.SpanIDFromHex("b7ad6b7169203331")
	span := trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: 1}))
	var first log.Record
	first.SetTimestamp(time.Unix(1795369000, 123456789))
	first.SetObservedTimestamp(time.Unix(1795369001, 5))
	first.SetSeverity(log.SeverityWarn)
	first.SetSeverityText("WARN")
	first.SetBody(attribute.StringValue("first message, grüße"))
	first.AddAttributes(attribute.Int("basket", 7), attribute.Float64("price", 1.5), attribute.Bool("paid", true),
		attribute.Slice("names", attribute.StringValue("a"), attribute.StringValue("b")), attribute.Map("deep", attribute.Map("x", attribute.Int("y", 1))),
		attribute.String("log.record.uid", "01JD"))
	logger.Emit(span, first)
	var second log.Record
	second.SetTimestamp(time.Unix(1795369002, 0))
	second.SetObservedTimestamp(time.Unix(1795369002, 0))
	second.SetSeverity(log.SeverityError)
	second.SetEventName("order.failed")
	second.SetBody(attribute.MapValue(attribute.Int("order", 8), attribute.Slice("lines", attribute.StringValue("x"))))
	logger.Emit(ctx, second)
	var third log.Record
	third.SetTimestamp(time.Unix(1795369003, 0))
	third.SetObservedTimestamp(time.Unix(1795369003, 0))
	third.SetBody(attribute.ByteSliceValue([]byte("bytes")))
	third.AddAttributes(attribute.KeyValue{Key: "none"})
	logger.Emit(ctx, third)
	check(provider.Shutdown(ctx))
}
