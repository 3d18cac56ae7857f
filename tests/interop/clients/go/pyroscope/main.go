// A busy program that holds 8 MiB and profiles itself with pyroscope-go: URL and KEY of the collector, how often it sends, how long it is busy.
package main

import (
	"os"
	"runtime"
	"time"

	"github.com/grafana/pyroscope-go"
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
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName:   "go.shop",
		ServerAddress:     os.Args[1],
		BasicAuthUser:     "pyroscope",
		BasicAuthPassword: os.Args[2],
		Tags:              map[string]string{"version": "1.4", "region": "eu"},
		UploadRate:        duration(os.Args[3]),
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileInuseSpace, pyroscope.ProfileAllocSpace, pyroscope.ProfileGoroutines,
		},
	})
	if err != nil {
		panic(err)
	}
	countInGo(time.Now().Add(duration(os.Args[4])))
	if err := profiler.Stop(); err != nil {
		panic(err)
	}
	runtime.KeepAlive(held)
}
