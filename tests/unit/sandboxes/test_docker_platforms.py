"""Names of images for another platform than the engine's."""

from __future__ import annotations

import pytest

from pytest_intercode.core.platforms import Platform
from pytest_intercode.sandboxes.docker.platforms import (
    engine_platform,
    image_platform,
    keeps_platforms,
    lacks_platform,
    name_for_platform,
    platform_of_name,
    published_platform,
    without_platform,
)

_DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("name", "tagged", "original"),
    [
        ("debian:12", "debian:12.linux-arm64", "debian:12"),
        ("debian", "debian:latest.linux-arm64", "debian:latest"),
        ("a.b:5000/c/d:1.2", "a.b:5000/c/d:1.2.linux-arm64", "a.b:5000/c/d:1.2"),
        ("a.b:5000/c", "a.b:5000/c:latest.linux-arm64", "a.b:5000/c:latest"),
        (f"a/b@{_DIGEST}", f"a/b:sha256-{'a' * 64}.linux-arm64", f"a/b@{_DIGEST}"),
    ],
)
def test_the_name_says_the_platform(name: str, tagged: str, original: str) -> None:
    platform = Platform("arm64")
    assert name_for_platform(name, platform) == tagged
    assert platform_of_name(tagged) == platform
    assert platform_of_name(name) is None
    assert without_platform(tagged) == original
    variant = Platform("arm", "v7")
    assert platform_of_name(name_for_platform(name, variant)) == variant


def test_published_names_say_a_platform() -> None:
    names = {
        "swebench/sweb.eval.x86_64.django_1776_django-11099:latest": "linux/amd64",
        "swebench/sweb.eval.arm64.django_1776_django-11099:latest": "linux/arm64",
        "jyangballin/swesmith.x86_64.a_1776_b.0": "linux/amd64",
        "jefzda/sweap-images:1": "None",
        "debian:12": "None",
        "a/x86_64-tools:1": "None",
    }
    assert {name: str(published_platform(name)) for name in names} == names


def test_what_engines_say() -> None:
    assert engine_platform({"Architecture": "aarch64"}) == Platform("arm64")
    assert engine_platform({"Arch": "amd64"}) == Platform("amd64")
    assert image_platform({"Architecture": "arm64", "Variant": "v8"}) == Platform("arm64")
    assert image_platform({"Architecture": "arm", "Variant": "v7"}) == Platform("arm", "v7")
    assert image_platform({}) is None
    assert keeps_platforms({"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]})
    assert not keeps_platforms({"DriverStatus": [["Backing Filesystem", "extfs"]]})


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", True),
        ("no match for platform in manifest: not found", True),
        ("manifest for a:1 not found: manifest unknown", False),
        ("no space left on device", False),
    ],
)
def test_an_image_for_other_platforms_is_recognised(message: str, lacks: bool) -> None:
    assert lacks_platform(message) == lacks
