// names profiles itself while it runs code of every kind that the linker names in a way of its own: generic
// functions, closures, methods, assembly, and a function that is always inlined.
//
//	names FILE SECONDS
//
// The seconds are of CPU time, so that a busy machine takes none of the samples.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

type named interface{ name() string }

type point struct{ x, y int }

func (p point) name() string { return fmt.Sprint(p.x, p.y) }

type counter struct{ words map[string]int }

//go:noinline
func (c *counter) count(words []string) {
	for _, word := range words {
		c.words[strings.ToUpper(word)]++
	}
}

// convert has a loop without calls, so that some samples are in its own code on any processor.
//
//go:noinline
func convert[From, To any](all []From, one func(From) To) []To {
	converted := make([]To, len(all))
	at := 0
	for step := 0; step < 4*len(all); step++ {
		at = (at*69069 + 1) % len(all)
	}
	for range all {
		converted[at] = one(all[at])
		at = (at + 1) % len(all)
	}
	return converted
}

// squares is inlined with its loop, so that some samples are in it on any processor: a single instruction between
// slower ones may never be the one that a signal finds.
func squares(x float64) (total float64) {
	for scale := 1.0; scale < 20; scale++ {
		total += x / scale * x / scale
	}
	return total
}

//go:noinline
func hash(words []string) byte {
	var text []byte
	for len(text) < 50000 {
		text = append(text, words[0]...)
	}
	sum := sha256.Sum256(text)
	return sum[0]
}

func work(duration time.Duration) (total float64) {
	words := strings.Fields(strings.Repeat("some words to count ", 100))
	counted := counter{map[string]int{}}
	numbers := make([]int, 2000)
	for number := range numbers {
		numbers[number] = number
	}
	for start := taken(); taken()-start < duration; {
		counted.count(words)
		for _, each := range convert(numbers, func(number int) float64 { return float64(number) / 3 }) {
			total += squares(each)
		}
		for _, each := range convert(numbers, func(number int) named { return point{number, number} }) {
			total += float64(len(each.name()))
		}
		slices.SortFunc(words, func(a, b string) int { return strings.Compare(a, b) })
		total += float64(hash(words))
	}
	return total
}

// taken is the CPU time that the program has had so far.
func taken() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	duration, err := time.ParseDuration(os.Args[2] + "s")
	check(err)
	file, err := os.Create(os.Args[1])
	check(err)
	check(pprof.StartCPUProfile(file))
	total := work(duration)
	pprof.StopCPUProfile()
	check(file.Close())
	fmt.Println(total)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
