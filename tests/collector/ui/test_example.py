"""The example that a click on the page of the fleet loads, and another one removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.visitor import Visitor
from tests.faults.stacks import profile_of, tally
from tests.server import Server


def test_each_page_has_something_to_show_until_it_is_removed(server: Server) -> None:
    visitor = Visitor(server)
    assert "Load an example" in visitor.page("/ui/").text
    for _ in range(2):  # the second click changes nothing
        assert visitor.post("/ui/example").status_code == 303
    page = visitor.page("/ui/")
    assert "example-api and example-etl are an example" in page.text
    assert "Load an example" not in page.text
    profiles = server.ask("/v1/profiles", service="example-api").json()["profiles"]
    assert {each["labels"]["version"] for each in profiles} == {"1.0", "1.1"}
    assert len({each["time"][:10] for each in profiles}) == 10
    assert len(profiles) == 20
    for service, pages in (
        ("example-api", ("", "/top", "/live", "/build", "/series?function=net/http.(*conn).serve")),
        ("example-etl", ("", "/top", "/live", "/build")),
    ):
        for each in pages:
            assert "No matching profiles" not in visitor.page(f"/ui/services/{service}{each}").text
    diff = visitor.page(
        "/ui/services/example-api/diff", labels="version=1.1", base_labels="version=1.0", last="30d"
    )
    assert "No matching profiles" not in diff.text
    assert visitor.post("/ui/example/remove").status_code == 303
    assert "Load an example" in visitor.page("/ui/").text
    assert not server.blobs()


def test_profiles_that_programs_have_sent_stay(server: Server) -> None:
    """Also those of a service that has the example's name."""
    visitor = Visitor(server)
    visitor.post("/ui/example")
    for service in ("shop", "example-api"):
        assert server.submit(profile_of(service), query={"service": service}).status_code == 204
    visitor.post("/ui/example/remove")
    for service in ("shop", "example-api"):
        assert tally(server.merge(query={"service": service}).content) == {service: 1}
    assert "example-api is an example" not in visitor.page("/ui/").text


@pytest.mark.any_store
def test_only_who_sees_all_of_it_can_load_or_remove_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.merge_keys.write_text(f"{Server.merge_key}\nof-one service=example-api\n")
    with server:
        visitor, other = Visitor(server, "of-one"), Visitor(server)
        assert "Load an example" not in visitor.page("/ui/").text
        assert other.post("/ui/example", Sec_Fetch_Site="cross-site").status_code == 403
        for path in ("/ui/example", "/ui/example/remove"):
            assert visitor.post(path).status_code == 403
            assert Visitor(server, None).post(path).status_code == 303  # to sign in
        assert not server.blobs()
        other.post("/ui/example")
        assert "Remove it" in other.page("/ui/").text
        assert "Remove it" not in visitor.page("/ui/").text
