"""The script that opens pull requests: real collectors, real pushes, and an imitation of both forges."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest
from pprof_merge.analysis.gain import MEASURED
from pprof_proto.profile_pb2 import Profile

from tests.deploy.forge import TOKEN, Forge, run_git, serving
from tests.deploy.pipeline_scripts import run_script
from tests.merge.stacked import stacked
from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"
BRANCH = "pgo/default.pgo"


@pytest.fixture(params=["github", "gitlab"])
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forge]:
    with serving(request.param, tmp_path / "forge") as forge:
        yield forge


# What no forge has a way of its own for is tried with both only in `make test-all`.
github_suffices = pytest.mark.parametrize(
    "forge", ["github", pytest.param("gitlab", marks=pytest.mark.exhaustive)], indirect=True
)


@pytest.fixture
def github(tmp_path: Path) -> Iterator[Forge]:
    with serving("github", tmp_path / "forge") as forge:
        yield forge


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector with two services: `one`, whose release changes, and `two`."""
    with Server(tmp_path_factory.mktemp("server"), {"PGOF_DEFAULT_SERVICE": "one"}) as server:
        for service, pattern in {"one": "apisvc-v1-s1-002", "two": "etl-"}.items():
            for path in sorted(PROFILES.glob(f"{pattern}*.pb.gz"))[:2]:
                server.submit(path.read_bytes(), query={"service": service})
        yield server


