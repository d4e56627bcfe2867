"""What is opened in a sandbox; and that texts which are joined do not hide each other's names."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from pytest_intercode.core.hosts import MAX_HOSTS, AllowedHosts
from pytest_intercode.sandboxes.bubblewrap import process as starter
from pytest_intercode.sandboxes.egress import process as proxy
from pytest_intercode.sandboxes.egress.plan import Names, host_lines, sockets_of
from pytest_intercode.sandboxes.inside import text_of

_OWN = [("127.88.0.1", 53), ("127.88.0.1", 3128)]


def test_names_have_listeners_of_their_own() -> None:
    hosts = AllowedHosts(["a.test", "b.test:22", "a.test:8080", "10.0.0.1:5432", "[2001:db8::1]:1"])
    listeners = sockets_of(hosts)["tcp"]
    assert listeners == sorted(
        [
            *_OWN,
            *(("127.88.0.2", port) for port in (80, 443, 8080)),
            ("127.88.0.3", 22),
            ("10.0.0.1", 5432),
            ("2001:db8::1", 1),
        ]
    )
    assert host_lines(hosts) == "127.88.0.2\ta.test\n127.88.0.3\tb.test\n"


def test_what_cannot_be_listed_takes_the_port_of_all_addresses() -> None:
    hosts = AllowedHosts(["a.test:443", "*.b.test:443", "10.0.0.0/8:5432", "2001:db8::/32"])
    listeners = sockets_of(hosts)["tcp"]
    assert listeners == sorted(
        [*_OWN, ("0.0.0.0", 443), ("0.0.0.0", 5432), ("::", 80), ("::", 443)]
    )


def test_the_most_that_a_message_carries() -> None:
    plan = sockets_of(AllowedHosts([f"h{n}.test" for n in range(MAX_HOSTS)]))
    assert len(plan["tcp"]) + len(plan["udp"]) + 3 <= 253


def test_addresses_of_names_are_found_again() -> None:
    names = Names(AllowedHosts(["a.test", "*.b.test"]))
    assert names.name_of(names.address_of("x.b.test")) == "x.b.test"
    assert names.address_of("a.test") == "127.88.0.2"
    assert names.name_of("10.0.0.1") == ""
    for n in range(5000):
        last = names.address_of(f"x{n}.b.test")
    assert last == ""  # an agent cannot fill the memory with names


@pytest.mark.parametrize(
    ("package", "modules"),
    [
        ("pytest_intercode", proxy._MODULES),
        ("pytest_intercode.sandboxes", starter._MODULES),
    ],
)
def test_no_name_is_hidden_where_texts_are_joined(package: str, modules: tuple[str, ...]) -> None:
    body = ast.parse(text_of(package, *modules)).body
    defined = [
        node.name
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    for node in body:
        if isinstance(node, ast.Assign):
            defined += [each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)]
    assert [name for name, count in Counter(defined).items() if count > 1] == []
