// Package load sends a server as many requests as asked, from several clients at once, and prints how they went.
package load

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
)

// A Client sends a request of a kind. Its draws decide what is in it.
type Client interface {
	Request(kind string) error
	Close() error
}

// Must returns a value, or ends the program.
func Must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// Run sends what the arguments of the program ask for, ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ..., and prints JSON:
// how many requests there were, and the median and the 99th percentile of their time in milliseconds. It first gives
// the address to listen, and then to connect, once for each client, with the draws for its requests.
func Run(listen func(address string), connect func(address string, draw *rand.Rand) Client) {
	if len(os.Args) < 6 {
		log.Fatalf("usage: %s ADDRESS REQUESTS CLIENTS SEED KIND=SHARE ...", os.Args[0])
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
			draw := rand.New(rand.NewSource(int64(seed*1000 + number)))
			client := connect(os.Args[1], draw)
			defer client.Close()
			for range requests / clients {
				began := time.Now()
				Must(0, client.Request(kinds[draw.Intn(len(kinds))]))
				taken[number] = append(taken[number], time.Since(began))
			}
		})
	}
	all.Wait()
	times := slices.Concat(taken...)
	slices.Sort(times)
	share := func(part float64) float64 { return float64(times[int(part*float64(len(times)))].Microseconds()) / 1000 }
	fmt.Println(string(Must(json.Marshal(map[string]any{"requests": len(times), "p50": share(0.5), "p99": share(0.99)}))))
}

func number(text string) int { return Must(strconv.Atoi(text)) }
