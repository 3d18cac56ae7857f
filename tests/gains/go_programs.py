"""The Go programs that are measured: how each is built, what it does while it is profiled, and afterwards."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from tests.gains.debian import UNPACKED, SourcePackage
from tests.gains.go import INSTANCES, WORK, GoProgram, GoSource
from tests.gains.programs import ROOT
from tests.oracle.oracle import go_root

_TUTORIAL = ROOT / "docs" / "tutorial-go"


def go_programs() -> dict[str, GoProgram]:
    """Return the programs by name: those of the table, and those of curves and of the fleet's questions."""
    every = (*_own_programs(), *_debian_programs())
    return {program.source.name: program for program in every}


def _own_programs() -> tuple[GoProgram, ...]:
    """Return programs that need nothing but the toolchain. They are for curves, as their builds are short."""
    root = str(go_root())
    return (
        GoProgram(
            GoSource("logsum", "of [the tutorial](tutorial-go.md)", _TUTORIAL, "."),
            training=INSTANCES * (("300",),),
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
            counted=("1", root, "strconv"),
            library=("go/ast", "go/constant", "go/parser", "go/scanner", "go/token", "go/types"),
        ),
    )


def _debian_programs() -> tuple[GoProgram, ...]:
    scripts, shared = UNPACKED / "usr" / "share" / "javascript", UNPACKED / "usr" / "share" / "nodejs"
    typescript, lua = shared / "typescript" / "lib", WORK / "glua"
    trained, measured = documents()
    library = go_root() / "src"
    others = [
        folder for folder in sorted(library.iterdir()) if folder.is_dir() and folder.name not in _STORED
    ]
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
            _RESTIC,
            start=("sh", str(_RESTIC_FILES / "work.sh")),
            training=tuple(
                (step, *map(str, folders))
                for folders in (
                    (library / "cmd",),
                    (library / "runtime", go_root() / "bin"),
                    (go_root() / "pkg",),
                )
                for step in ("backup", "check", "restore")
            ),
            timed=("restore", *map(str, others[::2])),
            apart=(
                "It stores folders, checks what it stored, and restores it: while it is profiled, Go's\n"
                "commands, runtime and binaries, and when it is measured, half of Go's library. It\n"
                "encrypts with random numbers, so its instructions aren't counted."
            ),
        ),
        GoProgram(
            replace(PAGES, name="markdown"),
            training=INSTANCES * (("render", "100", *trained),),
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


_RESTIC_FILES = WORK / "restic"
# What is stored while restic is profiled.
_STORED = {"cmd", "runtime"}
# Clouds whose clients are most of what Go would compile. Checks of a repository need S3's.
_CLOUDS = ("azure", "b2", "gs", "swift")


def _prepare_restic(sources: Path) -> None:
    """Leave clouds out, and add a flag that profiles."""
    for file in (sources / "cmd/restic/global.go", sources / "internal/backend/location/location.go"):
        text = file.read_text()
        for cloud in _CLOUDS:
            for lines in (
                rf'\t"github.com/restic/restic/internal/backend/{cloud}"\n',
                rf'\t\{{"{cloud}", .*\n',
                rf'\tcase "{cloud}":\n(?:\t\t.*\n|\n)+',
            ):
                text = re.sub(f"^{lines}", "", text, flags=re.MULTILINE)
        file.write_text(text)
    shutil.copy(_RESTIC_FILES / "cpuprofile.go", sources / "cmd/restic")


_RESTIC = GoSource(
    "restic",
    f"Debian's source package, without {len(_CLOUDS)} kinds of clouds",
    ROOT,
    "github.com/restic/restic/cmd/restic",
    origin=SourcePackage(
        "restic",
        "github.com/restic/restic",
        "azure|google-cloud|google-api|blazer|swift",
        _prepare_restic,
        besides=("golang-golang-x-sync-dev",),
    ),
)


def documents() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two halves of the pages of docs/, but those whose tables are measured, and the list of pages.

    That has blocks in a language of its own, for which chroma tries the file names of all that it knows.
    """
    others = {"benchmarks.md", "gains.md", "index.md"}
    files = [str(file) for file in sorted((ROOT / "docs").glob("*.md")) if file.name not in others]
    return tuple(files[::2]), tuple(files[1::2])
