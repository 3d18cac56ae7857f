package main

import (
	"log"
	"os"
	"runtime/pprof"
	"strings"
)

// init writes a CPU profile to FILE if restic's first argument is -cpuprofile=FILE, which restic never sees.
func init() {
	if len(os.Args) < 2 {
		return
	}
	name, isAsked := strings.CutPrefix(os.Args[1], "-cpuprofile=")
	if !isAsked {
		return
	}
	os.Args = append(os.Args[:1], os.Args[2:]...)
	file, err := os.Create(name)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		log.Fatal(err)
	}
	AddCleanupHandler(func() error {
		pprof.StopCPUProfile()
		return file.Close()
	})
}
