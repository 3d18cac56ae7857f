// pages makes HTML of Markdown and of source code, with goldmark and chroma, as a site of documents does.
//
//	pages [-cpuprofile FILE] render ROUNDS FILE ...
//	pages serve ADDRESS CERTIFICATE KEY FILE ...
//
// render does so for each file that often, and prints how long the HTML is. serve answers over TLS:
// /file/NAME with a file in a template, /list with a table of all, and /api with the same as JSON, all of them
// gzipped; and /debug/pprof.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"io"
	"log"
	"net/http"
	_ "net/http/pprof"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

type document struct {
	Name, Kind string
	Size       int
	Words      []string
	text       []byte
}

var formatter = html.New(html.WithClasses(true), html.WithLineNumbers(true))

// highlight writes source code of a language as HTML.
func highlight(w io.Writer, language, code string) error {
	lexer := lexers.Fallback
	// chroma would compare no name with the file names of all languages.
	if language != "" {
		if named := lexers.Get(language); named != nil {
			lexer = named
		}
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return err
	}
	return formatter.Format(w, styles.Fallback, tokens)
}

// blocks renders the blocks of code in Markdown.
type blocks struct{}

func (blocks) RegisterFuncs(to renderer.NodeRendererFuncRegisterer) {
	to.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		block, code := node.(*ast.FencedCodeBlock), bytes.Buffer{}
		for i := range block.Lines().Len() {
			line := block.Lines().At(i)
			code.Write(line.Value(source))
		}
		return ast.WalkSkipChildren, highlight(w, string(block.Language(source)), code.String())
	})
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM, extension.Footnote),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 200))),
)

func (d *document) render(w io.Writer) error {
	if d.Kind == "md" {
		return markdown.Convert(d.text, w)
	}
	return highlight(w, d.Kind, string(d.text))
}

func read(files []string) []*document {
	var found []*document
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		kind, words := strings.TrimPrefix(filepath.Ext(file), "."), strings.Fields(string(text))
		found = append(found, &document{filepath.Base(file), kind, len(text), words[:min(8, len(words))], text})
	}
	return found
}

func render(rounds int, documents []*document) {
	total := 0
	for range rounds {
		for _, each := range documents {
			var written bytes.Buffer
			if err := each.render(&written); err != nil {
				log.Fatal(err)
			}
			total += written.Len()
		}
	}
	fmt.Println(total)
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html><title>{{.Name}}</title>
<nav>{{range .All}}<a href="/file/{{.Name}}">{{.Name}}</a> {{end}}</nav><main>{{.Body}}</main>`))

var list = template.Must(template.New("list").Parse(`<!DOCTYPE html><title>All</title><table>
{{range $row, $each := .}}<tr class="{{if eq .Kind "md"}}text{{else}}code{{end}}"><td>{{$row}}<td>
<a href="/file/{{.Name}}?from={{$row}}">{{.Name}}</a><td>{{printf "%8d" .Size}}<td>{{range .Words}}{{.}} {{end}}
{{end}}</table>`))

func zipped(w http.ResponseWriter, kind string, write func(io.Writer) error) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Encoding", "gzip")
	writer := gzip.NewWriter(w)
	if err := write(writer); err != nil {
		log.Print(err)
	}
	writer.Close()
}

func serve(address, certificate, key string, documents []*document) error {
	by := map[string]*document{}
	for _, each := range documents {
		by[each.Name] = each
	}
	// Outside of modules, Go's mux has the patterns of 1.21: no methods, no names.
	http.HandleFunc("/file/", func(w http.ResponseWriter, r *http.Request) {
		found := by[strings.TrimPrefix(r.URL.Path, "/file/")]
		if found == nil {
			http.NotFound(w, r)
			return
		}
		zipped(w, "text/html; charset=utf-8", func(w io.Writer) error {
			var body bytes.Buffer
			if err := found.render(&body); err != nil {
				return err
			}
			return page.Execute(w, map[string]any{"Name": found.Name, "All": documents, "Body": template.HTML(body.String())})
		})
	})
	http.HandleFunc("/list", func(w http.ResponseWriter, _ *http.Request) {
		zipped(w, "text/html; charset=utf-8", func(w io.Writer) error { return list.Execute(w, documents) })
	})
	http.HandleFunc("/api", func(w http.ResponseWriter, _ *http.Request) {
		zipped(w, "application/json", func(w io.Writer) error { return json.NewEncoder(w).Encode(documents) })
	})
	return http.ListenAndServeTLS(address, certificate, key, nil)
}

func main() {
	profile := flag.String("cpuprofile", "", "a file for a CPU profile")
	flag.Parse()
	words := flag.Args()
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			log.Fatal(err)
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			log.Fatal(err)
		}
		defer file.Close()
		defer pprof.StopCPUProfile()
	}
	switch {
	case len(words) > 2 && words[0] == "render":
		rounds, err := strconv.Atoi(words[1])
		if err != nil {
			log.Fatal(err)
		}
		render(rounds, read(words[2:]))
	case len(words) > 4 && words[0] == "serve":
		log.Fatal(serve(words[1], words[2], words[3], read(words[4:])))
	default:
		log.Fatal("usage: pages render ROUNDS FILE ... or pages serve ADDRESS CERTIFICATE KEY FILE ...")
	}
}
