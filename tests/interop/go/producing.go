package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const asyncInFlight = 64

var (
	producers    = map[string]rocketmq.Producer{}
	instanceSeed int
)

// newInstanceName keeps clients apart: those of one name share a connection and its credentials.
func newInstanceName() string {
	instanceSeed++
	return fmt.Sprintf("driver-%d-%d", time.Now().UnixNano(), instanceSeed)
}

func producerFor(o order) (rocketmq.Producer, error) {
	ordered := o.Mode == "ordered"
	key := fmt.Sprint(o.NameSrv, "|", o.Group, "|", o.AccessKey, "|", o.SecretKey, "|", ordered)
	if known, ok := producers[key]; ok {
		return known, nil
	}
	options := []producer.Option{
		producer.WithNameServer(strings.Split(o.NameSrv, ";")),
		producer.WithGroupName(o.Group),
		producer.WithInstanceName(newInstanceName()),
	}
	if o.AccessKey != "" {
		options = append(options, producer.WithCredentials(o.credentials()))
	}
	if o.Client.Retries != nil {
		options = append(options, producer.WithRetry(*o.Client.Retries))
	}
	if o.Client.TimeoutMs > 0 {
		options = append(options, producer.WithSendMsgTimeout(time.Duration(o.Client.TimeoutMs)*time.Millisecond))
	}
	if o.Client.Trace {
		options = append(options, producer.WithTrace(o.traceConfig()))
	}
	if ordered {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	producers[key] = made
	return made, nil
}

func closeProducers() error {
	for key, known := range producers {
		if err := known.Shutdown(); err != nil {
			return err
		}
		delete(producers, key)
	}
	return nil
}

func outcome(seed string, result *primitive.SendResult, err error) map[string]any {
	if err != nil {
		return map[string]any{"seed": seed, "status": nil, "error": err.Error(), "response_code": responseCode(err)}
	}
	status := map[primitive.SendStatus]string{
		primitive.SendOK:                "SEND_OK",
		primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
		primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}[result.Status]
	return map[string]any{
		"seed": seed, "status": status, "queue_id": result.MessageQueue.QueueId,
		"broker": result.MessageQueue.BrokerName, "queue_offset": result.QueueOffset, "msg_id": result.MsgID,
		"offset_msg_id": result.OffsetMsgID,
	}
}

func produce(o order) (any, error) {
	sender, err := producerFor(o)
	if err != nil {
		return nil, err
	}
	background := context.Background()
	if o.Mode == "batch" {
		return produceBatches(background, sender, o)
	}
	outcomes := make([]map[string]any, 0, len(o.Messages))
	var lock sync.Mutex
	var pending sync.WaitGroup
	slots := make(chan struct{}, asyncInFlight)
	add := func(one map[string]any) {
		lock.Lock()
		defer lock.Unlock()
		outcomes = append(outcomes, one)
	}
	for _, p := range o.Messages {
		message, err := p.message(o.Topic)
		if err != nil {
			return nil, err
		}
		seed := p.Seed
		switch o.Mode {
		case "sync":
			result, err := sender.SendSync(background, message)
			add(outcome(seed, result, err))
		case "ordered":
			message.WithShardingKey(p.ShardingKey)
			result, err := sender.SendSync(background, message)
			add(outcome(seed, result, err))
		case "oneway":
			if err := sender.SendOneWay(background, message); err != nil {
				add(outcome(seed, nil, err))
			}
		case "async":
			slots <- struct{}{}
			pending.Add(1)
			done := func(_ context.Context, result *primitive.SendResult, err error) {
				add(outcome(seed, result, err))
				<-slots
				pending.Done()
			}
			if err := sender.SendAsync(background, done, message); err != nil {
				done(background, nil, err)
			}
		default:
			return nil, fmt.Errorf("unknown mode %s", o.Mode)
		}
	}
	pending.Wait()
	return outcomes, nil
}

func produceBatches(background context.Context, sender rocketmq.Producer, o order) (any, error) {
	size := o.BatchSize
	if size == 0 {
		size = 32
	}
	var outcomes []map[string]any
	for start := 0; start < len(o.Messages); start += size {
		plans := o.Messages[start:min(start+size, len(o.Messages))]
		batch := make([]*primitive.Message, 0, len(plans))
		for _, p := range plans {
			message, err := p.message(o.Topic)
			if err != nil {
				return nil, err
			}
			batch = append(batch, message)
		}
		result, err := sender.SendSync(background, batch...)
		for index, p := range plans {
			one := outcome(p.Seed, result, err)
			if err == nil {
				one["queue_offset"] = result.QueueOffset + int64(index)
				if ids := strings.Split(result.MsgID, ","); index < len(ids) {
					one["msg_id"] = ids[index]
				}
				if ids := strings.Split(result.OffsetMsgID, ","); index < len(ids) {
					one["offset_msg_id"] = ids[index]
				}
			}
			outcomes = append(outcomes, one)
		}
	}
	return outcomes, nil
}
