// logsum sums up a log of key=value pairs, as services write it: what it says in numbers, and how often which words.
//
// Each pair comes from `next`, which is too large to be inlined as far as a compiler can know without a profile. So
// each pair is put on the heap, since it leaves the method that made it. Then it goes to a column, through an
// interface: nearly always to one with numbers, which a compiler can't know either.
//
//	logsum [-cpuprofile FILE] [ROUNDS]
//
// It reads a log that it makes itself, that often, and writes a CPU profile of that to FILE.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/pprof"
	"strconv"
)

type pair struct {
	key, value []byte
	last       bool // of its line
}

// A reader goes through a log.
type reader struct{ rest []byte }

var (
	errNoKey   = errors.New("a pair has no key")
	errNoQuote = errors.New("a quote isn't closed")
)

// next gives the next pair, or nil after the last.
func (r *reader) next() (*pair, error) {
	if len(r.rest) == 0 {
		return nil, nil
	}
	equals := 0
	for equals < len(r.rest) && r.rest[equals] != '=' {
		if r.rest[equals] <= ' ' {
			return nil, errNoKey
		}
		equals++
	}
	start, closing := equals+1, byte(' ')
	if equals == 0 || start >= len(r.rest) {
		return nil, errNoKey
	}
	if r.rest[start] == '"' {
		start, closing = start+1, '"'
	}
	end := start
	for end < len(r.rest) && r.rest[end] != closing && r.rest[end] != '\n' {
		end++
	}
	found := &pair{key: r.rest[:equals], value: r.rest[start:end]}
	if closing == '"' {
		if end == len(r.rest) || r.rest[end] != closing {
			return nil, errNoQuote
		}
		end++
	}
	found.last = end == len(r.rest) || r.rest[end] == '\n'
	r.rest = r.rest[min(end+1, len(r.rest)):]
	return found, nil
}

// A column is what all lines say under one key.
type column interface{ add(value []byte) }

type numbers struct{ total, largest int }

func (n *numbers) add(value []byte) {
	number := 0
	for _, digit := range value {
		number = number*10 + int(digit-'0')
	}
	n.total += number
	n.largest = max(n.largest, number)
}

type words struct{ counts map[string]int }

func (w *words) add(value []byte) { w.counts[string(value)]++ }

// A summary has the columns that one wants to know of.
type summary struct {
	lines   int
	columns []named
}

type named struct {
	key    string
	column column
}

// summarize sends the summary of the log when it has read it in all rounds.
func summarize(text []byte, rounds int, done chan<- summary) {
	var sums summary
	for round := 0; round < rounds; round++ {
		sums = summary{columns: []named{
			{"bytes", &numbers{}}, {"took", &numbers{}}, {"queued", &numbers{}}, {"level", &words{map[string]int{}}},
		}}
		in := reader{text}
		for {
			found, err := in.next()
			if err != nil {
				log.Fatal(err)
			}
			if found == nil {
				break
			}
			for _, each := range sums.columns {
				if each.key == string(found.key) {
					each.column.add(found.value)
					break
				}
			}
			if found.last {
				sums.lines++
			}
		}
	}
	done <- sums
}

// madeLog has some 4 MB.
func madeLog() []byte {
	var text bytes.Buffer
	random := uint32(1)
	for second := 0; second < 40000; second++ {
		random = random*1664525 + 1013904223
		fmt.Fprintf(&text, "time=%d bytes=%d took=%d queued=%d route=\"GET /articles/%d\"", 1700000000+second,
			random>>12&65535, random>>20&511, random>>28, random>>16&255)
		if random>>25 == 0 {
			text.WriteString(" level=error")
		}
		text.WriteByte('\n')
	}
	return text.Bytes()
}

func main() {
	profile := flag.String("cpuprofile", "", "where to write a CPU profile")
	flag.Parse()
	rounds := 100
	var err error
	if flag.NArg() > 0 {
		rounds, err = strconv.Atoi(flag.Arg(0))
		check(err)
	}
	text, done := madeLog(), make(chan summary)
	if *profile != "" {
		file, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(file))
		defer file.Close()
		defer pprof.StopCPUProfile()
	}
	go summarize(text, rounds, done)
	sums := <-done
	fmt.Println(sums.lines, "lines")
	for _, each := range sums.columns {
		fmt.Printf("%s: %+v\n", each.key, each.column)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
