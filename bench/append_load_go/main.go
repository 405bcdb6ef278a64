// Command append_load appends entries to slogd or Penstock over gRPC; each caller waits for its answer. It prints JSON.
//
// Requests are bytes that are encoded once: the client must not be what is measured.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	method         = "/slogd.StructuredLog/AppendLogs"
	entryBytes     = 256
	maxConnections = 8
	bytesField     = 2 // wire type of length-delimited fields
	topicField     = 1
	logsField      = 2
	rawBytesField  = 4
)

// raw passes requests and answers as the bytes that they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (raw) Name() string                       { return "proto" }

func field(number int, content []byte) []byte {
	encoded := []byte{byte(number<<3 | bytesField)}
	size := len(content)
	for ; size >= 0x80; size >>= 7 {
		encoded = append(encoded, byte(size)|0x80)
	}
	return append(append(encoded, byte(size)), content...)
}

func request(topic string, entries int) []byte {
	payload := make([]byte, entryBytes)
	for i := range payload {
		payload[i] = 'm'
	}
	entry := field(logsField, field(rawBytesField, payload))
	encoded := field(topicField, []byte(topic))
	for i := 0; i < entries; i++ {
		encoded = append(encoded, entry...)
	}
	return encoded
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "append_load:", err)
	os.Exit(1)
}

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: append_load ADDRESS TOPIC CALLERS ENTRIES SECONDS"))
	}
	address, topic := os.Args[1], os.Args[2]
	var numbers [3]float64
	for i := range numbers {
		number, err := strconv.ParseFloat(os.Args[3+i], 64)
		if err != nil {
			fail(err)
		}
		numbers[i] = number
	}
	callers, entries, seconds := int(numbers[0]), int(numbers[1]), numbers[2]
	connections := make([]*grpc.ClientConn, min(callers, maxConnections))
	for i := range connections {
		options := []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.WaitForReady(true)),
		}
		connection, err := grpc.NewClient(address, options...)
		if err != nil {
			fail(err)
		}
		connections[i] = connection
	}
	data := request(topic, entries)
	var requests, failed atomic.Int64
	var running sync.WaitGroup
	began, used := time.Now(), cpuSeconds()
	end := began.Add(time.Duration(seconds * float64(time.Second)))
	for caller := 0; caller < callers; caller++ {
		running.Add(1)
		go func(connection *grpc.ClientConn) {
			defer running.Done()
			for time.Now().Before(end) {
				var answer []byte
				if err := connection.Invoke(context.Background(), method, &data, &answer); err != nil {
					failed.Add(1)
				} else {
					requests.Add(1)
				}
			}
		}(connections[caller%len(connections)])
	}
	running.Wait()
	took := time.Since(began).Seconds()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"requests": requests.Load(), "failed": failed.Load(), "seconds": took, "cores": (cpuSeconds() - used) / took,
	})
}
