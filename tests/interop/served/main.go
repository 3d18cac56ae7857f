// served is a program as people have them: it works, and net/http/pprof answers for it. It prints its address.
//
// Each goroutine of its work waits for a lock and for a channel, so that no type of profile is empty.
package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

var (
	lock sync.Mutex
	kept []string
)

//go:noinline
func work(turns <-chan int) {
	for turn := range turns {
		var words []string
		for repeat := 0; repeat < 100; repeat++ {
			words = strings.Fields(strings.Repeat("a word ", 64))
		}
		lock.Lock()
		kept = append(kept[:min(len(kept), 1000)], words[turn%len(words)])
		time.Sleep(100 * time.Microsecond)
		lock.Unlock()
	}
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	turns := make(chan int)
	for range [2]struct{}{} {
		go work(turns)
	}
	go func() {
		for turn := 0; ; turn++ {
			turns <- turn
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	fmt.Fprintln(os.Stderr, http.Serve(listener, nil))
}
