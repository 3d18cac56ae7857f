// Answers questions about pprof with google/pprof's own `profile` package, one after another on
// standard streams, so that thousands of them cost one process.
//
// A request is an operation (one byte), the number of its profiles, and each one's length and bytes; an
// answer is a status (0: done, 1: refused), a length and bytes. Numbers are 32 bits, big endian.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"oracle/profile"
)

// parse is profile.ParseData without the text formats of old that it falls back to.
func parse(data []byte) (*profile.Profile, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		if data, err = io.ReadAll(unzip); err != nil {
			return nil, err
		}
	}
	p, err := profile.ParseUncompressed(data)
	if err != nil {
		return nil, err
	}
	return p, p.CheckValid()
}

func parseAll(inputs [][]byte) ([]*profile.Profile, error) {
	parsed := make([]*profile.Profile, 0, len(inputs))
	for _, input := range inputs {
		p, err := parse(input)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
}

func answer(operation byte, inputs [][]byte) (_ []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	parsed, err := parseAll(inputs)
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	switch operation {
	case 'm': // the merge of all
		merged, err := profile.Merge(parsed)
		if err != nil {
			return nil, err
		}
		err = merged.WriteUncompressed(&output)
		return output.Bytes(), err
	case 'w': // the first one, written again
		err = parsed[0].WriteUncompressed(&output)
		return output.Bytes(), err
	default: // whether all are accepted
		return nil, nil
	}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	number := func() uint32 {
		var n uint32
		must(binary.Read(in, binary.BigEndian, &n))
		return n
	}
	for {
		operation, err := in.ReadByte()
		if err == io.EOF {
			return
		}
		must(err)
		inputs := make([][]byte, number())
		for i := range inputs {
			inputs[i] = make([]byte, number())
			_, err := io.ReadFull(in, inputs[i])
			must(err)
		}
		status := byte(0)
		result, err := answer(operation, inputs)
		if err != nil {
			status, result = 1, []byte(err.Error())
		}
		must(out.WriteByte(status))
		must(binary.Write(out, binary.BigEndian, uint32(len(result))))
		_, err = out.Write(result)
		must(err)
		must(out.Flush())
	}
}
