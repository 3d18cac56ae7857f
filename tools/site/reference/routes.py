"""The page of all routes, from the OpenAPI document that the collector serves."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Every route with its parameters and answers, as in `/v1/openapi.json`. A route that takes `GET` also
takes `HEAD`. [API](../api.md) has examples, and says which key each route takes, which headers it
sends, and what to do about an error. [In place of profefe](../profefe.md) does the same for `/api/0`.
Routes of the pages are in [their own table](../ui.md)."""


def routes_page(document: dict[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    return page("Routes", _INTRODUCTION, *(_section(*found) for found in document["paths"].items()))


def _section(path: str, methods: dict[str, dict[str, Any]]) -> str:
    same: dict[str, list[str]] = {}  # several methods may be one operation
    for method, entry in sorted(methods.items()):  # the document has them in any order
        same.setdefault(_operation(entry), []).append(method.upper())
    operations = (f"**{', '.join(names)}**: {text}" for text, names in same.items())
    return "\n\n".join([f"## {path}", *operations])


def _operation(entry: dict[str, Any]) -> str:
    parts = [f"{entry['summary']}."]
    if parameters := entry.get("parameters"):
        rows = (
            [code(of["name"]), *_values(of["schema"]), of.get("description", _of_path(of))]
            for of in parameters
        )
        parts.append(table(["parameter", "value", "default", "meaning"], rows))
    if body := entry.get("requestBody"):
        parts.append(f"Body: {', '.join(code(media) for media in body['content'])}.")
    parts.append("\n".join(_answers(entry["responses"])))
    return "\n\n".join(parts)


def _of_path(parameter: dict[str, Any]) -> str:
    return "Part of the path." if parameter["in"] == "path" else ""


def _values(schema: dict[str, Any]) -> tuple[str, str]:
    """Return the allowed values of a parameter, and its default."""
    if "enum" in schema:
        allowed = ", ".join(code(word) for word in schema["enum"])
    elif "maximum" in schema:
        allowed = f"{schema['minimum']} to {schema['maximum']}"
    elif schema["type"] == "array":
        allowed = "any number of times"
    else:
        allowed = ""
    return allowed, code(schema.get("default", ""))


def _answers(responses: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each successful answer, and one for all problems."""
    for status, answer in responses.items():
        if not _is_problem(answer):
            media = ", ".join(code(media) for media in answer.get("content", {}))
            yield f"- {status}: {answer['description'].rstrip('.')}{f' ({media})' if media else ''}"
    problems = [
        f"{status} {HTTPStatus(int(status)).phrase}"
        for status, answer in responses.items()
        if _is_problem(answer)
    ]
    if problems:
        yield f"- problems: {', '.join(problems)}"


def _is_problem(answer: dict[str, Any]) -> bool:
    return "application/problem+json" in answer.get("content", {})
