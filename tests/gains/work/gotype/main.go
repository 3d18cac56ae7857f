// gotype parses and checks packages of Go's library, and all that they import, as a compiler's front end does.
//
//	gotype [-cpuprofile FILE] ROUNDS GOROOT PACKAGE ...
//
// It does so that often, and writes a CPU profile of that to FILE.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
)

// A loader is the importer of the packages that it checks.
type loader struct {
	context build.Context
	files   *token.FileSet
	checked map[string]*types.Package
	uses    int
}

func newLoader(root string) *loader {
	context := build.Default
	context.GOROOT, context.CgoEnabled = root, false
	return &loader{context, token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}, 0}
}

func (l *loader) Import(path string) (*types.Package, error) {
	return l.ImportFrom(path, filepath.Join(l.context.GOROOT, "src"), 0)
}

func (l *loader) ImportFrom(path, folder string, _ types.ImportMode) (*types.Package, error) {
	if checked := l.checked[path]; checked != nil {
		return checked, nil
	}
	found, err := l.context.Import(path, folder, 0)
	if err != nil {
		return nil, err
	}
	if checked := l.checked[found.ImportPath]; checked != nil {
		return checked, nil
	}
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(l.files, filepath.Join(found.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: l, Sizes: types.SizesFor("gc", "amd64")}
	checked, err := config.Check(found.ImportPath, l.files, files, info)
	l.checked[found.ImportPath] = checked
	l.uses += len(info.Uses)
	return checked, err
}

func main() {
	profile := flag.String("cpuprofile", "", "where to write a CPU profile")
	flag.Parse()
	rounds, err := strconv.Atoi(flag.Arg(0))
	check(err)
	if *profile != "" {
		file, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(file))
		defer file.Close()
		defer pprof.StopCPUProfile()
	}
	var last *loader
	for range rounds {
		last = newLoader(flag.Arg(1))
		for _, path := range flag.Args()[2:] {
			_, err := last.Import(path)
			check(err)
		}
	}
	fmt.Println(len(last.checked), "packages,", last.uses, "uses of names")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
