package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// plan describes one message; the body follows from seed, size and kind. See tests/interop/content.py.
type plan struct {
	Seed        string            `json:"seed"`
	Size        int               `json:"size"`
	Kind        string            `json:"kind"`
	Tag         string            `json:"tag"`
	Keys        string            `json:"keys"`
	ShardingKey string            `json:"sharding_key"`
	DelayLevel  int               `json:"delay_level"`
	Properties  map[string]string `json:"properties"`
}

func (p plan) body() ([]byte, error) {
	digest := sha256.Sum256([]byte(p.Seed))
	block, err := aes.NewCipher(digest[:16])
	if err != nil {
		return nil, err
	}
	size := p.Size
	if p.Kind == "text" {
		size = (p.Size + 1) / 2
	}
	stream := make([]byte, size)
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(stream, stream)
	if p.Kind == "text" {
		return []byte(hex.EncodeToString(stream))[:p.Size], nil
	}
	return stream, nil
}

func (p plan) message(topic string) (*primitive.Message, error) {
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	message := primitive.NewMessage(topic, body)
	if p.Tag != "" {
		message.WithTag(p.Tag)
	}
	if p.Keys != "" {
		message.WithKeys(strings.Split(p.Keys, " "))
	}
	if p.DelayLevel > 0 {
		message.WithDelayTimeLevel(p.DelayLevel)
	}
	for name, value := range p.Properties {
		message.WithProperty(name, value)
	}
	return message, nil
}

func describe(message *primitive.MessageExt) map[string]any {
	digest := sha256.Sum256(message.Body)
	delay, _ := strconv.Atoi(message.GetProperty(primitive.PropertyDelayTimeLevel))
	return map[string]any{
		"topic":              message.Topic,
		"queue_id":           message.Queue.QueueId,
		"queue_offset":       message.QueueOffset,
		"commit_log_offset":  message.CommitLogOffset,
		"msg_id":             message.MsgId,
		"offset_msg_id":      message.OffsetMsgId,
		"tags":               message.GetTags(),
		"keys":               message.GetKeys(),
		"properties":         message.GetProperties(),
		"size":               len(message.Body),
		"sha256":             hex.EncodeToString(digest[:]),
		"sys_flag":           message.SysFlag,
		"flag":               message.Flag,
		"delay_level":        delay,
		"reconsume_times":    message.ReconsumeTimes,
		"born_host":          message.BornHost,
		"store_host":         message.StoreHost,
		"born_timestamp_ms":  message.BornTimestamp,
		"store_timestamp_ms": message.StoreTimestamp,
	}
}
