"""The documentation has every setting, route, command and verb, and its links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pgo_agent.logs
import pgo_collector.command.cli
import pgo_collector.logs
import pprof_merge.command.cli
import pprof_merge.formats
import pytest
from pgo_agent import Collector, ContinuousProfiler, DiskSpool, StackSampler
from pgo_agent.serve import CaptureLock, CaptureRoutes, LatencyRoutes
from pgo_agent.serve import create_app as create_agent_app
from pgo_collector.http.openapi import schema_of
from pgo_collector.queries import answers
from pgo_collector.settings import Settings
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from tests.collector.application import application
from tools.site.reference.events import log_calls

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def pages() -> list[Path]:
    """Every page of the repository, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def test_every_format_is_in_the_table_and_in_the_api_page() -> None:
    expected = {
        (known.name, known.media_type, known.suffix) for known in pprof_merge.formats.FORMATS.values()
    }
    page = (DOCS / "formats.md").read_text()
    rows = re.findall(
        r"^\| \[?`([a-z0-9.]+)`(?:\]\(\S+\))? \| `(.*?)` \| `(.*?)` \|", page, flags=re.MULTILINE
    )
    assert {*rows} == expected
    (parameter,) = re.findall(r"^\| `format` \| .*$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    assert {*re.findall(r"`([a-z0-9.]+)`", parameter)} == {"format", *pprof_merge.formats.FORMATS}


@pytest.fixture
def app(tmp_path: Path) -> Starlette:
    return application(tmp_path)


@pytest.fixture
def routes(app: Starlette) -> dict[str, set[str] | None]:
    """The methods of each path; None for all."""
    found: dict[str, set[str] | None] = {}
    for route in app.routes:
        if isinstance(route, Route) and route.include_in_schema:
            methods = route.methods
            found[route.path] = methods and methods | (found.get(route.path) or set())
    return found


def test_every_route_is_in_the_api_page_with_its_methods(routes: dict[str, set[str] | None]) -> None:
    assert len(routes) > 1
    table = re.findall(
        r"^\| \[`(/\S*)`\]\(\S+\) \| (.*?) \|", (DOCS / "api.md").read_text(), flags=re.MULTILINE
    )
    assert {path: set(re.findall(r"[A-Z]{3,}", methods)) or None for path, methods in table} == routes


@pytest.mark.filterwarnings("ignore:Duplicate Operation ID")  # one function may answer several methods
def test_every_query_that_is_written_down_has_parameters_of_its_route(app: Starlette) -> None:
    known = {
        path: {parameter["name"] for entry in methods.values() for parameter in entry.get("parameters", ())}
        for path, methods in schema_of(app, answers)["paths"].items()
    }
    examples = [
        path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".md", ".py", ".yml", ".yaml"}
    ]
    queries = [
        (page, path, name)
        for page in (*pages(), *examples)
        for path, query in re.findall(r"(/v1/[a-z/]+)\?([\w=&.,%…-]+)", page.read_text())
        for name in re.findall(r"(?:^|&)(\w+)=", query)
    ]
    assert len(queries) > 10
    assert [found for found in queries if found[2] not in known[found[1]]] == []


def test_every_page_is_in_the_table_of_pages(app: Starlette) -> None:
    (site,) = (route for route in app.routes if isinstance(route, Mount) and route.path == "/ui")
    pages = {route.path_format for route in site.routes if isinstance(route, Route)}
    assert len(pages) > 5
    cells = re.findall(r"^\| (`/ui/.*?) \|", (DOCS / "ui.md").read_text(), flags=re.MULTILINE)
    assert {path for cell in cells for path in re.findall(r"`/ui(/.*?)`", cell)} == pages


def test_every_setting_of_the_agent_is_in_the_table_with_its_default() -> None:
    expected = [
        (of.__name__, name, "" if parameter.default is parameter.empty else f"`{parameter.default}`")
        for of in (Collector, DiskSpool, StackSampler, ContinuousProfiler)
        for name, parameter in inspect.signature(of).parameters.items()
    ]
    page = (DOCS / "agent.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\S*) ?\|", page, flags=re.MULTILINE) == expected


