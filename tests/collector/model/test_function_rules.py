"""Rules for metrics of functions: what a file says, and how each fault of one is told."""

from __future__ import annotations

import pytest
from pgo_collector.errors import FunctionRulesInvalid
from pgo_collector.model.function_rules import (
    LARGEST_FILE,
    MOST_RULES,
    FunctionPattern,
    parse_function_rules,
)
from pgo_collector.model.series import Series

pytestmark = pytest.mark.any_store

RULE = "[[rule]]\nname = 'json'\nfunction = '^encoding/json'\n"


def test_a_rule_selects_by_service_type_and_labels() -> None:
    (plain, every) = parse_function_rules(
        f"{RULE}\n[[rule]]\nname = 'locks'\npackage = '^sync$'\nservice = 'shop,api-*'\ntype = 'offcpu'\n"
        "labels = 'region=eu|us,version!=1.4'\nby = 'k8s.pod'\n".encode()
    )
    assert plain.pattern == FunctionPattern("function", "^encoding/json")
    assert every.pattern == FunctionPattern("package", "^sync$")
    assert (plain.label_names, every.label_names) == (("service",), ("service", "k8s_pod"))
    assert [*plain.metrics] == [
        "pgo_function_json_seconds_total",
        "pgo_function_json_self_seconds_total",
        "pgo_function_json_profiled_seconds_total",
        "pgo_function_json_share",
    ]
    eu = (("region", "eu"),)
    assert plain.selects(Series("any", "cpu", eu))
    assert not plain.selects(Series("any", "offcpu", eu))
    for service, labels, is_selected in (
        ("shop", eu, True),
        ("api-2", (("region", "us"), ("version", "1.5")), True),
        ("shop2", eu, False),
        ("shop", (), False),
        ("shop", (*eu, ("version", "1.4")), False),
    ):
        assert every.selects(Series(service, "offcpu", labels)) == is_selected


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("version", "version"),
        ("instance", "profiled_instance"),
        ("job", "profiled_job"),
        ("service", "profiled_service"),
        ("__name__", "profiled___name__"),
        ("1st", "profiled_1st"),
        ("größe", "gr__e"),
    ],
)
def test_the_label_of_a_metric_is_one_that_prometheus_takes(key: str, name: str) -> None:
    (rule,) = parse_function_rules(f"{RULE}by = '{key}'".encode())
    assert rule.label_names == ("service", name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rule", "it isn't TOML: Expected '=' after a key in a key/value pair (at end of document)"),
        ("\xff", "it isn't TOML: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        ("a = " + "[" * 30_000, "it isn't TOML: maximum recursion depth exceeded"),
        ("rules = []", "'rules' isn't a rule: begin each with [[rule]]"),
        ("[rule]\nname = 'a'", "'rule' isn't a rule: begin each with [[rule]]"),
        ("rule = ['a']", "rule 1: a rule is a table, with name and function or package"),
        (f"\n{RULE}function_ = 'a'", "line 2: a rule has no 'function_'; it has name, function, package"),
        (f"{RULE}type = 3", "line 1: type has to be a text with a character or more"),
        (f"{RULE}by = ''", "line 1: by has to be a text with a character or more"),
        (f"{RULE}package = '^a$'", "line 1: give function or package, a regular expression, and not both"),
        ("[[rule]]\nname = 'a'", "line 1: give function or package, a regular expression, and not both"),
        ("[[rule]]\nfunction = 'a'", "line 1: name='': give a name of letters, digits and _"),
        (RULE.replace("json'", "j:n'", 1), "line 1: name='j:n': give a name of letters, digits and _"),
        (RULE.replace("json'", f"{'j' * 101}'", 1), "of up to 100 characters"),
        (
            f"{RULE}type = 'heap'",
            "line 1: type='heap': its profiles aren't amounts of time; give one of cpu,",
        ),
        (f"{RULE}service = 'a b'", "line 1: service='a b': give names of services, or patterns with *"),
        (
            f"{RULE}labels = 'region'",
            "line 1: labels: 'region': write key=value, key!=value or key=one|another",
        ),
        (RULE.replace("^encoding/json", "("), "line 1: the regular expression '(' can't be used: missing )"),
        (RULE.replace("^encoding/json", "(a{100}){100}"), "line 1: the regular expression"),
        (RULE.replace("^encoding/json", "a" * 1001), "line 1: a regular expression is longer than 1,000"),
        (RULE + RULE, "line 4: the rule at line 1 has the metric pgo_function_json_seconds_total, too"),
        (
            RULE + RULE.replace("json'", "json_self'", 1),
            "line 4: the rule at line 1 has the metric pgo_function_json_self_seconds_total, too",
        ),
        (
            "".join(RULE.replace("json'", f"j{number}'", 1) for number in range(MOST_RULES + 1)),
            f"line {3 * MOST_RULES + 1}: {MOST_RULES + 1} rules; the limit is {MOST_RULES}",
        ),
        ("#" * (LARGEST_FILE + 1), "it has 65,537 bytes; the limit is 65,536"),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(FunctionRulesInvalid) as caught:
        parse_function_rules(text.encode("latin-1"))
    assert reason in str(caught.value)


def test_a_file_may_have_as_many_rules_as_are_allowed_or_none() -> None:
    rules = "".join(RULE.replace("json'", f"j{number}'", 1) for number in range(MOST_RULES))
    assert len(parse_function_rules(rules.encode())) == MOST_RULES
    assert parse_function_rules(b"# none\n") == ()
