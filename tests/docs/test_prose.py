"""Docstrings and messages are plain English: none of the phrases that readers have stumbled over."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

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


@cache
def sources() -> dict[str, ast.Module]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = (ROOT / line for line in listed.stdout.splitlines())
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in files if file.exists()}


def test_no_docstring_has_a_phrase_that_readers_stumble_over() -> None:
    found = [
        f"{file}:{node.body[0].lineno}: {instead}: {text[:80]}"
        for file, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, Documented) and (text := " ".join((ast.get_docstring(node) or "").split()))
        for phrase, instead in PHRASES.items()
        if re.search(phrase, text)
    ]
    assert found == []


def test_messages_name_a_limit_as_a_limit() -> None:
    """Not '17 labels, and 16 may be', but '17 labels; the limit is 16'."""
    found = [
        f"{file}:{node.lineno}: {text}"
        for file, tree in sources().items()
        if not file.startswith("tests/")
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        if re.search(r"\band (a \w+ )?may (be|have) \{|\} may\b", text := ast.unparse(node))
    ]
    assert found == []
