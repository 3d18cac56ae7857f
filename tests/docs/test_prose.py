"""Docstrings and messages are plain English: none of the phrases that readers have stumbled over."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# What not to write in a docstring, with what to write in its place.
PHRASES = {
    r"\bso many\b(?![^.]*\bthat\b)": "name the number: `count`, the first n",
    r"\banew\b": "again",
    r"\A(That|Those|Of|What|Whose)\b": "begin with a verb, or with the noun that it is",
    r"(?<=[.] )(Those|Whose|Of those|Of these)\b": "name the subject",
    r"\AImplement `": "say what it does",
}


# Most files have none of these words: they aren't parsed, which takes most of the time.
SUSPICIOUS = re.compile(
    r'''\bso\s+many\b|\banew\b|"""\s*(That|Those|Of|What|Whose|Implement\s+`)|[.]\s+(Those|Whose|Of)\b'''
)


@cache
def sources() -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = (ROOT / line for line in listed.stdout.splitlines())
    return {str(file.relative_to(ROOT)): file.read_text() for file in files if file.exists()}


def stumbles(source: str) -> Iterator[str]:
    """Yield where docstrings of a module have one of the phrases, and what to write in its place."""
    if not SUSPICIOUS.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := " ".join((ast.get_docstring(node) or "").split())):
            for phrase, instead in PHRASES.items():
                if re.search(phrase, text):
                    yield f"{node.body[0].lineno}: {instead}: {text[:80]}"


def test_no_docstring_has_a_phrase_that_readers_stumble_over() -> None:
    found = [f"{file}:{where}" for file, source in sources().items() for where in stumbles(source)]
    assert found == []


@pytest.mark.parametrize(
    "docstring",
    [
        "Return so\n    many bytes.",
        "Read it anew.",
        "Of these, the first.",
        "\n    What it is.\n    ",
        "Return it. Whose it is.",
        "Return it.\n\n    Of those, one.",
        "Implement `Backend`.",
    ],
)
def test_a_phrase_is_found_however_it_is_written(docstring: str) -> None:
    assert [*stumbles(f'def f():\n    """{docstring}"""\n')]


def test_messages_name_a_limit_as_a_limit() -> None:
    """Not '17 labels, and 16 may be', but '17 labels; the limit is 16'."""
    found = [
        f"{file}:{node.lineno}: {text}"
        for file, source in sources().items()
        if not file.startswith("tests/") and re.search(r"may (be|have) \{|\} may\b", source)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
        if re.search(r"\band (a \w+ )?may (be|have) \{|\} may\b", text := ast.unparse(node))
    ]
    assert found == []
