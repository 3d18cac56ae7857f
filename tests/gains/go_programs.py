"""The Go programs that are measured: how each is built, what it does while it is profiled, and afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.gains.debian import GOPATH, UNPACKED, SourcePackage
from tests.gains.go import INSTANCES, WORK, GoProgram, GoSource
from tests.gains.programs import ROOT
from tests.oracle.oracle import go_root

_TUTORIAL = ROOT / "docs" / "tutorial-go"
# Sites that hugo makes, by name.
_SITES = UNPACKED.parent / "sites"
_PARAGRAPHS = 3


def go_programs() -> dict[str, GoProgram]:
    """Return the programs by name."""
    every = (*_own_programs(), *_debian_programs(), _hugo())
    return {program.source.name: program for program in every}


def _own_programs() -> tuple[GoProgram, ...]:
    """Return programs that need nothing but the toolchain."""
    root, sources = str(go_root()), go_root() / "src"
    # Some files below testdata are wrong on purpose, and end gofmt with an error.
    whole, some = (
        tuple(
            str(file)
            for part in parts
            for file in sorted((sources / part).rglob("*.go"))
            if "testdata" not in file.parts
        )
        for parts in (("",), ("cmd/compile", "go", "net", "runtime"))
    )
    return (
        GoProgram(
            GoSource("gofmt", "on the toolchain's sources", _TUTORIAL, "cmd/gofmt"),
            training=INSTANCES * (("-l", *whole),),
            timed=("-l", *some),
            counted=("-l", *(file for file in some if "/go/" in file)),
        ),
        GoProgram(
            GoSource("logsum", "of [the tutorial](tutorial-go.md)", _TUTORIAL, "."),
            training=INSTANCES * (("300",),),
            timed=("40",),
            counted=("2",),
        ),
        GoProgram(
            GoSource(
                "gotype",
                "a program of ours that checks packages of Go's library by `go/types`",
                WORK / "gotype",
                ".",
            ),
            training=INSTANCES * (("2", root, "net/http"),),
            timed=("1", root, "fmt"),
            counted=("1", root, "strconv"),
            library=("go/ast", "go/constant", "go/parser", "go/scanner", "go/token", "go/types"),
        ),
    )


def _debian_programs() -> tuple[GoProgram, ...]:
    scripts, shared = UNPACKED / "usr" / "share" / "javascript", UNPACKED / "usr" / "share" / "nodejs"
    typescript, lua = shared / "typescript" / "lib", WORK / "glua"
    trained, measured = documents()
    return (
        GoProgram(
            GoSource(
                "esbuild",
                "of Debian's golang-github-evanw-esbuild-dev",
                ROOT,
                "github.com/evanw/esbuild/cmd/esbuild",
                debian=("golang-github-evanw-esbuild-dev",),
                inputs=("libjs-d3", "libjs-three", "node-lodash", "node-typescript"),
            ),
            # It writes for 30 seconds, again and again, while it is profiled.
            training=tuple(
                ("--minify", "--log-level=silent", "--outfile=/dev/null", str(file))
                for file in (scripts / "d3/d3.js", scripts / "three/three.js", shared / "lodash/lodash.js")
            ),
            timed=("--minify", "--log-level=silent", str(typescript / "typescript.js")),
            counted=("--minify", "--log-level=silent", str(typescript / "tsc.js")),
            apart="It is profiled while it minifies d3, three.js and lodash, and measured on TypeScript.",
            flag="--cpuprofile",
        ),
        GoProgram(
            GoSource(
                "glua",
                "the interpreter of Debian's golang-github-yuin-gopher-lua-dev",
                ROOT,
                "github.com/yuin/gopher-lua/cmd/glua",
                debian=("golang-github-yuin-gopher-lua-dev", "golang-github-chzyer-readline-dev"),
            ),
            training=tuple(
                (str(lua / f"{script}.lua"), rounds)
                for script, rounds in (("orders", "150"), ("template", "200"), ("graph", "250"))
            ),
            timed=(str(lua / "rules.lua"), "30"),
            counted=(str(lua / "rules.lua"), "2"),
            apart="It is profiled with three scripts, and measured with a fourth that does other things.",
            flag="-p",
        ),
        GoProgram(
            replace(PAGES, name="markdown"),
            training=INSTANCES * (("render", "100", *trained),),
            timed=("render", "15", *measured),
            counted=("render", "5", *measured[::6]),
            apart="It is profiled on every second page of these docs, and measured on the others.",
        ),
    )


PAGES = GoSource(
    "pages",
    "a program of ours with goldmark and chroma of Debian",
    WORK / "pages",
    ".",
    debian=("golang-github-yuin-goldmark-dev", "golang-github-alecthomas-chroma-v2-dev"),
)


def documents() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two halves of the pages of docs/, but those whose tables are measured, and the list of pages.

    That has blocks in a language of its own, for which chroma tries the file names of all that it knows.
    """
    others = {"benchmarks.md", "gains.md", "index.md"}
    files = [str(file) for file in sorted((ROOT / "docs").glob("*.md")) if file.name not in others]
    return tuple(files[::2]), tuple(files[1::2])


