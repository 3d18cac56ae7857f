// etcdload is a load for an etcd: see the package load.
//
// Kinds are put, get, range, txn (compare and put), delete, and lease (put with one). While it runs, one watcher
// reads all changes.
package main

import (
	"context"
	"fmt"
	"load"
	"math/rand"
	"strings"
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

func (s sender) Request(kind string) error {
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
	return load.Must(clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 30 * time.Second}))
}

func watch(address string) {
	watcher := open(address)
	go func() {
		for range watcher.Watch(context.Background(), "/registry/", clientv3.WithPrefix()) {
		}
	}()
}

func main() {
	load.Run(watch, func(address string, draw *rand.Rand) load.Client { return sender{open(address), draw} })
}
