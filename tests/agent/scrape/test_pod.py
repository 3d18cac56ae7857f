"""Test the target that the annotations of a pod describe."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.errors import TargetInvalid
from pgo_agent.scrape.pod import PodLabels, pod_name, pod_target
from pgo_agent.scrape.target import Target, TargetDefaults

from tests.agent.scrape.pods import Pod, pod, port_of

WANTED = TargetDefaults(("cpu", "heap"), 30)
LABELS = PodLabels({"namespace": "namespace", "version": "label:app.kubernetes.io/version"})
ENABLED = {"profefe.com/enable": "true"}
SAID = (
    "profefe.com/port",
    "profefe.com/path",
    "profefe.com/service",
    "profiles.grafana.com/cpu.port",
    "profiles.grafana.com/cpu.port_name",
    "profiles.grafana.com/cpu.path",
    "profiles.grafana.com/cpu.scheme",
)


def read(made: Pod, labels: PodLabels = LABELS) -> Target:
    target = pod_target(made, WANTED, labels)
    assert target is not None
    return target


def urls(made: Pod) -> dict[str, str]:
    return {profile.type: profile.url for profile in read(made).profiles}


def test_profefe_has_defaults() -> None:
    assert urls(pod(annotations=ENABLED)) == {
        "cpu": "http://127.0.0.1:6060/debug/pprof/profile?seconds=30",
        "heap": "http://127.0.0.1:6060/debug/pprof/heap",
    }


def test_profefe_says_where() -> None:
    """kube-profefe itself ignores the path."""
    said = ENABLED | {"profefe.com/port": "9000", "profefe.com/path": "own/pprof/"}
    assert urls(pod(annotations=said, address="fd00::7")) == {
        "cpu": "http://[fd00::7]:9000/own/pprof/profile?seconds=30",
        "heap": "http://[fd00::7]:9000/own/pprof/heap",
    }


def test_autopgo_says_where_by_a_label_and_annotations() -> None:
    labels = {"autopgo.scrape": "true", "autopgo.scrape.app": "till", "app": "shop"}
    made = pod(labels=labels, annotations={"autopgo.scrape.port": "9000"})
    assert read(made).service == "till"
    assert urls(made) == {
        "cpu": "http://127.0.0.1:9000/debug/pprof/profile?seconds=30",
        "heap": "http://127.0.0.1:9000/debug/pprof/heap",
    }
    said = {"autopgo.scrape.port": "9000", "autopgo.scrape.path": "own/cpu", "autopgo.scrape.scheme": "https"}
    made = pod(labels=labels, annotations=said, address="fd00::7")
    assert urls(made) == {"cpu": "https://[fd00::7]:9000/own/cpu?seconds=30"}
    assert pod_target(pod(annotations=said | {"autopgo.scrape": "true"}), WANTED, LABELS) is None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "not a port: ''"),
        ({"autopgo.scrape.port": "70000"}, "not a port"),
        ({"autopgo.scrape.port": "9000", "autopgo.scrape.scheme": "http://other/"}, "not http or https"),
    ],
)
def test_marks_of_autopgo_that_lead_nowhere_are_refused(said: dict[str, str], reason: str) -> None:
    with pytest.raises(TargetInvalid, match=reason):
        read(pod(labels={"autopgo.scrape": "true"}, annotations=said))


def test_pyroscope_says_where_for_each_type() -> None:
    made = pod(
        annotations={
            "profiles.grafana.com/cpu.scrape": "true",
            "profiles.grafana.com/cpu.port": "8081",
            "profiles.grafana.com/memory.scrape": "true",
            "profiles.grafana.com/memory.port_name": "admin",
            "profiles.grafana.com/mutex.scrape": "true",
            "profiles.grafana.com/mutex.port_name": "pprof",
            "profiles.grafana.com/mutex.scheme": "https",
            "profiles.grafana.com/mutex.path": "/internal/mutex?debug=0",
            "profiles.grafana.com/block.scrape": "false",
            "profiles.grafana.com/block.port": "8081",
            "profiles.grafana.com/goroutine.port": "8081",
        }
    )
    assert urls(port_of(made, "pprof", 7070)) == {
        "cpu": "http://127.0.0.1:8081/debug/pprof/profile?seconds=30",
        "heap": "http://127.0.0.1:15000/debug/pprof/heap",
        "mutex": "https://127.0.0.1:7070/internal/mutex?debug=0&seconds=30",
    }


def test_what_is_said_of_a_type_goes_first() -> None:
    said = ENABLED | {
        "profiles.grafana.com/cpu.scrape": "true",
        "profiles.grafana.com/cpu.port": "8081",
        "profiles.grafana.com/goroutine.scrape": "true",
        "profiles.grafana.com/goroutine.port": "8081",
    }
    assert urls(pod(annotations=said)) == {
        "cpu": "http://127.0.0.1:8081/debug/pprof/profile?seconds=30",
        "heap": "http://127.0.0.1:6060/debug/pprof/heap",
        "goroutine": "http://127.0.0.1:8081/debug/pprof/goroutine",
    }


@pytest.mark.parametrize(
    "made",
    [
        pod(),
        pod(annotations={"profefe.com/enable": "false"}),
        pod(annotations={"profefe.com/port": "6060"}),
        pod(annotations={"profiles.grafana.com/cpu.port": "6060"}),
        pod(annotations=ENABLED, phase="Pending"),
        pod(annotations=ENABLED, phase="Succeeded"),
        pod(annotations=ENABLED, address=""),
        {"metadata": {"name": "a", "namespace": "b", "annotations": None}, "spec": {}, "status": None},
    ],
)
def test_nobody_else_is_scraped(made: Pod) -> None:
    assert pod_target(made, WANTED, LABELS) is None


def test_a_pod_that_is_about_to_end_is_not() -> None:
    made = pod(annotations=ENABLED)
    made["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert pod_target(made, WANTED, LABELS) is None


@pytest.mark.parametrize(
    "annotations",
    [
        ENABLED | {"profefe.com/port": "0"},
        ENABLED | {"profefe.com/port": "65536"},
        ENABLED | {"profefe.com/port": "10000000000000000000000"},
        ENABLED | {"profefe.com/port": "http"},
        ENABLED | {"profefe.com/port": "80@elsewhere.example"},
        ENABLED | {"profefe.com/path": "/a\nb"},
        {"profiles.grafana.com/cpu.scrape": "true"},
        {"profiles.grafana.com/cpu.scrape": "true", "profiles.grafana.com/cpu.port_name": "missing"},
        {
            "profiles.grafana.com/cpu.scrape": "true",
            "profiles.grafana.com/cpu.port": "80",
            "profiles.grafana.com/cpu.scheme": "file",
        },
        {
            "profiles.grafana.com/cpu.scrape": "true",
            "profiles.grafana.com/cpu.port": "80",
            "profiles.grafana.com/cpu.scheme": "http://elsewhere.example/?",
        },
    ],
)
def test_what_cannot_be_followed_is_said_of_the_pod(annotations: dict[str, str]) -> None:
    with pytest.raises(TargetInvalid, match=r"^default/shop-5d8f7c9b6-x2x7p: "):
        pod_target(pod(annotations=annotations), WANTED, LABELS)


@pytest.mark.parametrize("path", ["@elsewhere.example/", "//elsewhere.example/", "\\elsewhere.example", "#"])
def test_a_path_leads_to_no_other_host(path: str) -> None:
    for url in urls(pod(annotations=ENABLED | {"profefe.com/path": path})).values():
        assert url.startswith("http://127.0.0.1:6060/")


TEXTS = st.text() | st.text(":/@?#\\[]%.a1 ")


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(SAID, TEXTS)), st.sampled_from(["10.0.0.7", "fd00::7"])
)
def test_nothing_that_annotations_say_leads_elsewhere(said: dict[str, str], address: str) -> None:
    """Any annotations give a URL of this pod, or an error."""
    scraped = {"profefe.com/enable": "true", "profiles.grafana.com/cpu.scrape": "true"}
    ports = {"profiles.grafana.com/cpu.port": "80"}
    try:
        found = urls(pod(annotations=ports | said | scraped, address=address))
    except TargetInvalid:
        return
    assert {httpx.URL(url).host for url in found.values()} == {address}
    assert {httpx.URL(url).scheme for url in found.values()} <= {"http", "https"}


@pytest.mark.parametrize(
    ("annotations", "labels", "service"),
    [
        ({"profefe.com/service": "a", "profiles.grafana.com/service_name": "b"}, {"app": "c"}, "a"),
        ({"profiles.grafana.com/service_name": "b"}, {"app": "c"}, "b"),
        ({}, {"app.kubernetes.io/name": "d", "app": "c"}, "d"),
        ({}, {"app": "c"}, "c"),
        ({}, {}, "shop"),
    ],
)
def test_the_service_is_what_the_pod_is_one_of(
    annotations: dict[str, str], labels: dict[str, str], service: str
) -> None:
    assert read(pod(annotations=ENABLED | annotations, labels=labels)).service == service


def test_of_a_pod_that_nothing_made_it_is_the_pod() -> None:
    made = pod("lonely", annotations=ENABLED)
    del made["metadata"]["ownerReferences"]
    assert read(made).service == "lonely"


def test_the_service_of_a_stateful_set_is_its_name() -> None:
    made = pod("db-0", annotations=ENABLED)
    made["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "db"}
    assert read(made).service == "db"


def test_labels_are_few_unless_more_are_asked_for() -> None:
    made = pod(annotations=ENABLED | {"team": "a"}, labels={"app.kubernetes.io/version": "1.7", "x": "y"})
    assert read(made).labels == (("namespace", "default"), ("version", "1.7"))
    every = {"on": "node", "one": "pod", "by": "annotation:team", "x": "label:x", "none": "label:none"}
    assert dict(read(made, PodLabels(every)).labels) == {
        "on": "node-a-1",
        "one": "shop-5d8f7c9b6-x2x7p",
        "by": "a",
        "x": "y",
    }


@pytest.mark.parametrize("source", ["", "label", "label:", "secret:a", "spec"])
def test_a_label_has_a_source_that_there_is(source: str) -> None:
    with pytest.raises(ValueError, match="not namespace, pod, node, label:KEY or annotation:KEY"):
        PodLabels({"a": source})


def test_a_pod_keeps_its_name() -> None:
    assert (
        pod_name(pod("a", namespace="b")) == "b/a" == read(pod("a", namespace="b", annotations=ENABLED)).name
    )
