"""Which hosts may be reached: how they are written, what they match, what is no public address."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from pytest_intercode.core.hosts import WEB_PORTS, AllowedHosts, is_public, normal_name, parse_host


@pytest.mark.parametrize(
    ("written", "shown", "ports"),
    [
        ("pypi.org", "pypi.org", WEB_PORTS),
        ("PyPI.org.:443", "pypi.org:443", (443,)),
        ("localhost:5432", "localhost:5432", (5432,)),
        ("_dmarc.a-b.example:1", "_dmarc.a-b.example:1", (1,)),
        ("bücher.example", "xn--bcher-kva.example", WEB_PORTS),
        ("*.example.org:65535", "*.example.org:65535", (65535,)),
        ("10.1.2.3:80", "10.1.2.3:80", (80,)),
        ("10.0.0.0/8", "10.0.0.0/8", WEB_PORTS),
        ("10.0.0.0/8:5432", "10.0.0.0/8:5432", (5432,)),
        ("2001:DB8::1", "2001:db8::1", WEB_PORTS),
        ("[2001:db8::1]", "2001:db8::1", WEB_PORTS),
        ("[2001:db8::1]:22", "[2001:db8::1]:22", (22,)),
        ("2001:db8::/32", "2001:db8::/32", WEB_PORTS),
        ("[2001:db8::/32]:22", "[2001:db8::/32]:22", (22,)),
    ],
)
def test_a_host(written: str, shown: str, ports: tuple[int, ...]) -> None:
    host = parse_host(written)
    assert (str(host), host.ports) == (shown, ports)
    assert parse_host(shown) == host


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "HOST or HOST:PORT"),
        ("https://pypi.org", "not a URL"),
        ("me@pypi.org", "not a URL"),
        ("pypi.org/simple", "not an address or a network"),
        ("*", "not a limit"),
        ("*.", "is needed"),
        ("a.*.org", "is needed"),
        ("a..b", "is needed"),
        ("-a.org", "is needed"),
        ("a" * 64, "is needed"),
        (".".join(["a" * 60] * 5), "is needed"),
        ("a b", "is needed"),
        ("pypi.org:0", "from 1 to 65535"),
        ("pypi.org:65536", "from 1 to 65535"),
        ("pypi.org:", "from 1 to 65535"),
        ("pypi.org:٤٤٣", "from 1 to 65535"),
        ("1.2.3", "not an address"),
        ("127.1:80", "not an address"),
        ("0x7f.1", "not an address|is needed"),
        ("a.0x7f000001", "is needed"),
        ("10.0.0.1/8", "has host bits set"),
        ("[::1", "is needed"),
        ("[::1]x", "is needed"),
        ("fe80::1%eth0", "not an address"),
    ],
)
def test_what_is_no_host(written: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_host(written)


def test_what_is_allowed() -> None:
    hosts = AllowedHosts(["a.test:80", "*.b.test", "10.0.0.0/8:5432", "[2001:db8::1]:22"])
    assert hosts.allows("a.test", 80)
    assert not hosts.allows("a.test", 443)
    assert not hosts.allows("x.a.test", 80)
    assert hosts.allows("x.y.b.test", 443)
    assert not hosts.allows("b.test", 443)
    assert not hosts.allows("xb.test", 443)
    assert not hosts.allows("", 80)
    assert not hosts.allows("10.0.0.1", 5432)  # an address is none of the names
    assert hosts.allows_address(ip_address("10.9.9.9"), 5432)
    assert not hosts.allows_address(ip_address("10.9.9.9"), 80)
    assert not hosts.allows_address(ip_address("11.0.0.1"), 5432)
    assert hosts.allows_address(ip_address("2001:db8::1"), 22)
    assert not hosts.allows_address(ip_address("::ffff:10.0.0.1"), 5432)
    assert list(hosts.names()) == ["a.test"]
    assert str(hosts) == "a.test:80, *.b.test, 10.0.0.0/8:5432, [2001:db8::1]:22"


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1"),
        *("192.168.0.1", "192.0.0.192", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "168.63.129.16", "100.100.100.200"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::10.0.0.1", "2002:a00:1::"),
        *("::10.0.0.1", "2001:0:a00:1::1"),
    ],
)
def test_an_address_that_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2a00:1450::34", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
)
def test_a_public_address(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("written", ["2130706433", "127.1", "0x7f.0x1", "a.1", "0", "a..b", "a\0b"])
def test_what_resolvers_take_for_an_address_is_no_name(written: str) -> None:
    assert normal_name(written) == ""