def run(
    forge: Forge,
    url: str,
    *options: str,
    key: str = Server.merge_key,
    token: str = TOKEN,
    file: str = "default.pgo",
) -> subprocess.CompletedProcess[str]:
    """Run the script in a clone of its own, as a job does; check that it doesn't print the token."""
    clone = forge.repository.parents[1] / "clone"
    if not clone.exists():
        run_git(forge.repository, "clone", "--quiet", str(forge.repository), str(clone))
        # Some jobs have a URL with a token of their own, which may not push.
        run_git(clone, "remote", "set-url", "origin", forge.git_url.replace("//", "//job:weak@"))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_"))
    }
    keys = {"PGO_KEY": key, "PGO_FORGE_TOKEN": token, "HOME": str(clone)}
    environment |= forge.environment | keys
    finished = run_script("pgo_pull_request", [*options, url, file], environment, clone)
    assert not token or token not in finished.stdout + finished.stderr
    assert run_git(clone, "status", "--short", "--untracked-files=all") == ""
    assert run_git(clone, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    return finished


def release(server: Server, service: str = "one") -> str:
    return f"{server.base_url}/v1/release?service={service}&format=go"


def content(forge: Forge, branch: str, file: str = "default.pgo") -> bytes:
    shown = ["git", "cat-file", "blob", f"{branch}:{file}"]
    return subprocess.run(shown, cwd=forge.repository, capture_output=True, check=True).stdout


def commit(forge: Forge, branch: str, **files: bytes) -> str:
    """Commit files as another person does, on a branch of the forge or on a commit; return the new commit."""
    lines = forge.git("ls-tree", "-r", branch).splitlines()
    kept = [line for line in lines if line.partition("\t")[2].replace(".", "_") not in files]
    for name, data in files.items():
        blob = subprocess.run(
            ["git", "hash-object", "-w", "--stdin"],
            input=data,
            cwd=forge.repository,
            capture_output=True,
            check=True,
        ).stdout.decode()
        kept.append(f"100644 blob {blob.strip()}\t{name.replace('_', '.')}")
    tree = subprocess.run(
        ["git", "mktree"],
        input="\n".join(kept) + "\n",
        cwd=forge.repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    made = forge.git("commit-tree", tree, "-p", branch, "-m", "By a person")
    if not re.fullmatch(r"[0-9a-f]{40}", branch):
        forge.git("update-ref", f"refs/heads/{branch}", made)
    return made


def test_the_first_release_then_another_one(forge: Forge, tmp_path: Path) -> None:
    with Server(tmp_path / "own") as own:
        own.submit((PROFILES / "apisvc-v1-s1-002.pb.gz").read_bytes(), query={"service": "one"})
        finished = run(forge, release(own))
        assert finished.returncode == 0, finished.stderr
        assert f"opened {forge.url}" in finished.stderr
        profile = own.client.get(release(own), headers={"Authorization": f"Bearer {own.merge_key}"}).content
        assert content(forge, BRANCH) == profile
        assert forge.git("diff", "--name-only", "main", BRANCH) == "default.pgo"
        assert [each["head"] for each in forge.requests] == [BRANCH]
        expected = "| gain expected | collect more. Go's compiler can use "
        for words in ("release 1 of", "| profiles | 1 |", "used", "nothing to compare it with", expected):
            assert words in forge.text(1)

        # Once more, with the same profile.
        before = forge.git("rev-parse", BRANCH), len(forge.changes())
        finished = run(forge, release(own))
        assert finished.returncode == 0, finished.stderr
        assert "had the profile already" in finished.stderr
        assert (forge.git("rev-parse", BRANCH), len(forge.changes())) == before

        # It is merged, then there is another release.
        forge.git("update-ref", "refs/heads/main", BRANCH)
        forge.close(1, merged=True)
        finished = run(forge, release(own))
        assert finished.returncode == 0
        assert "nothing is opened, changed or closed" in finished.stderr
        for path in sorted(PROFILES.glob("apisvc-v2-*.pb.gz")):
            own.submit(path.read_bytes(), query={"service": "one"})
        own.client.post("/v1/releases?service=one", headers={"Authorization": f"Bearer {own.merge_key}"})
        finished = run(forge, release(own))
        assert finished.returncode == 0, finished.stderr
        assert len(forge.requests) == 2
        assert "release 1, which it replaced and `main` has" in forge.text(2)
        assert "| function | share | before | place | before |" in forge.text(2)
        assert content(forge, "main") == profile != content(forge, BRANCH)


def test_a_release_of_several_services_keeps_their_weights(github: Forge, tmp_path: Path) -> None:
    with Server(tmp_path / "own") as own:
        for service in ("one", "two"):
            stack = f"runtime.goexit;main.main;{service}.read;{service}.next"
            own.submit(stacked({stack: 20}), query={"service": service}).raise_for_status()
        url = f"{release(own)}&service=two&weights=one:1,two:2"
        finished = run(github, url)
        assert finished.returncode == 0, finished.stderr
        profile = own.client.get(url, headers={"Authorization": f"Bearer {own.merge_key}"}).content
    assert content(github, BRANCH) == profile
    assert "| profiles | 2 |" in github.text(1)


def test_the_text_says_how_much_more_to_collect(github: Forge, tmp_path: Path) -> None:
    stack = "runtime.goexit;runtime.main;main.main;main.read;main.next"
    message = Profile.FromString(stacked({stack: 20}))
    message.duration_nanos = 60 * 10**9
    wanted = next(point.amount for point in MEASURED["go"] if point.share >= 0.9)
    with Server(tmp_path / "own") as own:
        own.submit(message.SerializeToString(), query={"service": "one"}).raise_for_status()
        finished = run(github, release(own))
        assert finished.returncode == 0, finished.stderr
    more = int(wanted) - 20
    assert "| gain expected | collect more. Go's compiler can use 20 of 20 samples, too few: " in github.text(
        1
    )
    minutes = f"by profiling 1 instance for {ceil(more / 20)} more minutes."
    assert f"collect {more:,} more that it can use, {minutes}" in github.text(1)


def test_the_text_says_that_no_compiler_takes_the_profile(github: Forge, tmp_path: Path) -> None:
    message = Profile.FromString(stacked({"<module>;render": 5000}))
    for each in (*message.function, *message.location):
        for field in ("start_line", "address"):
            if field in each.DESCRIPTOR.fields_by_name:
                each.ClearField(field)
    with Server(tmp_path / "own") as own:
        own.submit(message.SerializeToString(), query={"service": "one"}).raise_for_status()
        finished = run(github, release(own).replace("&format=go", ""))
        assert finished.returncode == 0, finished.stderr
    assert "| gain expected | none: No compiler can use it" in github.text(1)


def test_an_open_one_is_updated(server: Server, forge: Forge) -> None:
    assert run(forge, release(server)).returncode == 0
    first = forge.git("rev-parse", BRANCH)
    commit(forge, "main", main_go=b"package main\n")
    finished = run(forge, release(server, "two"))
    assert finished.returncode == 0, finished.stderr
    assert f"updated {forge.url}" in finished.stderr
    assert len(forge.requests) == 1
    assert hashlib.sha256(content(forge, BRANCH)).hexdigest() in forge.text(1)
    # It is one commit on the base as it is by now.
    assert forge.git("rev-parse", f"{BRANCH}^") == forge.git("rev-parse", "main")
    assert forge.git("rev-parse", BRANCH) != first


def test_what_was_closed_stays_closed_until_there_is_another_profile(server: Server, forge: Forge) -> None:
    assert run(forge, release(server)).returncode == 0
    forge.close(1)
    forge.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    finished = run(forge, release(server))
    assert finished.returncode == 0
    assert "was closed" in finished.stderr
    assert len(forge.requests) == 1
    assert run(forge, release(server, "two")).returncode == 0
    assert [each["state"] for each in forge.requests] == ["closed", "open"]


def test_commits_of_others_are_not_overwritten(server: Server, github: Forge) -> None:
    assert run(github, release(server)).returncode == 0
    opened = github.git("rev-parse", BRANCH)
    message = github.git("log", "-1", "--format=%B", BRANCH)
    made = {
        "on top": commit(github, BRANCH, default_pgo=b"by hand"),
        "another file": commit(github, opened, main_go=b"package main\n"),
        "from elsewhere": github.git("commit-tree", "main^{tree}", "-p", "main", "-m", message),
    }
    parent = commit(github, "main", main_go=b"package main\n")
    made["amended"] = github.git("commit-tree", f"{opened}^{{tree}}", "-p", parent, "-m", message)
    for change, of_a_person in made.items():
        github.git("update-ref", f"refs/heads/{BRANCH}", of_a_person)
        finished = run(github, release(server, "two"))
        assert finished.returncode == 3, change
        assert f"commit {of_a_person[:12]}, which this script didn't make" in finished.stderr, change
        assert github.git("rev-parse", BRANCH) == of_a_person, change


@github_suffices
def test_a_wrong_token_and_a_wrong_key(server: Server, forge: Forge) -> None:
    finished = run(forge, release(server), token="wrong")  # noqa: S106 - of a test
    assert finished.returncode == 3
    assert "401 Bad credentials; check PGO_FORGE_TOKEN" in finished.stderr
    assert "trying again" not in finished.stderr
    finished = run(forge, release(server), "--base", "main", token="wrong")  # noqa: S106 - of a test
    assert finished.returncode == 3
    assert "check PGO_FORGE_TOKEN" in finished.stderr
    finished = run(forge, release(server), key="wrong")
    assert finished.returncode == 3
    assert run(forge, release(server, "three")).returncode == 4
    assert (forge.requests, forge.changes()) == ([], [])
    assert forge.git("branch", "--list", "pgo/*") == ""


def test_faults_that_pass(server: Server, forge: Forge) -> None:
    """The forge fails before an answer, limits the rate, then opens the request but doesn't say so."""
    # The first three answers fail.
    forge.faults = [(502, {}), (403, {"Retry-After": "0"}), (429, {})]
    assert run(forge, release(server)).returncode == 0
    forge.requests.clear()
    forge.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    whole = forge.answer

    def created_without_answer(
        method: str, path: str, query: dict[str, str], body: dict[str, str]
    ) -> tuple[int, object]:
        status, answer = whole(method, path, query, body)
        return (504, {}) if method == "POST" else (status, answer)

    forge.answer = created_without_answer  # type: ignore[method-assign]
    finished = run(forge, release(server))
    assert finished.returncode == 0, finished.stderr
    assert "trying again" in finished.stderr
    assert len(forge.requests) == 1

    # Somebody opened it, but the first list doesn't have it yet.
    lists: list[list[object]] = [[], [], []]

    def listed_late(
        method: str, path: str, query: dict[str, str], body: dict[str, str]
    ) -> tuple[int, object]:
        if method == "GET" and query and lists:
            return 200, lists.pop()
        return whole(method, path, query, body)

    forge.answer = listed_late  # type: ignore[method-assign]
    forge.requests[0]["text"] = "opened by a person"
    finished = run(forge, release(server))
    assert finished.returncode == 0, finished.stderr
    assert "422" in finished.stderr or "409" in finished.stderr
    assert "already exists" in finished.stderr
    assert "release 1 of" in forge.text(1)
    forge.answer = lambda *_: (500, {})  # type: ignore[method-assign]
    finished = run(forge, release(server), "--tries", "2")
    assert finished.returncode == 1


def test_an_answer_of_something_else(server: Server, github: Forge) -> None:
    github.answer = lambda *_: (200, {"login": "<here>", "default_branch": "main"})  # type: ignore[method-assign]
    finished = run(github, release(server), "--tries", "1")
    assert finished.returncode == 1
    assert "isn't a pull request" in finished.stderr


def test_names_from_profiles_are_no_mark_up(github: Forge, tmp_path: Path) -> None:
    labels = "version=1.4|<b>@all`"
    with Server(tmp_path / "own") as own:
        url = f"{own.base_url}/v1/merge?format=go"
        own.submit((PROFILES / "apisvc-v1-s1-002.pb.gz").read_bytes(), query={"labels": labels})
        finished = run(github, url, "--title", "PGO: a new profile", "--branch", "profiles/checkout")
        assert finished.returncode == 0, finished.stderr
        assert "`1.4\\|<b>@all'` (1)" in github.text(1)
    (request,) = github.requests
    assert (request["head"], request["title"]) == ("profiles/checkout", "PGO: a new profile")


def test_a_shallow_clone_and_a_file_in_a_folder(server: Server, github: Forge) -> None:
    for number in range(3):
        commit(github, "main", main_go=b"package main // %d\n" % number)
    clone = github.repository.parents[1] / "clone"
    source = f"file://{github.repository}"
    run_git(github.repository, "clone", "--quiet", "--depth=1", source, str(clone))
    run_git(clone, "remote", "set-url", "origin", github.git_url)
    for service in ("one", "two"):
        finished = run(github, release(server, service), file="cmd/checkout/default.pgo")
        assert finished.returncode == 0, finished.stderr
    assert (
        github.git("diff", "--name-only", "main", "pgo/cmd/checkout/default.pgo")
        == "cmd/checkout/default.pgo"
    )
    assert len(github.requests) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--branch", "main"), "its own"),
        (("--tries", "x"), "invalid int"),
        (("--api", ""), "give --forge, --api and --repository"),
    ],
)
def test_wrong_command_lines(server: Server, github: Forge, options: tuple[str, ...], reason: str) -> None:
    finished = run(github, release(server), *options)
    assert finished.returncode == 2
    assert reason in finished.stderr


@pytest.mark.parametrize("file", ["../default.pgo", "/default.pgo", "cmd//default.pgo", ""])
def test_what_is_no_path_in_a_repository(server: Server, github: Forge, file: str) -> None:
    finished = run(github, release(server), file=file)
    assert finished.returncode == 2
    assert "not a path in the repository" in finished.stderr


def test_a_url_of_something_else_and_no_token(server: Server, github: Forge) -> None:
    finished = run(github, f"{server.base_url}/v1/report")
    assert finished.returncode == 2
    assert "neither a release nor a merge" in finished.stderr
    finished = run(github, release(server), token="")
    assert finished.returncode == 2
    assert "set PGO_FORGE_TOKEN" in finished.stderr
