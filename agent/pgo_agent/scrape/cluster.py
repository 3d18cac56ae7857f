"""Which pods there are: listed page by page from Kubernetes' API server, and watched from then on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any

from pgo_agent.errors import AgentError, ClusterUnavailable, NotInstalled, TargetInvalid
from pgo_agent.retry import pause
from pgo_agent.scrape.pod import Pod, PodLabels, name_of, target_of
from pgo_agent.scrape.rounds import Rounds
from pgo_agent.scrape.target import Target, Wanted

if TYPE_CHECKING:
    from lightkube import AsyncClient

_EVERY_NAMESPACE = "*"  # lightkube's name for all
_PAGE = 500
_RUNNING = {"status.phase": "Running"}
_WATCH_SECONDS = 300
# A connection that broke without a word says nothing for longer than the server keeps one open.
_LONGEST_SILENCE = _WATCH_SECONDS + 30
_log = logging.getLogger(__name__)


class Cluster:
    """The pods of some namespaces, or of all if there are none, that a label selector has.

    Where the API server is, and who this is to it, says the service account of the pod that this is in, or
    else KUBECONFIG. Raises NotInstalled if the library for it isn't installed.
    """

    def __init__(
        self, namespaces: Sequence[str], selector: str | None, wanted: Wanted, labels: PodLabels
    ) -> None:
        try:
            import lightkube  # noqa: F401, PLC0415 - who lists targets in a file has no need of it
        except ImportError:
            raise NotInstalled("lightkube", "kubernetes") from None
        self._namespaces = tuple(dict.fromkeys(namespaces)) or (_EVERY_NAMESPACE,)
        self._query: dict[str, Any] = {"fields": _RUNNING, "labels": {selector: None} if selector else None}
        self._wanted = wanted
        self._labels = labels
        self._said: dict[str, str] = {}

    async def targets(self) -> list[Target]:
        """See Source."""
        try:
            async with _client() as client:
                return [
                    target
                    for namespace in self._namespaces
                    for target in (await self._list(client, namespace))[0]
                ]
        except Exception as error:
            raise ClusterUnavailable(_said_by(error)) from error

    async def follow(self, rounds: Rounds) -> None:
        """See Source. In an outage, what was known last stays."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._follow(namespace, rounds))

    async def _follow(self, namespace: str, rounds: Rounds) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._list_and_watch(namespace, rounds)
            except TimeoutError:
                _log.info("the pods of %s are listed anew: nothing was heard of them", namespace)
            except Exception as error:  # noqa: BLE001 - whatever it is, the targets that are known go on
                # A version that is too old (410) is one of them: a list is what it takes then.
                _log.warning("the pods of %s are listed anew: %s", namespace, _said_by(error))
            failures = 1 if time.monotonic() - began > _WATCH_SECONDS else failures + 1
            await asyncio.sleep(pause(failures, 1.0, 0.0))

    async def _list_and_watch(self, namespace: str, rounds: Rounds) -> None:
        """Returns, or raises, when another list is needed."""
        async with _client() as client:  # a new one, since certificates are renewed
            targets, version = await self._list(client, namespace)
            rounds.replace(namespace, targets)
            _log.info("the pods of %s: %d to scrape", namespace, len(targets))
            async with aclosing(self._watch(client, namespace, version)) as events:
                while True:
                    async with asyncio.timeout(_LONGEST_SILENCE):
                        kind, pod = await anext(events)
                    if kind == "DELETED":
                        rounds.remove(namespace, name_of(pod))
                        self._said.pop(name_of(pod), None)
                    elif target := self._target(pod):
                        rounds.put(namespace, target)
                    else:
                        rounds.remove(namespace, name_of(pod))

    async def _list(self, client: AsyncClient, namespace: str) -> tuple[list[Target], str]:
        """The targets, and the version of the list, from which a watch goes on."""
        pods = client.list(_pods(), namespace=namespace, chunk_size=_PAGE, **self._query)
        targets = [target async for pod in pods if (target := self._target(pod)) is not None]
        return targets, pods.resourceVersion

    async def _watch(
        self, client: AsyncClient, namespace: str, version: str
    ) -> AsyncGenerator[tuple[str, Pod], None]:
        """What became of pods since that version. It ends with an error."""
        async for event in client.watch(
            _pods(),
            namespace=namespace,
            resource_version=version,
            server_timeout=_WATCH_SECONDS,
            **self._query,
        ):
            yield event

    def _target(self, pod: Pod) -> Target | None:
        try:
            return target_of(pod, self._wanted, self._labels)
        except TargetInvalid as error:
            if self._said.get(error.name) != error.reason:
                self._said[error.name] = error.reason
                _log.warning("not scraped: %s", error)
            return None


def _client() -> AsyncClient:
    from lightkube import AsyncClient  # noqa: PLC0415 - see Cluster

    return AsyncClient()


@cache  # the library takes a second class of the name for a mistake
def _pods() -> Any:
    """As mappings: what a pod has beside what is read here is a server's business, whatever its version."""
    from lightkube.generic_resource import create_namespaced_resource  # noqa: PLC0415 - see Cluster

    return create_namespaced_resource("", "v1", "Pod", "pods")


def _said_by(error: Exception) -> str:
    return str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
