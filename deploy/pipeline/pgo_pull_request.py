#!/usr/bin/env python3
r"""Open or update one pull request with the profile to build with, if it isn't the one in the repository.

    PGO_KEY=... PGO_FORGE_TOKEN=... pgo_pull_request.py \
        'https://pgo.example.net/v1/release?service=checkout&format=go' default.pgo

It needs Python 3.9 or later, git, and pgo_fetch.py beside it. Run it in a clone. Neither the clone's files
nor its branches change: the commit is made beside them, on a branch of its own. GitHub and GitLab say in the
environment of their jobs which repository it is. The report of the collector becomes the text.

exit code  meaning
    0      there is a pull request with the profile, or none is needed
    1      the collector, the forge or the repository couldn't be reached; run it again
    2      nothing was done: the command line is wrong
    3      it was refused: a key or token is wrong, or somebody else has changed the branch
    4      the collector has no profile yet
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pgo_fetch import (
    LARGEST_BYTES,
    REFUSED,
    UNUSABLE,
    Refused,
    Unusable,
    check,
    check_whole,
    http_url,
    problem_of,
    retried,
    retry_after,
    say,
)

_OF_RELEASES = ("service", "weights")
_SELECTION = ("service", "type", "labels", "from", "to", "last")
_SHA256, _BASE = "PGO-SHA256", "PGO-Base"
_MARK = re.compile(r"<!-- pgo-sha256: ([0-9a-f]{64}) -->")
_LARGEST_ANSWER = 1 << 26
_LISTED, _LONGEST_NAME, _LONGEST_REASON = 20, 120, 2000
_EXISTS_ALREADY = (409, 422)


class Answer(NamedTuple):
    """The body of an HTTP answer, and its headers; the body is None if the ETag is still the same."""

    body: bytes | None
    headers: Any


@dataclass(frozen=True)
class Job:
    """Order for a pull request: the profile's URL, its file in the repository, and the repository's host."""

    url: str
    file: str
    key: str
    branch: str
    base: str
    title: str
    timeout: float


def main(arguments: list[str] | None = None) -> int:
    """Open or update the pull request; return the exit code."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    key, token = os.environ.get("PGO_KEY", ""), os.environ.get("PGO_FORGE_TOKEN", "")
    if not token:
        command_line.error("set PGO_FORGE_TOKEN to a token that may push and open pull requests")
    if options.forge is None or not options.repository or not options.api:
        command_line.error("this isn't a job of GitHub or GitLab: give --forge, --api and --repository")
    if not _path_of(options.url).endswith(("/v1/release", "/v1/merge")):
        command_line.error(f"{options.url} is the URL of neither a release nor a merge")
    forge = FORGES[options.forge](options.api.rstrip("/"), options.repository, token, options.timeout)
    try:
        git = Git(options.remote, token)
        base = options.base or retried(forge.default_branch, options.tries)
        branch = options.branch or "pgo/" + re.sub(r"[^\w./-]+", "-", options.file)
        if branch == base:
            command_line.error(f"--branch {branch} is the branch to merge into; the script needs its own")
        title = options.title or f"Update {options.file}"
        job = Job(options.url, options.file, key, branch, base, title, options.timeout)
        return run(job, git, forge, options.tries)
    except Refused as refused:
        return say(refused.exit_code, _without(token, str(refused)))
    except Unusable as problem:
        return say(UNUSABLE, _without(token, str(problem)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line. Its help is this module's docstring."""
    about, _, codes = (__doc__ or "").partition("exit code")
    parser = argparse.ArgumentParser(
        prog="pgo_pull_request.py",
        description=about,
        epilog=f"exit code{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    env = os.environ.get
    forge = "github" if env("GITHUB_REPOSITORY") else "gitlab" if env("CI_PROJECT_ID") else None
    parser.add_argument(
        "url", metavar="URL", type=http_url, help="the URL of a release or a merge, with its parameters"
    )
    parser.add_argument("file", metavar="FILE", type=_file, help="the path of the profile in the repository")
    parser.add_argument(
        "--forge", choices=tuple(FORGES), default=forge, help="what API it has (default: by the environment)"
    )
    parser.add_argument(
        "--api",
        metavar="URL",
        default=env("GITHUB_API_URL") or env("CI_API_V4_URL"),
        help="the URL of its API (default: $GITHUB_API_URL or $CI_API_V4_URL)",
    )
    parser.add_argument(
        "--repository",
        metavar="NAME",
        default=env("GITHUB_REPOSITORY") or env("CI_PROJECT_ID"),
        help="owner/name, or GitLab's number (default: $GITHUB_REPOSITORY or $CI_PROJECT_ID)",
    )
    parser.add_argument(
        "--remote", default="origin", help="the remote, or the URL, to push to (default: origin)"
    )
    parser.add_argument("--base", help="the branch to merge into (default: the repository's own)")
    parser.add_argument("--branch", help="the branch to push, used for nothing else (default: pgo/FILE)")
    parser.add_argument("--title", help="the title of the pull request (default: Update FILE)")
    parser.add_argument("--tries", type=int, default=5, help="how often to try (default: 5)")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds to wait for more of an answer (default: 300)"
    )
    return parser


def _file(text: str) -> str:
    if not text or text.startswith("/") or {".", "..", ""} & set(text.split("/")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path in the repository, such as default.pgo")
    return text


def run(job: Job, git: Git, forge: Forge, tries: int) -> int:
    """Fetch the profile, and see to the branch and its pull request; return the exit code."""
    base = retried(lambda: git.fetch(job.base), tries)
    if base is None:
        raise Refused(f"the repository has no branch {job.base}", REFUSED)
    committed = git.content(base, job.file)
    found = retried(lambda: _profile(job, committed), tries)
    if found.body is None or found.body == committed:
        return say(
            0, f"{job.file} on {job.base} is the current profile: nothing is opened, changed or closed"
        )
    profile, sha256 = found.body, hashlib.sha256(found.body).hexdigest()
    if retried(lambda: forge.has_declined(job, sha256), tries):
        return say(0, "the pull request with this profile was closed: the next one waits for another profile")
    text = _text(job, sha256, found.headers.get("PGO-Release"), committed, tries)
    pushed = retried(lambda: git.update(job, profile, sha256), tries)
    done, url = retried(lambda: forge.ensure(job, sha256, text), tries)
    say(0, f"the branch {job.branch} {'has the new profile' if pushed else 'had the profile already'}")
    return say(0, f"{done} {url}")


# The collector


def _path_of(url: str) -> str:
    return urlsplit(url).path


def _profile(job: Job, committed: bytes | None) -> Answer:
    """Return the profile; its body is None if it is the committed one. Raises Refused or Unusable."""
    return _from_collector(job, job.url, committed)


def _from_collector(job: Job, url: str, committed: bytes | None = None) -> Answer:
    request = urllib.request.Request(url, headers={"User-Agent": "pgo_pull_request"})  # noqa: S310 (http_url)
    if job.key:  # not sent to any host that the answer redirects to
        request.add_unredirected_header("Authorization", f"Bearer {job.key}")
    if committed is not None:
        request.add_header("If-None-Match", _etags(job.url, committed))
    try:
        with urllib.request.urlopen(request, timeout=job.timeout) as answer:  # noqa: S310
            body = answer.read(LARGEST_BYTES + 1)
            check_whole(body, answer.headers.get("Content-Length"))
            if url == job.url:
                check(body, url)
            return Answer(body, answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 304 and committed is not None:
                return Answer(None, error.headers)
            raise problem_of(error) from None
    except (OSError, HTTPException, zlib.error) as error:
        raise Unusable(f"{urlsplit(url).netloc}: {error or type(error).__name__}") from error


def _etags(url: str, committed: bytes) -> str:
    """Return the ETags that the collector gives a file: it goes by its bytes, or by those within the gzip."""
    form = parse_qs(urlsplit(url).query).get("format", ["pprof"])[-1]
    tags = [f'"{hashlib.sha256(committed).hexdigest()}-{form}"']
    with suppress(zlib.error):
        bare = zlib.decompressobj(31).decompress(committed, LARGEST_BYTES)
        tags.append(f'"{hashlib.sha256(bare).hexdigest()}"')
    return ", ".join(tags)


def _sibling(url: str, path: str, keep: tuple[str, ...]) -> str:
    """Return the URL of another route of the same collector, with some of the parameters."""
    parts = urlsplit(url)
    root = parts.path.rpartition("/v1/")[0]
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in keep])
    return urlunsplit((parts.scheme, parts.netloc, f"{root}/v1/{path}", query, ""))


def _text(job: Job, sha256: str, release: str | None, committed: bytes | None, tries: int) -> str:
    """Return the text of the pull request. Raises Unusable if the report can't be fetched now."""
    what = "a merge" if release is None else f"release {release}"
    lines = [f"`{job.file}` becomes {what} of the fleet's profiles.", ""]
    path = "report" if release is None else f"releases/{release}"
    try:
        url = _sibling(job.url, path, (*_SELECTION, "weights") if release is None else _OF_RELEASES)
        answer = retried(lambda: _from_collector(job, url), tries)
        found = json.loads(answer.body or b"")
        report, replaces = (found, None) if release is None else (found["report"], found["replaces"])
        lines += _described(report)
        lines += _compared(report["against"], _other(job, release, replaces, committed, tries))
    except Refused as refused:
        lines.append(f"There is no report: {_words(str(refused))}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        lines.append(f"There is no report: the collector's answer lacks {_words(repr(error))}.")
    lines += ["", "The branch is rewritten by the next profile. Close this to skip the profile.", ""]
    return "\n".join([*lines, f"<!-- pgo-sha256: {sha256} -->"])


def _other(job: Job, release: str | None, replaces: int | None, committed: bytes | None, tries: int) -> str:
    """Return what the report compares the profile with, and whether that is what is committed."""
    if release is None:
        return "the collector's current release"
    name = f"release {replaces}, which it replaced"
    if committed is None:
        return name
    url = _sibling(job.url, f"releases/{replaces}/profile", (*_OF_RELEASES, "format"))
    try:
        same = retried(lambda: _from_collector(job, url, committed), tries)
    except Refused:  # it is no longer kept
        return f"{name}; whether `{job.base}` has that one isn't known"
    is_same = same.body is None or same.body == committed
    return f"{name} and `{job.base}` has" if is_same else f"{name}; `{job.base}` has another one"


def _described(report: dict[str, Any]) -> list[str]:
    times, go = report["times"], report["go"]
    newest, oldest = times["newest"], times["oldest"]
    rows = [
        ("profiles", f"{report['profiles']:,}"),
        ("samples", ", ".join(f"{total:,} {_words(name)}" for name, total in report["totals"].items())),
        ("instances", _listed(report["instances"])),
        ("versions", _listed(report["versions"])),
    ]
    if newest and oldest:
        rows.append(("taken", f"{_words(oldest['time'])} to {_words(newest['time'])}"))
        rows.append(("age of the newest", _age(newest["age_seconds"])))
    verdict = f"{_words(go['verdict'])}{': ' if go['reason'] else ''}{_words(go['reason'])}"
    rows.append(("Go's compiler", f"{verdict}; {go['edges']:,} calls"))
    if gain := report.get("gain"):  # older collectors don't have it
        reason = " ".join(gain["reason"].split())[:_LONGEST_REASON]
        mark = ":" if gain["verdict"] == "none" else "."
        rows.append(("gain expected", f"{_words(gain['verdict'])}{mark} {_escaped(reason)}"))
    if report["outliers"]:
        rows.append(("profiles unlike the rest", f"{len(report['outliers']['profiles']):,}"))
    return ["| | |", "|---|---|", *(f"| {name} | {value or 'none'} |" for name, value in rows), ""]


def _compared(against: dict[str, Any] | None, other: str) -> list[str]:
    if against is None:
        return ["There is nothing to compare it with."]
    lines = [f"{against['overlap']:.1%} of its weight is where it was in {other}.", ""]
    moved = against["moved"]
    if not moved:
        return [*lines, "No function changed its share of calls."]
    lines += ["Functions whose share of calls changed most:", ""]
    lines += ["| function | share | before | place | before |", "|---|--:|--:|--:|--:|"]
    return lines + [
        f"| {_code(each['function'])} | {each['share']:.2%} | {each['before']:.2%} "
        f"| {each['place'] or '-'} | {each['place_before'] or '-'} |"
        for each in moved[:_LISTED]
    ]


def _listed(counts: dict[str, int]) -> str:
    named = [f"{_code(name)} ({count:,})" for name, count in list(counts.items())[:5]]
    return ", ".join(named) + (f" and {len(counts) - 5:,} more" if len(counts) > 5 else "")


def _age(seconds: int) -> str:
    days, hours = divmod(max(seconds, 0) // 3600, 24)
    return f"{days} days, {hours} hours" if days else f"{hours} hours"


def _code(text: str) -> str:
    """Return a name from a profile as Markdown's code, whatever is in it, also within a table."""
    plain = (_short(text) or "?").replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"


def _words(text: str) -> str:
    """Return words of the collector as plain text: no mark-up, links or mentions."""
    return _escaped(_short(text))


def _escaped(line: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#|~@!&])", r"\\\1", line).replace("\\@", "@\u200b")


def _short(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"


# The repository


class Git:
    """The clone and its remote. Commits are made without its files; git gets the token by the environment."""

    def __init__(self, remote: str, token: str) -> None:
        self._token = token
        url = self._run("remote", "get-url", remote) if "/" not in remote else remote
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"}:  # a job's own token in the URL may not push
            url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._url = url

    def fetch(self, branch: str) -> str | None:
        """Return the commit of a branch of the remote, fetched; None if there is no such branch."""
        ref = f"refs/heads/{branch}"
        if not self._remotely("ls-remote", self._url, ref):
            return None
        self._remotely("fetch", "--quiet", "--no-tags", self._url, ref)
        return self._run("rev-parse", "FETCH_HEAD")

    def content(self, commit: str, file: str) -> bytes | None:
        """Return the content of a file in a commit; None if it isn't there."""
        if not self._run("ls-tree", "--full-tree", commit, "--", file):
            return None
        return self._output("cat-file", "blob", f"{commit}:{file}")

    def update(self, job: Job, profile: bytes, sha256: str) -> bool:
        """Let the branch be the base and one commit with the profile; return False if it was that already.

        Raises Refused if the branch has a commit that isn't this script's, or Unusable.
        """
        base = self.fetch(job.base)
        there = self.fetch(job.branch)
        if base is None:
            raise Refused(f"the repository has no branch {job.base}", REFUSED)
        # What the base has already can't be lost: it was merged.
        if there is not None and self._run("rev-list", f"{base}..{there}"):
            parent = self._own_parent(job, there)
            is_based_well = self.content(parent, job.file) == self.content(base, job.file)
            if is_based_well and self.content(there, job.file) == profile:
                return False
        commit = self._commit(job, base, profile, sha256)
        lease = f"--force-with-lease=refs/heads/{job.branch}:{there or ''}"
        self._remotely("push", "--quiet", lease, self._url, f"{commit}:refs/heads/{job.branch}")
        return True

    def _own_parent(self, job: Job, commit: str) -> str:
        """Return the parent of a commit that this script made and nobody changed since. Raises Refused."""
        message = self._run("log", "-1", "--format=%P%n%B", commit)
        parents, _, body = message.partition("\n")
        trailers = dict(re.findall(rf"^({_SHA256}|{_BASE}): ([0-9a-f]+)$", body, re.MULTILINE))
        is_own = trailers.get(_BASE) == parents
        if is_own:
            changed = self._run("diff-tree", "-r", "--no-commit-id", "--name-only", "-z", commit)
            content = self.content(commit, job.file) or b""
            is_own = (
                changed.strip("\0") == job.file
                and trailers.get(_SHA256) == hashlib.sha256(content).hexdigest()
            )
        if not is_own:
            raise Refused(
                f"the branch {job.branch} has commit {commit[:12]}, which this script didn't make; it isn't "
                "overwritten. Merge or delete the branch, or give another --branch",
                REFUSED,
            )
        return parents

    def _commit(self, job: Job, base: str, profile: bytes, sha256: str) -> str:
        """Return a new commit: the base with the profile in the file."""
        blob = self._run("hash-object", "-w", "--stdin", "--no-filters", given=profile)
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._run("read-tree", base, env=index)
            self._run("update-index", "--add", "--cacheinfo", f"100644,{blob},{job.file}", env=index)
            tree = self._run("write-tree", env=index)
        who = {}
        if not self._run("config", "--default", "", "user.email"):
            for role in ("AUTHOR", "COMMITTER"):
                who[f"GIT_{role}_NAME"] = os.environ.get(f"GIT_{role}_NAME", "pgo_pull_request")
                who[f"GIT_{role}_EMAIL"] = os.environ.get(f"GIT_{role}_EMAIL", "pgo_pull_request@localhost")
        message = f"{job.title}\n\n{_SHA256}: {sha256}\n{_BASE}: {base}\n"
        return self._run("commit-tree", tree, "-p", base, given=message.encode(), env=who)

    def _remotely(self, *words: str) -> str:
        """Run git with the remote. Raises Refused if the token is refused, else Unusable."""
        try:
            return self._run(*words)
        except Unusable as problem:
            said = str(problem)
            if re.search(r"Authentication failed|could not read (Username|Password)|\b40[13]\b", said):
                raise Refused(f"{said}; check PGO_FORGE_TOKEN", REFUSED) from None
            raise

    def _run(self, *words: str, **options: Any) -> str:
        return self._output(*words, **options).decode(errors="replace").strip("\n")

    def _output(self, *words: str, given: bytes = b"", env: dict[str, str] | None = None) -> bytes:
        # The helper is asked only if the server asks who it is; the empty one before it forgets all others.
        helper = '!f() { test "$1" = get && echo username=oauth2 && echo "password=$PGO_FORGE_TOKEN"; }; f'
        settings = [("credential.helper", ""), ("credential.helper", helper)]
        setting = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        for number, (name, value) in enumerate(settings):
            setting |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        environment = {**os.environ, **setting, "PGO_FORGE_TOKEN": self._token, **(env or {})}
        try:
            finished = subprocess.run(  # noqa: S603
                ["git", *words],  # noqa: S607
                input=given,
                capture_output=True,
                env=environment,
                check=False,
            )
        except OSError as error:
            raise Refused(f"git can't be run: {error}", REFUSED) from None
        if finished.returncode:
            said = " ".join(_without(self._token, finished.stderr.decode(errors="replace")).split())
            raise Unusable(f"git {words[0]}: {said[:500] or f'exit code {finished.returncode}'}")
        return finished.stdout


# The forge


class Request(NamedTuple):
    """A pull or merge request: its number, text and page."""

    number: int
    text: str
    page: str


def _marked(request: Request) -> str:
    """Return the SHA-256 of the profile that a pull request's text is about; empty if it names none."""
    mark = _MARK.search(request.text)
    return mark[1] if mark else ""


class Forge(ABC):
    """The pull requests of one repository. A subclass knows the API of its forge.

    `fields` names the number, the text and the page of a pull request in that API.
    """

    fields: tuple[str, str, str]

    def __init__(self, api: str, repository: str, token: str, timeout: float) -> None:
        self._api, self._repository, self._token, self._timeout = api, repository, token, timeout

    def default_branch(self) -> str:
        """Return the branch that pull requests are merged into by default."""
        return str(self._call("GET", "")["default_branch"])

    def has_declined(self, job: Job, sha256: str) -> bool:
        """Return whether a pull request with this profile was closed and not merged, and none is open."""
        if self.listed(job, is_open=True):
            return False
        return any(_marked(request) == sha256 for request in self.listed(job, is_open=False))

    def ensure(self, job: Job, sha256: str, text: str) -> tuple[str, str]:
        """Open the pull request or update its text; return what was done, and its page.

        It can be repeated: an open one is looked for first.
        """
        for request in self.listed(job, is_open=True):
            if _marked(request) == sha256:
                return "unchanged:", request.page
            return "updated", self.change(request.number, job, text).page
        return "opened", self.create(job, text).page

    @abstractmethod
    def listed(self, job: Job, *, is_open: bool) -> list[Request]:
        """Return the pull requests from the job's branch, the newest 100: the open or the declined ones."""

    @abstractmethod
    def create(self, job: Job, text: str) -> Request:
        """Open a pull request."""

    @abstractmethod
    def change(self, number: int, job: Job, text: str) -> Request:
        """Replace the title and text of a pull request."""

    @abstractmethod
    def root(self) -> str:
        """Return the path of the repository in the API."""

    def _request(self, found: Any) -> Request:
        try:
            number, text, page = (found[name] for name in self.fields)
        except (KeyError, TypeError):
            raise Unusable(f"{self._api} answered with something that isn't a pull request") from None
        return Request(number, text or "", page)

    def _call(self, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
        """Return what the API answers. Raises Refused or Unusable."""
        url, content = self._api + self.root() + path, None
        headers = {"User-Agent": "pgo_pull_request", "Accept": "application/json"}
        if method == "GET":
            url += f"?{urlencode(fields)}" if fields else ""
        else:
            content = json.dumps(fields).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310 (the user's own)
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                return json.loads(answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise self._problem(error, f"{method} {urlsplit(url).path}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise Unusable(f"{urlsplit(url).netloc}: {error or type(error).__name__}") from error

    def _problem(self, error: urllib.error.HTTPError, what: str) -> Exception:
        pause = error.headers.get("Retry-After", "")
        is_passing = error.code >= 500 or error.code == 429 or (error.code == 403 and pause)
        reason, said = error.reason, ""
        with suppress(OSError, HTTPException, ValueError, AttributeError):
            said = error.read(1 << 16).decode(errors="replace")
            fields = json.loads(said)
            reason = fields.get("message") or fields.get("error") or reason
            reason = " ".join(
                [str(reason), *(str(each.get("message", each)) for each in fields.get("errors", []))]
            )
        text = f"{what}: {error.code} {_short(str(reason))}"
        if is_passing:
            return Unusable(text, retry_after(pause))
        if error.code in _EXISTS_ALREADY and "already exists" in said:
            return Unusable(text)  # somebody opened it just now: it is found when asked again
        if error.code in {401, 403, 404}:
            text += "; check PGO_FORGE_TOKEN and --repository"
        return Refused(text, REFUSED)


class GitHub(Forge):
    """Pull requests of GitHub's REST API, version 2022-11-28."""

    fields = ("number", "body", "html_url")

    def root(self) -> str:
        return f"/repos/{quote(self._repository)}"

    def listed(self, job: Job, *, is_open: bool) -> list[Request]:
        query = {
            "head": f"{self._repository.partition('/')[0]}:{job.branch}",
            "base": job.base,
            "state": "open" if is_open else "closed",
            "sort": "created",
            "direction": "desc",
            "per_page": 100,
        }
        found = self._call("GET", "/pulls", query)
        return [self._request(each) for each in found if is_open or not each.get("merged_at")]

    def create(self, job: Job, text: str) -> Request:
        fields = {"title": job.title, "body": text, "head": job.branch, "base": job.base}
        return self._request(self._call("POST", "/pulls", fields))

    def change(self, number: int, job: Job, text: str) -> Request:
        return self._request(self._call("PATCH", f"/pulls/{number}", {"title": job.title, "body": text}))


class GitLab(Forge):
    """Merge requests of GitLab's REST API, version 4."""

    fields = ("iid", "description", "web_url")

    def root(self) -> str:
        return f"/projects/{quote(self._repository, safe='')}"

    def listed(self, job: Job, *, is_open: bool) -> list[Request]:
        query = {
            "source_branch": job.branch,
            "target_branch": job.base,
            "state": "opened" if is_open else "closed",
            "order_by": "created_at",
            "sort": "desc",
            "per_page": 100,
        }
        return [self._request(each) for each in self._call("GET", "/merge_requests", query)]

    def create(self, job: Job, text: str) -> Request:
        fields = {
            "title": job.title,
            "description": text,
            "source_branch": job.branch,
            "target_branch": job.base,
            "remove_source_branch": True,
        }
        return self._request(self._call("POST", "/merge_requests", fields))

    def change(self, number: int, job: Job, text: str) -> Request:
        fields = {"title": job.title, "description": text}
        return self._request(self._call("PUT", f"/merge_requests/{number}", fields))


FORGES: dict[str, Callable[[str, str, str, float], Forge]] = {"github": GitHub, "gitlab": GitLab}


def _without(token: str, text: str) -> str:
    """Return a text without the token, in any form in which git or HTTP may repeat it."""
    for form in (token, quote(token), base64.b64encode(f"oauth2:{token}".encode()).decode()):
        text = text.replace(form, "***")
    return text


if __name__ == "__main__":
    sys.exit(main())
