"""Platforms as people, engines and machines call them."""

from __future__ import annotations

import pytest

from pytest_intercode.core.platforms import Platform, parse_platform, platform_of_machine


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("linux/amd64", "linux/amd64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("amd64", "linux/amd64"),
        ("x86_64", "linux/amd64"),
        (" AArch64 ", "linux/arm64"),
        ("linux/arm/v7", "linux/arm/v7"),
        ("linux/amd64/v1", "linux/amd64"),
        ("linux/amd64/v2", "linux/amd64/v2"),
        ("linux/riscv64", "linux/riscv64"),
    ],
)
def test_a_platform_has_one_name(text: str, platform: str) -> None:
    assert str(parse_platform(text)) == platform
    assert parse_platform(platform) == parse_platform(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "linux", "linux/", "windows/amd64", "darwin/arm64", "arm64/linux", "linux/sparc"),
        *("linux/arm64/x", "linux/arm64/v8/v8", "amd64,arm64"),
    ],
)
def test_what_is_not_a_platform_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^linux/ARCHITECTURE is needed, as linux/amd64 or "):
        parse_platform(text)


def test_a_machine_says_what_it_is() -> None:
    assert platform_of_machine("x86_64") == Platform("amd64")
    assert platform_of_machine("arm64") == Platform("arm64")  # as a Mac says it
    assert platform_of_machine("armv7l") == Platform("arm", "v7")
    assert platform_of_machine("newer64") == Platform("newer64")
    assert [Platform(name).machine for name in ("amd64", "arm64", "s390x")] == [
        *("x86_64", "aarch64", "s390x")
    ]


def test_what_a_machine_has_to_emulate() -> None:
    amd64, arm64 = Platform("amd64"), Platform("arm64")
    assert arm64.has_to_emulate(amd64)
    assert amd64.has_to_emulate(arm64)
    assert not amd64.has_to_emulate(Platform("amd64", "v2"))
    assert not amd64.has_to_emulate(Platform("386"))
    assert not arm64.has_to_emulate(Platform("arm", "v7"))
    assert Platform("386").has_to_emulate(amd64)
