// Go's side of the benchmarks, by google/pprof's own `profile` package: what a program that is written
// with it pays for the work, once it runs.
//
//	gobench merge FOLDER COUNT REPEAT    parse them all, merge, write: as pgo-fleet merges
//	gobench inflate FOLDER COUNT REPEAT  read and inflate them, and no more
//	gobench submit FOLDER COUNT          parse and write, a profile at a time: as pgo-fleet takes them
//	gobench mutate FOLDER COUNT OUT      make other profiles of them, see mutate
//	gobench serve FOLDER                 do as pgo-fleet does over HTTP, see serve
//
// Profiles are the first COUNT files of the folder by name. Seconds are printed as JSON.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"oracle/profile"
)

// cost is in seconds: of all cores, and on the clock.
type cost struct {
	CPU  float64 `json:"cpu"`
	Wall float64 `json:"wall"`
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gobench:", err)
		os.Exit(1)
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func measured(work func()) cost {
	runtime.GC() // nobody pays for the garbage of the one before
	cpu, wall := cpuSeconds(), time.Now()
	work()
	return cost{cpuSeconds() - cpu, time.Since(wall).Seconds()}
}

func names(folder, count string) []string {
	files := must(filepath.Glob(filepath.Join(folder, "*")))
	return files[:must(strconv.Atoi(count))] // Glob sorts
}

func merge(files []string, output io.Writer) {
	var parsed []*profile.Profile
	for _, file := range files {
		parsed = append(parsed, must(profile.ParseData(must(os.ReadFile(file)))))
	}
	check(must(profile.Merge(parsed)).Write(output))
}

func inflate(files []string) {
	for _, file := range files {
		must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(must(os.ReadFile(file)))))))
	}
}

func submit(files []string) []float64 {
	var seconds []float64
	for _, file := range files {
		input := must(os.ReadFile(file))
		began := time.Now()
		var output bytes.Buffer
		check(must(profile.ParseData(input)).Write(&output))
		seconds = append(seconds, time.Since(began).Seconds())
	}
	return seconds
}

// mutate writes the profile with a tenth of its stacks one frame shorter, and its values up to three
// times as large: a merge of such profiles never stops to find new stacks, as in a program that changes.
func mutate(input []byte, seed int64, out string) {
	p := must(profile.ParseData(input))
	random := rand.New(rand.NewSource(seed))
	for _, sample := range p.Sample {
		if len(sample.Location) > 3 && random.Intn(10) == 0 {
			at := 1 + random.Intn(len(sample.Location)-2) // the leaf stays, and the root
			sample.Location = slices.Delete(slices.Clone(sample.Location), at, at+1)
		}
		factor := 1 + random.Int63n(3)
		for i := range sample.Value {
			sample.Value[i] *= factor
		}
	}
	file := must(os.Create(out))
	zip := must(gzip.NewWriterLevel(file, gzip.BestSpeed)) // as the Go runtime does
	check(p.WriteUncompressed(zip))
	check(zip.Close())
	check(file.Close())
}

func mutateAll(files []string, folder string) {
	var group sync.WaitGroup
	next := make(chan int)
	for range runtime.NumCPU() {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range next {
				mutate(must(os.ReadFile(files[i])), int64(i), filepath.Join(folder, filepath.Base(files[i])))
			}
		}()
	}
	for i := range files {
		next <- i
	}
	close(next)
	group.Wait()
}

// serve answers at the address that it prints. What is submitted is parsed and written to a file in the
// folder, without a sync; for a merge all files that are there are parsed, merged and written.
func serve(folder string) {
	http.HandleFunc("POST /v1/submit", func(answer http.ResponseWriter, request *http.Request) {
		submitted, err := profile.Parse(request.Body)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		file := must(os.CreateTemp(folder, "*.pgo"))
		check(submitted.Write(file))
		check(file.Close())
		answer.WriteHeader(http.StatusNoContent)
	})
	http.HandleFunc("GET /v1/merge", func(answer http.ResponseWriter, _ *http.Request) {
		merge(must(filepath.Glob(filepath.Join(folder, "*"))), answer)
	})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr())
	check(http.Serve(listener, nil))
}

func main() {
	if os.Args[1] == "serve" {
		serve(os.Args[2])
	}
	work, folder, count := os.Args[1], os.Args[2], os.Args[3]
	var result any
	switch work {
	case "merge", "inflate":
		do := inflate
		if work == "merge" {
			do = func(files []string) { merge(files, io.Discard) }
		}
		files := names(folder, count)
		do(files[:1])
		var costs []cost
		for range must(strconv.Atoi(os.Args[4])) {
			costs = append(costs, measured(func() { do(files) }))
		}
		result = costs
	case "submit":
		result = submit(names(folder, count))
	case "mutate":
		mutateAll(names(folder, count), os.Args[4])
		return
	}
	check(json.NewEncoder(os.Stdout).Encode(result))
}
