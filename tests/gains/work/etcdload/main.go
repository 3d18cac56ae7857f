// etcdload sends an etcd as many requests as asked, from several clients at once, and prints how they went:
//
//	etcdload ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ...
//
// Kinds are put, get, range, txn (compare and put), delete, and lease (put with one). While it runs, one watcher
// reads all changes. It prints JSON: how many requests there were, and the median and the 99th percentile of their
// time in milliseconds.
package main

import (
	"context"
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

	"go.etcd.io/etcd/clientv3"
)

const keys = 5000

func key(draw *rand.Rand) string {
	number := draw.Intn(keys)
	return fmt.Sprintf("/registry/pods/space-%d/pod-%05d", number%16, number)
}

type sender struct {
	*clientv3.Client
	draw *rand.Rand
}

func (s sender) request(kind string) error {
	var err error
	ctx, client, draw := context.Background(), s.Client, s.draw
	name, value := key(draw), strings.Repeat("v", 64+draw.Intn(960))
	switch kind {
	case "put":
		_, err = client.Put(ctx, name, value)
	case "get":
		_, err = client.Get(ctx, name)
	case "range":
		prefix := fmt.Sprintf("/registry/pods/space-%d/", draw.Intn(16))
		_, err = client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(50))
	case "txn":
		missing := clientv3.Compare(clientv3.Version(name), "=", 0)
		_, err = client.Txn(ctx).If(missing).Then(clientv3.OpPut(name, value)).Else(clientv3.OpGet(name)).Commit()
	case "delete":
		_, err = client.Delete(ctx, name)
	case "lease":
		var lease *clientv3.LeaseGrantResponse
		if lease, err = client.Grant(ctx, 60); err == nil {
			_, err = client.Put(ctx, name, value, clientv3.WithLease(lease.ID))
		}
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	return err
}

func open(address string) *clientv3.Client {
	return must(clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 30 * time.Second}))
}

func watch(address string) {
	watcher := open(address)
	go func() {
		for range watcher.Watch(context.Background(), "/registry/", clientv3.WithPrefix()) {
		}
	}()
}

// must returns a value, or ends the program.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) < 6 {
		log.Fatalf("usage: %s ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ...", os.Args[0])
	}
	requests, clients, seed := number(os.Args[2]), number(os.Args[3]), number(os.Args[4])
	var kinds []string
	for _, word := range os.Args[5:] {
		kind, share, _ := strings.Cut(word, "=")
		kinds = append(kinds, slices.Repeat([]string{kind}, number(share))...)
	}
	watch(os.Args[1])
	taken := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for number := range clients {
		all.Go(func() {
			draw := rand.New(rand.NewSource(int64(seed*1000 + number)))
			client := sender{open(os.Args[1]), draw}
			defer client.Close()
			for range requests / clients {
				began := time.Now()
				must(0, client.request(kinds[draw.Intn(len(kinds))]))
				taken[number] = append(taken[number], time.Since(began))
			}
		})
	}
	all.Wait()
	times := slices.Concat(taken...)
	slices.Sort(times)
	share := func(part float64) float64 { return float64(times[int(part*float64(len(times)))].Microseconds()) / 1000 }
	fmt.Println(string(must(json.Marshal(map[string]any{"requests": len(times), "p50": share(0.5), "p99": share(0.99)}))))
}

func number(text string) int { return must(strconv.Atoi(text)) }
