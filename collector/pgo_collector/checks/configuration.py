"""Checks of what the environment says: the settings, and the files that they name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from pgo_collector.checks import Finding
from pgo_collector.errors import RulesUnreadable, SecretUnusable
from pgo_collector.hooks.endpoint import read_secrets
from pgo_collector.http.keys import KeySet
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.settings import PREFIX, Settings

_DIGEST = b"sha256:"


def check_configuration(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """All of it, for settings that could be read from that environment."""
    yield from _variables(environment)
    yield _keys("submit keys", settings.submit_auth_keys_file)
    yield _keys("merge keys", settings.merge_auth_keys_file)
    if settings.metrics_auth_keys_file is not None:
        yield _keys("metrics keys", settings.metrics_auth_keys_file)
    yield _webhook(settings)
    yield from _rules(settings.rules_dir)


def _variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    known = [f"{PREFIX}{name}".upper() for name in Settings.model_fields]
    given = [name for name in environment if name.upper().startswith(PREFIX)]
    for name in sorted(given):
        if name.upper() not in known:
            near = get_close_matches(name.upper(), known, 1)
            fix = f"is it to be {near[0]}?" if near else "unset it"
            yield Finding("settings", "warning", f"{name} is no setting", fix)
    yield Finding("settings", "ok", f"of {len(known)}, {len(given)} are set")


def _keys(part: str, path: Path) -> Finding:
    try:
        text, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        fix = f"make it with `pgo-collector keys new {path}`, for the user that serves to read"
        return Finding(part, "fails", f"{path}: {error.strerror}", fix)
    keys = KeySet.parse(text)
    if keys.malformed:
        faults = "; ".join(f"line {line}: {reason}" for line, reason in keys.malformed.items())
        return Finding(part, "fails", f"{path}: {faults}", "mend the line, or the server doesn't start")
    if not keys.keys:
        fix = f"add a key with `pgo-collector keys new {path}`"
        return Finding(part, "warning", f"{path} has no key, and lets nobody in", fix)
    if mode & stat.S_IROTH and not all(line.strip().startswith(_DIGEST) for line in text.splitlines()):
        fix = f"chmod o= {path}, or keep digests in it (`pgo-collector keys new --digest`)"
        return Finding(part, "warning", f"{path} has keys that every user of this machine can read", fix)
    if keys.with_blanks:
        lines = ", ".join(map(str, keys.with_blanks))
        fix = "see whether a field is misspelled: all of such a line is one key"
        return Finding(part, "warning", f"{path} has blanks in the key of line {lines}", fix)
    return Finding(part, "ok", f"{len(keys.keys)} in {path}")


def _webhook(settings: Settings) -> Finding:
    if settings.webhook_url is None:
        return Finding("webhook", "ok", "off")
    try:
        secrets = read_secrets(settings.webhook_secret_file)
    except SecretUnusable as error:
        return Finding("webhook", "fails", str(error), "put a secret there that the receiver has too")
    where = f"{settings.webhook_url.scheme}://{settings.webhook_url.host}"
    if settings.webhook_url.scheme == "http":
        fix = "let it be https, unless all of the way is yours"
        return Finding("webhook", "warning", f"events go to {where} for all on the way to read", fix)
    return Finding("webhook", "ok", f"events go to {where}, signed with {len(secrets)} secrets")


def _rules(path: Path) -> Iterator[Finding]:
    rules = RulesFolder(path)
    if path.exists() and not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
        yield Finding(
            "rules", "fails", f"{path} can't be listed", "let PGOF_RULES_DIR be a folder to be read"
        )
        return
    files = rules.files()
    sound = True
    for file in files:
        try:
            rules.read(file)
        except RulesUnreadable as error:
            sound = False
            fix = "mend it: until then no merge of the service is served"
            yield Finding("rules", "fails", str(error), fix)
    if sound:
        yield Finding("rules", "ok", f"{len(files)} files in {path}" if files else f"none in {path}")
