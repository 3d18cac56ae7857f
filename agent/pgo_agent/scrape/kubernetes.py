"""Find scrape targets among the pods of a Kubernetes cluster: list them page by page, then watch them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pgo_agent.errors import AgentError, ClusterUnavailable, NotInstalled, TargetInvalid
from pgo_agent.logs import EventLogger
from pgo_agent.retry import retry_delay
from pgo_agent.scrape.pod import Pod, PodLabels, pod_name, pod_target
from pgo_agent.scrape.schedule import ScrapeSchedule
from pgo_agent.scrape.target import Target, TargetDefaults

if TYPE_CHECKING:
    from lightkube import AsyncClient

_EVERY_NAMESPACE = "*"  # lightkube's name for all namespaces
_PAGE = 500
_RUNNING = {"status.phase": "Running"}
_WATCH_SECONDS = 300
# The server ends a watch after _WATCH_SECONDS; one that is silent for longer has a broken connection.
_LONGEST_SILENCE = _WATCH_SECONDS + 30
_log = EventLogger(__name__)


class KubernetesTargets:
    """The running pods that match a label selector, in the given namespaces, or in all if none is given.

    The address of the API server and the credentials come from the service account of the agent's own pod,
    or else from KUBECONFIG. Raises NotInstalled if lightkube isn't installed.
    """

    def __init__(
        self, namespaces: Sequence[str], selector: str | None, defaults: TargetDefaults, labels: PodLabels
    ) -> None:
        try:
            import lightkube  # noqa: F401, PLC0415 - optional; targets in a file don't need it
        except ImportError:
            raise NotInstalled("lightkube", "kubernetes") from None
        self._namespaces = tuple(dict.fromkeys(namespaces)) or (_EVERY_NAMESPACE,)
        self._query: dict[str, Any] = {"fields": _RUNNING, "labels": {selector: None} if selector else None}
        self._defaults = defaults
        self._labels = labels
        self._reported: dict[str, str] = {}
        self.unreadable = False

    async def targets(self) -> list[Target]:
        """Return the targets that exist now, in all namespaces that can be read.

        Raises ClusterUnavailable if none can be.
        """
        targets: list[Target] = []
        reasons = []
        for namespace in self._namespaces:
            try:
                async with _client() as client:
                    targets += (await self._list(client, namespace))[0]
            except Exception as error:  # noqa: BLE001 - the other namespaces may be readable
                reasons.append(_logged(namespace, error))
        if len(reasons) == len(self._namespaces):
            raise ClusterUnavailable(reasons[0])
        self.unreadable = bool(reasons)
        return targets

    async def follow(self, schedule: ScrapeSchedule) -> None:
        """Keep the schedule up to date until cancelled. In an outage the last known targets stay."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._follow(namespace, schedule))

    async def _follow(self, namespace: str, schedule: ScrapeSchedule) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._list_and_watch(namespace, schedule)
            except TimeoutError:
                _log.info("pod watch silent", namespace=namespace)
            except Exception as error:  # noqa: BLE001 - no error may stop the known targets
                # This includes status 410, a version that is too old, which needs a new list.
                _logged(namespace, error)
            failures = 1 if time.monotonic() - began > _WATCH_SECONDS else failures + 1
            await asyncio.sleep(retry_delay(failures, 1.0, 0.0))

    async def _list_and_watch(self, namespace: str, schedule: ScrapeSchedule) -> None:
        """List the pods, then apply watch events; return or raise when a new list is needed."""
        async with _client() as client:  # a new client, since certificates are renewed
            targets, version = await self._list(client, namespace)
            schedule.replace(namespace, targets)
            _log.info("pods listed", namespace=namespace, targets=len(targets))
            async with aclosing(self._watch(client, namespace, version)) as events:
                while True:
                    async with asyncio.timeout(_LONGEST_SILENCE):
                        kind, pod = await anext(events)
                    if kind == "DELETED":
                        schedule.remove(namespace, pod_name(pod))
                        self._reported.pop(pod_name(pod), None)
                    elif target := self._target(pod):
                        schedule.put(namespace, target)
                    else:
                        schedule.remove(namespace, pod_name(pod))

    async def _list(self, client: AsyncClient, namespace: str) -> tuple[list[Target], str]:
        """Return the targets of a namespace, and the version of the list, from which a watch continues."""
        listed = client.list(_pods(), namespace=namespace, chunk_size=_PAGE, **self._query)
        targets, is_empty = [], True
        async for pod in listed:
            is_empty = False
            if (target := self._target(pod)) is not None:
                targets.append(target)
        if is_empty:
            _log.warning("no pods", namespace=namespace)
        return targets, listed.resourceVersion

    async def _watch(
        self, client: AsyncClient, namespace: str, version: str
    ) -> AsyncGenerator[tuple[str, Pod], None]:
        """Yield the type and pod of each event since a version. Ends with an error."""
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
            return pod_target(pod, self._defaults, self._labels)
        except TargetInvalid as error:
            if self._reported.get(error.name) != error.reason:
                self._reported[error.name] = error.reason
                _log.warning("pod not scraped", pod=error.name, reason=error.reason)
            return None


def _client() -> AsyncClient:
    from lightkube import AsyncClient  # noqa: PLC0415 - see KubernetesTargets

    return AsyncClient()


@cache  # lightkube refuses a second class of the same name
def _pods() -> Any:
    """Return a resource class whose pods are plain mappings, with the fields of any server version."""
    from lightkube.generic_resource import create_namespaced_resource  # noqa: PLC0415 - see KubernetesTargets

    return create_namespaced_resource("", "v1", "Pod", "pods")


def _logged(namespace: str, error: Exception) -> str:
    """Log and return why the pods of a namespace can't be read.

    What httpx says after the first line is a link to a manual.
    """
    reason = str(error).partition("\n")[0]
    if not isinstance(error, AgentError):
        reason = f"{type(error).__name__}: {reason}"
    response = getattr(error, "response", None)
    if response is not None and response.status_code == HTTPStatus.FORBIDDEN:
        reason += "; the agent needs the rights to list and to watch pods"
    _log.warning("pods unreadable", namespace=namespace, reason=reason)
    return reason