def test_every_route_of_the_agent_is_in_its_table() -> None:
    app = create_agent_app(CaptureRoutes(CaptureLock(), ("postgres",)), LatencyRoutes())
    expected = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    text = "".join((DOCS / page).read_text() for page in ("compute-profiler.md", "latency.md"))
    documented = re.findall(r"^\| `([A-Z]+) (/\S+)` \|", text, flags=re.MULTILINE)
    assert len(expected) == len(documented)
    assert {*documented} == expected


def test_no_setting_has_two_defaults() -> None:
    named = [
        name
        for name, field in Settings.fields.items()
        if field.default_factory is None and "Default:" in (field.description or "")
    ]
    assert named == []


def test_every_verb_of_make_is_in_contributing() -> None:
    verbs = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    documented = set(
        re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    )
    assert documented == verbs
    assert {"help", "setup", "serve", "test", "lint", "bench", "lock"} <= verbs


def test_make_finds_the_tests_that_it_runs() -> None:
    for verb in ("quick", "stage-lowest"):
        said = subprocess.run(
            ["make", "--dry-run", "--always-make", verb], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        (tests,) = (
            line for line in said.splitlines() if " -m pytest " in line and "--collect-only" not in line
        )
        paths = re.findall(r"tests/[\w./]+", tests)
        assert len(paths) > 3
        assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("package", "meanings"),
    [(pgo_collector, pgo_collector.logs.EVENTS), (pgo_agent, pgo_agent.logs.EVENTS)],
)
def test_every_event_of_the_log_has_a_short_key_one_place_and_a_meaning(
    package: ModuleType, meanings: Mapping[str, str]
) -> None:
    events = [call.event for call in log_calls(Path(str(package.__file__)).parent)]
    assert len(events) > 10
    assert sorted(events) == sorted(meanings)
    assert [event for event in events if not re.fullmatch(r"[\w-]+( [\w-]+){0,3}", event)] == []


def test_every_page_of_the_navigation_is_linked_and_described_on_the_first() -> None:
    page = (DOCS / "index.md").read_text()
    blocks = re.findall(r"^```{toctree}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    pages = {line for block in blocks for line in block.splitlines() if line and not line.startswith(":")}
    rows = re.findall(r"^\| (\[.*\)) \| .+ \|$", page, flags=re.MULTILINE)
    linked = [link for row in rows for link in re.findall(r"\]\((\S+)\.md\)", row)]
    assert len(pages) > 20
    assert sorted(linked) == sorted(pages)


def test_every_function_on_the_way_of_a_request_is_where_the_page_says() -> None:
    steps = re.findall(
        r"\| `([\w/]+\.py)`: `(\w+)(?:\.(\w+))?` \|", (DOCS / "follow-a-request.md").read_text()
    )
    assert len(steps) > 15
    for file, name, method in steps:
        tree = ast.parse((ROOT / "collector" / "pgo_collector" / file).read_text())
        found = {of.name: of for of in ast.walk(tree) if isinstance(of, ast.ClassDef | Function)}
        assert name in found, file
        assert not method or any(
            isinstance(of, Function) and of.name == method for of in ast.walk(found[name])
        ), f"{file}: {name}.{method}"


def test_every_door_of_the_map_is_there() -> None:
    """A door is named as `module`, `module.name`, or a name that the folder's own door publishes."""
    rows = re.findall(r"^\| .* \| (`\S+/`) \| (.*) \|$", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert len(rows) > 15
    for folder, doors in rows:
        room = ROOT / folder.strip("`").replace("…", "collector/pgo_collector")
        for module, name in re.findall(r"`(\w+)(?:\.(\w+))?`", doors):
            file = room / f"{module}.py"
            text = (file if file.exists() else room / "__init__.py").read_text()
            sought = module if not file.exists() else name
            assert not sought or re.search(rf"\b{sought}\b", text), f"{folder}: {module}"


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link
