// natsload sends a NATS server as many requests as asked, from several clients at once, and prints how they went.
//
//	natsload ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ...
//
// Kinds are publish (messages with headers to subscribers by patterns and in a queue group), ask (a question that
// another client answers), store (a message into a stream), last (the last one of a subject in it), and put and
// get (of keys). It prints JSON: how many requests there were, and the median and the 99th percentile of their
// time in milliseconds.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	subjects = 200
	batch    = 20
)

type sender struct {
	*nats.Conn
	stream nats.JetStreamContext
	keys   nats.KeyValue
	draw   *rand.Rand
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func connect(address string, seed int64) sender {
	connection := must(nats.Connect(address))
	stream := must(connection.JetStream(nats.MaxWait(time.Minute)))
	config := nats.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*.stored"}, Storage: nats.MemoryStorage, MaxMsgs: 5000,
	}
	must(stream.AddStream(&config))
	keys, err := stream.KeyValue("settings")
	if err != nil {
		keys = must(stream.CreateKeyValue(&nats.KeyValueConfig{Bucket: "settings", Storage: nats.MemoryStorage}))
	}
	return sender{connection, stream, keys, rand.New(rand.NewSource(seed))}
}

func (s sender) request(kind string) error {
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
		_, err := s.Request(fmt.Sprintf("prices.%d", number), body, time.Minute)
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

// listen subscribes to all subjects of the load, and answers questions.
func listen(address string) {
	listener := must(nats.Connect(address))
	ignore := func(*nats.Msg) {}
	for _, pattern := range []string{"orders.>", "orders.*.paid", "orders.1.*", "*.*.new"} {
		must(listener.Subscribe(pattern, ignore))
	}
	for range 4 {
		must(listener.QueueSubscribe("orders.*.new", "workers", ignore))
	}
	must(listener.Subscribe("prices.*", func(asked *nats.Msg) { asked.Respond(asked.Data) }))
	must(0, listener.Flush())
}

func number(text string) int { return must(strconv.Atoi(text)) }

func main() {
	if len(os.Args) < 6 {
		log.Fatal("usage: natsload ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ...")
	}
	requests, clients, seed := number(os.Args[2]), number(os.Args[3]), number(os.Args[4])
	var kinds []string
	for _, word := range os.Args[5:] {
		kind, share, _ := strings.Cut(word, "=")
		kinds = append(kinds, slices.Repeat([]string{kind}, number(share))...)
	}
	listen(os.Args[1])
	taken := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for number := range clients {
		all.Go(func() {
			client := connect(os.Args[1], int64(seed*1000+number))
			defer client.Close()
			for range requests / clients {
				began := time.Now()
				must(0, client.request(kinds[client.draw.Intn(len(kinds))]))
				taken[number] = append(taken[number], time.Since(began))
			}
		})
	}
	all.Wait()
	times := slices.Concat(taken...)
	slices.Sort(times)
	share := func(part float64) float64 { return float64(times[int(part*float64(len(times)))].Microseconds()) / 1000 }
	json.NewEncoder(os.Stdout).Encode(map[string]any{"requests": len(times), "p50": share(0.5), "p99": share(0.99)})
}