def _hugo() -> GoProgram:
    def arguments(site: str) -> tuple[str, ...]:
        return f"--source={_SITES / site}", "--renderToMemory", "--quiet"

    return GoProgram(
        GoSource(
            "hugo",
            "Debian's source package, without `extended` and `deploy`",
            ROOT,
            "github.com/gohugoio/hugo",
            before=(_HUGO.folder / "debian" / "go",),
            origin=_HUGO,
            tags="nodeploy",
            make=_make_sites,
        ),
        training=tuple(map(arguments, ("pages", "code", "notes"))),
        timed=arguments("timed"),
        counted=arguments("counted"),
        apart=(
            "One instance is profiled with a site of these docs, one with sources of Go's `net/http`, one\n"
            "with short notes that have tags; a site of other pages, sources and notes is measured."
        ),
        flag="--profile-cpu",
    )


def _complete(sources: Path) -> None:
    """Add a package to Hugo's sources as Debian's rules do: another with other names."""
    folder = sources / "debian" / "go" / "src" / "github.com" / "gohugoio" / "locales"
    shutil.copytree(GOPATH / "src" / "github.com" / "go-playground" / "locales", folder)
    for file in folder.rglob("*.go"):
        file.write_text(file.read_text().replace("go-playground", "gohugoio"))


_HUGO = SourcePackage("hugo", "github.com/gohugoio/hugo", prepare=_complete)


def _make_sites() -> None:
    """Write the sites that Hugo makes."""
    library = go_root() / "src"
    pages, others = ([Path(file).read_text() for file in half] for half in documents())
    code, more = (
        [f"```go\n{file.read_text()}\n```\n" for file in sorted((library / package).glob("*.go"))]
        for package in ("net/http", "encoding/json")
    )
    notes, short = ([*_notes(texts)] for texts in (pages, others))
    sites = {
        "pages": 40 * pages,
        "code": code,
        "notes": 12 * notes,
        "timed": [*2 * others, *more, *short],
        "counted": [*others[::4], *more[::8], *short[::8]],
    }
    shutil.rmtree(_SITES, ignore_errors=True)
    for name, texts in sites.items():
        shutil.copytree(WORK / "hugo", _SITES / name)
        content = _SITES / name / "content"
        for number, text in enumerate(texts):
            page = content / f"part-{number % 7}" / f"{number}.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            tags = ", ".join(f'"tag {number % prime}"' for prime in (5, 11, 31))
            head = f'title = "Page {number}"\ndate = 2026-01-{number % 28 + 1:02}\ntags = [{tags}]'
            page.write_text(f"+++\n{head}\n+++\n\n{text}")


def _notes(texts: Sequence[str]) -> Iterator[str]:
    """Yield a few paragraphs of texts at a time."""
    parts = [part for text in texts for part in text.split("\n\n") if "```" not in part]
    for start in range(0, len(parts), _PARAGRAPHS):
        yield "\n\n".join(parts[start : start + _PARAGRAPHS])
