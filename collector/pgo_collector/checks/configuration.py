"""Checks of the environment: the settings, and the files that they name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pgo_collector.checks import Finding, State
from pgo_collector.engine.binaries import lacking, lacking_for_llvm
from pgo_collector.errors import (
    CannotStart,
    DaskUnavailable,
    FunctionRulesInvalid,
    RulesUnreadable,
    SecretUnusable,
    StorageUnusable,
)
from pgo_collector.hooks.endpoint import read_secrets
from pgo_collector.http.keys import KeySet
from pgo_collector.http.session_secret import read_session_secret
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.function_rules import parse_function_rules
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import stored_sizes
from pgo_collector.store.store import storage_of
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.workers.bulk import require_dask

_DIGEST = b"sha256:"


def check_configuration(settings: Settings) -> Iterator[Finding]:
    """Check the settings, as they were read, and the files that they name."""
    yield from _variables(settings)
    yield _keys("submit keys", settings.submit_auth_keys_file)
    yield _keys("merge keys", settings.merge_auth_keys_file)
    if settings.metrics_auth_keys_file is not None:
        yield _keys("metrics keys", settings.metrics_auth_keys_file)
    if settings.trace_keys_file is not None:
        yield _trace_keys(settings.trace_keys_file)
    yield _sessions(settings)
    yield _webhook(settings)
    yield from _rules(settings.rules_dir)
    yield _function_rules(settings)
    yield _binaries(settings)
    yield _debuginfod(settings)
    yield _bulk(settings)


def _variables(settings: Settings) -> Iterator[Finding]:
    state: State = "fails" if settings.unknown_settings == "refuse" else "warning"
    for name, fix in settings.unknown_variables.items():
        yield Finding("settings", state, f"{name} isn't a setting", fix)
    yield Finding("settings", "ok", f"{settings.given} of {len(Settings.fields)} are set")


def _keys(part: str, path: Path) -> Finding:
    try:
        text, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        fix = f"make it with `pgo-collector keys new {path}`, readable by the user that runs the server"
        return Finding(part, "fails", f"{path}: {error.strerror}", fix)
    keys = KeySet.parse(text)
    if keys.malformed:
        faults = "; ".join(f"line {line}: {reason}" for line, reason in keys.malformed.items())
        return Finding(part, "fails", f"{path}: {faults}", "correct the line; until then no server starts")
    if not keys.keys:
        fix = f"add a key with `pgo-collector keys new {path}`"
        return Finding(part, "warning", f"{path} has no key, so every request is refused", fix)
    if mode & stat.S_IROTH and not all(line.strip().startswith(_DIGEST) for line in text.splitlines()):
        fix = f"chmod o= {path}, or store digests in place of keys (`pgo-collector keys new --digest`)"
        return Finding(part, "warning", f"{path} has keys that every user of this machine can read", fix)
    if keys.with_blanks:
        lines = ", ".join(map(str, keys.with_blanks))
        fix = "check the line for a misspelled field: at present all of the line is one key"
        return Finding(part, "warning", f"{path} has blanks in the key of line {lines}", fix)
    return Finding(part, "ok", f"{len(keys.keys)} in {path}")


def _trace_keys(path: Path) -> Finding:
    try:
        keys = TraceKeys(path).keys
    except CannotStart as error:
        return Finding("trace keys", "fails", str(error), f"make one with `pgo-collector keys new {path}`")
    if path.stat().st_mode & stat.S_IROTH:
        return Finding(
            "trace keys", "warning", f"every user of this machine can read {path}", f"chmod o= {path}"
        )
    return Finding("trace keys", "ok", f"{len(keys)} in {path}")


def _sessions(settings: Settings) -> Finding:
    """Check that collectors which share a catalog can take each other's sessions."""
    path = settings.session_secret_file
    if path is None and not settings.is_shared:
        return Finding("sessions", "ok", "signed with a secret in the data folder")
    if path is None:
        fix = "give all collectors the same PGOF_SESSION_SECRET_FILE"
        return Finding("sessions", "warning", "a sign-in holds on one collector, and not on others", fix)
    try:
        read_session_secret(path)
    except SecretUnusable as error:
        return Finding("sessions", "fails", str(error), f"make one: openssl rand -hex 32 > {path}")
    if path.stat().st_mode & stat.S_IROTH:
        fix = f"chmod o= {path}"
        return Finding("sessions", "warning", f"every user of this machine can read {path}", fix)
    return Finding("sessions", "ok", f"signed with the secret in {path}")


