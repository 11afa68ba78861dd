package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// collector is a push consumer and everything that its listener was given.
type collector struct {
	push     rocketmq.PushConsumer
	lock     sync.Mutex
	received []map[string]any
	polled   int
}

var collectors = map[string]*collector{}

func (c *collector) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.received) - c.polled
}

func startConsumer(o order) (any, error) {
	instance := o.Instance
	if instance == "" {
		instance = newInstanceName()
	}
	options := []consumer.Option{
		consumer.WithNameServer(strings.Split(o.NameSrv, ";")),
		consumer.WithGroupName(o.Group),
		consumer.WithInstance(instance),
		consumer.WithConsumerOrder(o.Ordered),
	}
	if o.AccessKey != "" {
		options = append(options, consumer.WithCredentials(o.credentials()))
	}
	if o.Trace {
		options = append(options, consumer.WithTrace(o.traceConfig()))
	}
	if o.From == "CONSUME_FROM_LAST_OFFSET" {
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	} else {
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	}
	if o.Broadcasting {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if o.MaxReconsumeTimes != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*o.MaxReconsumeTimes))
	}
	if o.SuspendMs > 0 {
		options = append(options,
			consumer.WithSuspendCurrentQueueTimeMillis(time.Duration(o.SuspendMs)*time.Millisecond))
	}
	if o.Threads > 0 {
		options = append(options, consumer.WithConsumeGoroutineNums(o.Threads))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	c := &collector{push: push}
	selector := consumer.MessageSelector{}
	if o.Expression != "" {
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: o.Expression}
	}
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		failed := false
		c.lock.Lock()
		for _, message := range messages {
			one := describe(message)
			one["received_at_ms"] = time.Now().UnixMilli()
			c.received = append(c.received, one)
			if o.FailUntilReconsumed != nil && message.ReconsumeTimes < *o.FailUntilReconsumed {
				failed = true
			}
		}
		c.lock.Unlock()
		if failed && o.Ordered {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if failed {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := push.Subscribe(o.Topic, selector, listener); err != nil {
		return nil, err
	}
	if err := push.Start(); err != nil {
		return nil, err
	}
	name := newInstanceName()
	collectors[name] = c
	return name, nil
}

func collectorOf(o order) (*collector, error) {
	c, ok := collectors[o.Consumer]
	if !ok {
		return nil, fmt.Errorf("no consumer %s", o.Consumer)
	}
	return c, nil
}

func pollConsumer(o order) (any, error) {
	c, err := collectorOf(o)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Duration(o.TimeoutMs) * time.Millisecond)
	for c.count() < o.Count && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	fresh := append([]map[string]any{}, c.received[c.polled:]...)
	c.polled = len(c.received)
	return fresh, nil
}

func stopConsumer(o order) error {
	c, err := collectorOf(o)
	if err != nil {
		return err
	}
	delete(collectors, o.Consumer)
	return c.push.Shutdown()
}
