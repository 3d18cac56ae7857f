// A busy program that holds 8 MiB and profiles itself with dd-trace-go: how often it sends, how long it is busy.
// The URL and the key are in the environment.
package main

import (
	"os"
	"runtime"
	"time"

	"github.com/DataDog/dd-trace-go/v2/profiler"
)

//go:noinline
func countInGo(until time.Time) (sum int) {
	for time.Now().Before(until) {
		for i := range 100_000 {
			sum += i * i
		}
	}
	return sum
}

func duration(text string) time.Duration {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

//go:noinline
func hold() []byte { return make([]byte, 8<<20) }

func main() {
	held := hold()
	period := duration(os.Args[1])
	err := profiler.Start(
		profiler.WithPeriod(period), profiler.CPUDuration(period),
		profiler.WithProfileTypes(profiler.CPUProfile, profiler.HeapProfile, profiler.GoroutineProfile),
	)
	if err != nil {
		panic(err)
	}
	countInGo(time.Now().Add(duration(os.Args[2])))
	profiler.Stop()
	runtime.KeepAlive(held)
}
