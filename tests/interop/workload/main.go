// workload profiles itself while it does what a profile-guided build can make faster: calls through an
// interface whose dynamic type is nearly always the same.
//
//	workload FILE SECONDS
//
// The seconds are of CPU time, so that a busy machine takes none of the samples.
package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
	"time"
)

type shape interface{ area(scale float64) float64 }

type square struct{ side float64 }

type circle struct{ radius float64 }

// Beyond the usual budget of the inliner, so that only a profile makes it worth inlining.
func (s square) area(scale float64) float64 {
	total := 0.0
	for step := 1; step <= 8; step++ {
		side := s.side * scale / float64(step)
		if side > 1e9 {
			side = 1e9
		}
		total += side*side + side*float64(step) - float64(step*step)
		if total < 0 {
			total = -total
		}
		total += side / (1 + total)
		if total > 1e15 {
			total -= side*float64(step+1) + scale*side
		}
	}
	return total
}

func (c circle) area(scale float64) float64 { return 3.14159 * c.radius * c.radius * scale }

//go:noinline
func sum(shapes []shape) float64 {
	total := 0.0
	for number, each := range shapes {
		total += each.area(1 + float64(number%7))
	}
	return total
}

func work(duration time.Duration) float64 {
	shapes := make([]shape, 4096)
	for number := range shapes {
		shapes[number] = square{float64(number)}
		if number%512 == 0 {
			shapes[number] = circle{float64(number)}
		}
	}
	total := 0.0
	for start := taken(); taken()-start < duration; {
		total += sum(shapes)
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
