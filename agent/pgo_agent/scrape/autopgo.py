"""autopgo's marks, which ask for a program's profiles: labels and annotations of pods, tags of services."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pgo_agent.scrape.target import (
    BASE_PATH,
    Profile,
    TargetDefaults,
    absolute_path,
    checked_scheme,
    profile_at_url,
    profile_under,
)

SCRAPE = "autopgo.scrape"
APP, PORT, PATH, SCHEME = (f"{SCRAPE}.{name}" for name in ("app", "port", "path", "scheme"))


def marks_of_tags(tags: Iterable[str]) -> dict[str, str]:
    """Return the marks among the tags of a service, such as `autopgo.scrape.app=shop`, by name."""
    return {
        name: value
        for name, equals, value in (tag.partition("=") for tag in tags)
        if equals and (name == SCRAPE or name.startswith(f"{SCRAPE}."))
    }


def marked_profiles(
    name: str, marks: Mapping[str, str], address: str, defaults: TargetDefaults
) -> Iterator[Profile]:
    """Yield the profiles of a program at `address`, a host and a port, by its marks.

    A path is that of the CPU profile, as autopgo takes it; without one, the program has net/http/pprof's.
    Raises TargetInvalid, with the target's name.
    """
    root = f"{checked_scheme(name, marks.get(SCHEME) or 'http')}://{address}"
    if path := marks.get(PATH):
        yield profile_at_url(name, "cpu", root + absolute_path(path), defaults.seconds)
        return
    for type_ in defaults.types:
        yield profile_under(name, type_, root + BASE_PATH, defaults.seconds)
