// The Go half of the stock clients: takes orders as the Java driver does (one JSON object per line in, one answer per
// line out) and carries them out with rocketmq-client-go. tests/interop/clients.py is the other end.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// order is one request line; fields that an operation doesn't use are left empty.
type order struct {
	ID        int    `json:"id"`
	Op        string `json:"op"`
	NameSrv   string `json:"namesrv"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Group     string `json:"group"`
	Topic     string `json:"topic"`

	Mode      string         `json:"mode"`
	Messages  []plan         `json:"messages"`
	BatchSize int            `json:"batch_size"`
	Client    clientSettings `json:"client"`

	Consumer            string `json:"consumer"`
	Count               int    `json:"count"`
	TimeoutMs           int    `json:"timeout_ms"`
	Expression          string `json:"expression"`
	From                string `json:"from"`
	Instance            string `json:"instance"`
	Ordered             bool   `json:"ordered"`
	Broadcasting        bool   `json:"broadcasting"`
	Threads             int    `json:"threads"`
	MaxReconsumeTimes   *int32 `json:"max_reconsume_times"`
	FailUntilReconsumed *int32 `json:"fail_until_reconsume_times"`
	SuspendMs           int    `json:"suspend_ms"`
	Trace               bool   `json:"trace"`
}

type clientSettings struct {
	Retries   *int `json:"retries"`
	TimeoutMs int  `json:"timeout_ms"`
	Trace     bool `json:"trace"`
}

type answer struct {
	ID           int    `json:"id"`
	OK           bool   `json:"ok"`
	Result       any    `json:"result,omitempty"`
	Exception    string `json:"exception,omitempty"`
	Error        string `json:"error,omitempty"`
	ResponseCode *int   `json:"response_code"`
}

func (o order) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: o.AccessKey, SecretKey: o.SecretKey}
}

func (o order) traceConfig() *primitive.TraceConfig {
	config := &primitive.TraceConfig{
		Access: primitive.Local, GroupName: o.Group, NamesrvAddrs: strings.Split(o.NameSrv, ";"),
	}
	if o.AccessKey != "" {
		config.Credentials = o.credentials()
	}
	return config
}

// responseCode is the broker's code inside an error, where the client kept it.
func responseCode(err error) *int {
	var broker *primitive.MQBrokerErr
	if errors.As(err, &broker) {
		code := int(broker.ResponseCode)
		return &code
	}
	var brokerValue primitive.MQBrokerErr
	if errors.As(err, &brokerValue) {
		code := int(brokerValue.ResponseCode)
		return &code
	}
	return nil
}

func run(o order) (any, error) {
	switch o.Op {
	case "produce":
		return produce(o)
	case "close_producers":
		return nil, closeProducers()
	case "consumer_start":
		return startConsumer(o)
	case "consumer_poll":
		return pollConsumer(o)
	case "consumer_stop":
		return nil, stopConsumer(o)
	}
	return nil, fmt.Errorf("unknown op %s", o.Op)
}

func main() {
	// The protocol owns standard output; whatever a library prints goes to the log.
	answers := bufio.NewWriter(os.Stdout)
	os.Stdout = os.Stderr
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0) // standard input has ended: the test is over
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			fmt.Fprintln(os.Stderr, "not an order:", err)
			os.Exit(2)
		}
		result, err := run(o)
		reply := answer{ID: o.ID, OK: err == nil, Result: result}
		if err != nil {
			reply.Exception = reflect.TypeOf(err).String()
			reply.Error = err.Error()
			reply.ResponseCode = responseCode(err)
		}
		if err := encoder.Encode(reply); err != nil {
			os.Exit(1)
		}
		answers.Flush()
	}
}
