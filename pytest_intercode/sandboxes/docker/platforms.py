"""The platforms of images: which one an engine has, and how images for others are named.

An engine keeps one image under a name (newer ones keep one for each platform). So that images are
not confused, an image for another platform than the engine's gets a further tag in the same
repository, with the platform in it: ``debian:12.linux-arm64``. Its own name stays with the image
that had it before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.platforms import Platform, parse_platform, platform_of_machine
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.errors import plain

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    *("ImageNames", "engine_platform", "image_info", "image_platform", "keeps_platforms"),
    *("lacks_platform", "name_for_platform", "platform_of_name", "published_platform"),
    *("registry_host", "repository_and_tag", "without_platform"),
]

_SUFFIX = re.compile(r"\.linux-([a-z0-9]+)(?:-(v\d+))?$")
# Images of SWE-bench and its relatives are for one processor, which is a part of their names.
_SAID = re.compile(r"(?:^|[/.])(x86_64|arm64|aarch64)\.")
_DIGEST_TAG = re.compile(r"sha256-([0-9a-f]{64})")
# The messages of engines if a registry has an image, but not for the platform.
_OTHER_PLATFORMS = re.compile(r"no match(?:ing manifest)? for (?:platform|linux/)")


def engine_platform(facts: Mapping[str, Any]) -> Platform:
    """Return an engine's own platform.

    Args:
        facts: what the engine reports about itself (``info`` or ``version``).
    """
    return platform_of_machine(str(facts.get("Architecture") or facts.get("Arch") or ""))


def keeps_platforms(facts: Mapping[str, Any]) -> bool:
    """Whether an engine keeps an image for each platform under one name, as containerd does.

    Args:
        facts: what the engine reports about itself.
    """
    return "io.containerd.snapshotter" in str(facts.get("DriverStatus"))


def image_platform(image: Mapping[str, Any]) -> Platform | None:
    """Return the platform of an image; None if that is not known.

    Args:
        image: what an engine reports about it; empty for no image.
    """
    architecture = str(image.get("Architecture") or "")
    try:
        return parse_platform(f"linux/{architecture}/{image.get('Variant') or ''}".rstrip("/"))
    except ValueError:
        return platform_of_machine(architecture) if architecture else None


def image_info(api: APIClient, name: str) -> Mapping[str, Any]:
    """Return what an engine reports about an image; empty for no image.

    Raises:
        ImageError: this cannot be the name of an image.
    """
    from docker.errors import APIError, ImageNotFound

    try:
        info: Mapping[str, Any] = api.inspect_image(name) if name else {}  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return {}
    except APIError as error:
        if error.status_code != HTTPStatus.BAD_REQUEST:
            raise
        raise ImageError(f"{name!r} cannot be the name of an image: {plain(error)}", name) from None
    return info


def repository_and_tag(name: str) -> tuple[str, str]:
    """Return the two parts of an image's name; a digest counts as its tag."""
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    repository, _, tag = name.rpartition(":")
    return (name, "latest") if not repository or "/" in tag else (repository, tag)


def registry_host(name: str) -> str:
    """Return the host of the registry that an image is from."""
    host, slash, _ = name.partition("/")
    is_host = slash and ("." in host or ":" in host or host == "localhost")
    return host if is_host else "docker.io"


def name_for_platform(name: str, platform: Platform) -> str:
    """Return the local name of an image that is for another platform than the engine's."""
    repository, tag = repository_and_tag(name)
    suffix = str(platform).replace("/", "-")
    return f"{repository}:{tag.replace(':', '-')}.{suffix}"


def platform_of_name(name: str) -> Platform | None:
    """Return the platform in such a name; None for other names."""
    match = _SUFFIX.search(name)
    return Platform(match[1], match[2] or "") if match else None


def published_platform(name: str) -> Platform | None:
    """Return the platform in the name of a published image; None for most names."""
    match = _SAID.search(name)
    return platform_of_machine(match[1]) if match else None


def without_platform(name: str) -> str:
    """Return the name of an image in its registry."""
    repository, tag = repository_and_tag(_SUFFIX.sub("", name))
    digest = _DIGEST_TAG.fullmatch(tag)
    return f"{repository}@sha256:{digest[1]}" if digest else f"{repository}:{tag}"


def lacks_platform(message: str) -> bool:
    """Whether an engine reports that an image exists for other platforms only."""
    return bool(_OTHER_PLATFORMS.search(message))


class ImageNames:
    """The names of images on one engine, by their platforms.

    Args:
        api: the engine's client.
        default: the platform of images whose task names none; None for the engine's own.
        own: the engine's own platform; None to ask the engine.
    """

    def __init__(self, api: APIClient, default: Platform | None, own: Platform | None) -> None:
        self._api = api
        self._default = default
        self._own = own

    @cached_property
    def own(self) -> Platform:
        """The engine's own platform."""
        return self._own or engine_platform(self._api.version())

    def platform_of(self, source: ImageSource) -> Platform | None:
        """Return the platform that is given for an image; None for the engine's own."""
        return source.platform or self._default

    def other_platform_of(self, source: ImageSource) -> Platform | None:
        """Return the platform for which an image is made, if it is not the engine's own."""
        platform = self.platform_of(source)
        return None if platform in (None, self.own) else platform

    def name(self, name: str, platform: Platform | None) -> str:
        """Return the local name of an image for a platform; None is for the engine's own.

        The image's own name may belong to an image for another platform, and is not used then.
        """
        if platform is None:
            return name
        if platform == self.own and image_platform(image_info(self._api, name)) in (None, platform):
            return name
        return name_for_platform(name, platform)

    def base_name(self, name: str, written: str, platform: Platform | None) -> str:
        """Return the name of a base image.

        Args:
            name: its name in the Dockerfile.
            written: the text of ``FROM --platform``; empty if there is none.
            platform: the platform for which the image is built.
        """
        try:
            return self.name(name, parse_platform(written) if written else platform)
        except ValueError:  # the engine will report the error
            return name

    def describe_place(self, name: str) -> str:
        """Return where a missing image is that cannot be pulled, for a message."""
        platform = platform_of_name(name)
        present = image_platform(image_info(self._api, without_platform(name)))
        if platform is None or present is None:
            return "not on this machine and cannot be pulled"
        return f"on this machine for {present}, and cannot be pulled for {platform}"

    def emulation(self, name: str) -> str:
        """Return a warning about an image that the engine has to emulate, or nothing."""
        platform = platform_of_name(name) or image_platform(image_info(self._api, name))
        if platform is None or not self.own.has_to_emulate(platform):
            return ""
        return (
            f"{name} is for {platform}, but the engine is {self.own}: it runs under emulation, "
            "more slowly; times are not comparable"
        )
