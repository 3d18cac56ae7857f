// natsload is a load for a NATS server: see the package load.
//
// Kinds are publish (messages with headers to subscribers by patterns and in a queue group), ask (a question that
// another client answers), store (a message into a stream), last (the last one of a subject in it), and put and
// get (of keys).
package main

import (
	"fmt"
	"load"
	"math/rand"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	subjects = 200
	batch    = 20
	bucket   = "settings"
)

type sender struct {
	*nats.Conn
	stream nats.JetStreamContext
	keys   nats.KeyValue
	draw   *rand.Rand
}

func (s sender) Close() error {
	s.Conn.Close()
	return nil
}

func connect(address string, draw *rand.Rand) load.Client {
	connection := load.Must(nats.Connect(address))
	stream := load.Must(connection.JetStream(nats.MaxWait(time.Minute)))
	return sender{connection, stream, load.Must(stream.KeyValue(bucket)), draw}
}

func (s sender) Request(kind string) error {
	number, body := s.draw.Intn(subjects), []byte(strings.Repeat("v", 64+s.draw.Intn(448)))
	switch kind {
	case "publish":
		for range batch {
			message := nats.NewMsg(fmt.Sprintf("orders.%d.%s", number, []string{"new", "paid"}[s.draw.Intn(2)]))
			message.Header.Set("Trace", strconv.Itoa(number))
			message.Data = body
			if err := s.PublishMsg(message); err != nil {
				return err
			}
		}
		return s.Flush()
	case "ask":
		_, err := s.Conn.Request(fmt.Sprintf("prices.%d", number), body, time.Minute)
		return err
	case "store":
		_, err := s.stream.Publish(fmt.Sprintf("orders.%d.stored", number), body)
		return err
	case "last":
		if _, err := s.stream.GetLastMsg("ORDERS", fmt.Sprintf("orders.%d.stored", number)); err != nats.ErrMsgNotFound {
			return err
		}
		return nil
	case "put":
		_, err := s.keys.Put(fmt.Sprintf("key.%d", number), body)
		return err
	case "get":
		if _, err := s.keys.Get(fmt.Sprintf("key.%d", number)); err != nats.ErrKeyNotFound {
			return err
		}
		return nil
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// listen subscribes to all subjects of the load, and answers questions. It makes the stream and the keys, which a
// server refuses at times if several clients make the same ones at once.
func listen(address string) {
	listener := load.Must(nats.Connect(address))
	stream := load.Must(listener.JetStream(nats.MaxWait(time.Minute)))
	load.Must(stream.AddStream(&nats.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*.stored"}, Storage: nats.MemoryStorage, MaxMsgs: 5000,
	}))
	if _, err := stream.KeyValue(bucket); err != nil {
		load.Must(stream.CreateKeyValue(&nats.KeyValueConfig{Bucket: bucket, Storage: nats.MemoryStorage}))
	}
	ignore := func(*nats.Msg) {}
	for _, pattern := range []string{"orders.>", "orders.*.paid", "orders.1.*", "*.*.new"} {
		load.Must(listener.Subscribe(pattern, ignore))
	}
	for range 4 {
		load.Must(listener.QueueSubscribe("orders.*.new", "workers", ignore))
	}
	load.Must(listener.Subscribe("prices.*", func(asked *nats.Msg) { asked.Respond(asked.Data) }))
	load.Must(0, listener.Flush())
}

func main() { load.Run(listen, connect) }