def _webhook(settings: Settings) -> Finding:
    if settings.webhook_url is None:
        return Finding("webhook", "ok", "off")
    try:
        secrets = read_secrets(settings.webhook_secret_file)
    except SecretUnusable as error:
        return Finding("webhook", "fails", str(error), "put the secret that the receiver has into the file")
    url = urlsplit(settings.webhook_url)
    where = f"{url.scheme}://{url.hostname}"
    if url.scheme == "http":
        fix = "use https unless you control the whole network path"
        return Finding("webhook", "warning", f"events go to {where} without encryption", fix)
    return Finding("webhook", "ok", f"events go to {where}, signed with {len(secrets)} secrets")


def _binaries(settings: Settings) -> Finding:
    """Check whether programs can be uploaded and read; it's a fault only where some are stored."""
    if not settings.binaries_kept:
        return Finding("binaries", "ok", "off: PGOF_BINARIES_KEPT is 0")
    reason, cannot = lacking(), "can't be read"
    if not reason:
        reason, cannot = lacking_for_llvm(), "can't help the format llvm"
    if not reason:
        return Finding("binaries", "ok", "programs can be uploaded, for names and the format llvm")
    try:
        count = len(stored_sizes(storage_of(settings)))
    except (OSError, StorageUnusable):  # which other checks tell
        count = 0
    if count:
        return Finding("binaries", "warning", f"{count} programs are stored, and {cannot}", reason)
    return Finding("binaries", "ok", f"programs {cannot}: {reason}")


def _debuginfod(settings: Settings) -> Finding:
    """Check that what debuginfod servers have can be used, and that nobody else can answer."""
    servers = settings.servers_of_debuginfod
    if not servers:
        return Finding("debuginfod", "ok", "off")
    if not settings.binaries_kept:
        fix = "raise it, or unset PGOF_DEBUGINFOD_URLS"
        return Finding("debuginfod", "warning", "no server is asked, since PGOF_BINARIES_KEPT is 0", fix)
    if reason := lacking():
        return Finding("debuginfod", "warning", "no server is asked, since programs can't be read", reason)
    asked = ", ".join(server.address for server in servers)
    if plain := [server.address for server in servers if server.is_in_the_clear]:
        fix = "use https unless you control the whole network path"
        return Finding("debuginfod", "warning", f"{', '.join(plain)} could give false names", fix)
    return Finding("debuginfod", "ok", f"asked for build ids: {asked}")


def _bulk(settings: Settings) -> Finding:
    """Check whether a cluster reads very many blobs; it's no fault if it doesn't, the own workers do then."""
    if settings.dask_address is None:
        return Finding("bulk", "ok", "off: the server's own workers read all blobs")
    try:
        require_dask()
    except DaskUnavailable as error:
        return Finding("bulk", "fails", str(error), "install it, or unset PGOF_BULK")
    from pgo_collector.workers.dask_cluster import ClusterFails, count_workers  # noqa: PLC0415 - an extra

    try:
        count = count_workers(settings.dask_address)
    except ClusterFails as error:
        fix = "start it, or correct PGOF_BULK; the server's own workers read meanwhile"
        return Finding("bulk", "warning", f"{settings.bulk} can't be reached: {error}", fix)
    if not count:
        return Finding(
            "bulk", "warning", f"{settings.bulk} has no workers", "start `pgo-collector dask worker`"
        )
    return Finding("bulk", "ok", f"workers of {settings.bulk}: {count}")


def _rules(path: Path) -> Iterator[Finding]:
    rules = RulesFolder(path)
    if path.exists() and not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
        yield Finding(
            "rules", "fails", f"{path} can't be listed", "set PGOF_RULES_DIR to a folder that can be read"
        )
        return
    files = rules.files()
    sound = True
    for file in files:
        try:
            rules.read(file)
        except RulesUnreadable as error:
            sound = False
            fix = "correct the file: until then no merge of the service is served"
            yield Finding("rules", "fails", str(error), fix)
    if sound:
        yield Finding("rules", "ok", f"{len(files)} files in {path}" if files else f"none in {path}")


def _function_rules(settings: Settings) -> Finding:
    """Check the rules for metrics of functions, and that anyone can read these."""
    path, part = settings.function_metrics_file, "functions"
    if path is None:
        return Finding(part, "ok", "off")
    try:
        rules = parse_function_rules(path.read_bytes())
    except (OSError, FunctionRulesInvalid) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        fix = "correct the file: until then the rules before hold, and a start has none"
        return Finding(part, "fails", f"{path}: {reason}", fix)
    if not settings.has_metrics:
        fix = "set PGOF_METRICS_AUTH_KEYS_FILE, or unset PGOF_FUNCTION_METRICS_FILE"
        return Finding(part, "warning", "nothing is measured, since nobody can read /metrics", fix)
    return Finding(part, "ok", f"{len(rules)} rules in {path}")
