package main

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	servers := strings.Split("@NAMESRV_ADDR@", ";")
	keys := primitive.Credentials{AccessKey: "@ACCESS_KEY@", SecretKey: "@SECRET_KEY@"}
	key := fmt.Sprint(time.Now().UnixNano())
	received := make(chan struct{}, 1)

	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers),
		consumer.WithGroupName("quickstart-go"),
		consumer.WithCredentials(keys),
		// A new group begins with the oldest message: its first run also prints what the topic holds already.
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(c.Subscribe("@TOPIC@", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println("received", string(message.Body))
				if message.GetKeys() == key {
					received <- struct{}{}
				}
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(c.Start())

	p, err := rocketmq.NewProducer(
		producer.WithNameServer(servers),
		producer.WithGroupName("quickstart-go"),
		producer.WithCredentials(keys),
	)
	check(err)
	check(p.Start())
	message := primitive.NewMessage("@TOPIC@", []byte("Hello from Go")).WithTag("greeting").WithKeys([]string{key})
	result, err := p.SendSync(context.Background(), message)
	check(err)
	fmt.Println("sent", result.Status, result.MsgID)

	select {
	case <-received:
	case <-time.After(60 * time.Second):
		log.Fatal("the message did not come back")
	}
	check(p.Shutdown())
	check(c.Shutdown())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
