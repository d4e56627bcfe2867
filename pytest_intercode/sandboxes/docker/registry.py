"""Our images in a registry, where machines that did not build them find them.

Each is a tag of one repository, ``HOST[:PORT][/PREFIX]/pytest-intercode``: its short name, the hash
of its whole content, and the kind of processor. Only the engine talks to the registry; the
credentials are those of ``docker login``, and no text contains them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.errors import client_errors, plain
from pytest_intercode.sandboxes.docker.platforms import (
    engine_platform,
    image_info,
    image_platform,
    keeps_platforms,
    platform_of_name,
    published_platform,
    registry_host,
    repository_and_tag,
    without_platform,
)

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    *("CONTENT_LABEL", "REPOSITORY", "Puller", "Registry", "RegistryError", "content_of"),
    "pull",
]

CONTENT_LABEL = "pytest-intercode.content"
"""The label of our images with the full hash of their content."""

REPOSITORY = "pytest-intercode"
"""The name of our images on an engine, and the end of their name in a registry."""

_OPTION = "--intercode-registry"
_MAX_LABEL = 40  # characters of a name in a tag, which has 128 at most
_MAX_MESSAGE = 300  # characters of an engine's message, which may contain a whole page
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The words of registries, to which an engine adds more.
_MISSING = re.compile(
    r"manifest unknown|name unknown|name not known|"
    r"\b(?:manifest|artifact|repository|image|tag)\b[^,;]{0,300}\bnot found"
)
_DENIED = ("unauthorized", "denied", "authentication required", "no basic auth credentials")
_TRANSFERS = ("Pulling fs layer", "Copying blob")
# The messages of engines if a registry does not answer, or refuses everybody for a while.
_SILENT = re.compile(
    r"dial tcp|no such host|timeout|deadline exceeded|connection refused|toomanyrequests|rate limit"
)


class RegistryError(ImageError):
    """A registry does not answer, refuses us, or has an image that is not ours.

    Attributes:
        missing: the only problem is that the image does not exist.
        denied: the registry denies access.
        silent: the registry does not answer, whatever the request.
    """

    def __init__(
        self, message: str, *, missing: bool = False, denied: bool = False, silent: bool = False
    ) -> None:
        super().__init__(message)
        self.missing = missing
        self.denied = denied
        self.silent = silent


def pull(
    api: APIClient,
    repository: str,
    tag: str,
    on_transfer: Callable[[], object] = lambda: None,
    platform: Platform | None = None,
) -> str:
    """Pull an image; return its digest in the registry, or nothing if that is not reported.

    Args:
        api: the engine's client.
        repository: the image's name without its tag.
        tag: the tag, or the digest.
        on_transfer: called once if there is something to transfer.
        platform: the platform for which it is pulled; None for the engine's own.

    Raises:
        RegistryError: it cannot be pulled; the text is the engine's.
    """
    digest, transferring = "", False
    platform_text = None if platform is None else str(platform)
    for event in _events(
        lambda: api.pull(repository, tag=tag, stream=True, decode=True, platform=platform_text)
    ):
        status = str(event.get("status") or "")
        if not transferring and status.startswith(_TRANSFERS):
            transferring = True
            on_transfer()
        match = _DIGEST.search(status) if status.startswith("Digest:") else None
        digest = match[0] if match else digest
    return digest


class Puller:
    """Pulls images from any registry; a registry that has never answered is asked only once.

    So a dataset of several hundred images costs one timeout if there is no network.

    Args:
        api: the engine's client.
        progress: called with one line.
    """

    def __init__(self, api: APIClient, progress: Callable[[str], None]) -> None:
        self._api = api
        self._progress = progress
        self._answered: set[str] = set()  # hosts of registries
        self._silent: dict[str, RegistryError] = {}  # why a host is not asked again, by the host

    def pull(self, name: str, own_platform: Platform) -> None:
        """Pull an image.

        Raises:
            RegistryError: it cannot be pulled; the text is the engine's.
        """
        with self._remembering(registry_host(name)):
            _pull_image(self._api, name, own_platform, self._progress)

    def find_published(self, name: str) -> tuple[str, ...]:
        """Return the platforms that an image can be pulled for; nothing if that is not known.

        The engine asks the registry, and pulls nothing.

        Raises:
            RegistryError: it cannot be pulled; the text is the engine's.
        """
        with self._remembering(registry_host(name)):
            return _find_published(self._api, name)

    @contextlib.contextmanager
    def _remembering(self, host: str) -> Iterator[None]:
        """Remember whether a registry answers.

        Raises:
            RegistryError: the registry did not answer before.
        """
        if host in self._silent:
            raise RegistryError(str(self._silent[host]), silent=True)
        try:
            yield
        except RegistryError as error:
            if not error.silent:
                self._answered.add(host)
            elif host not in self._answered:
                self._silent[host] = error
            raise
        self._answered.add(host)


def _pull_image(
    api: APIClient, name: str, own_platform: Platform, progress: Callable[[str], None]
) -> None:
    """Pull an image; if its name has a platform, pull its own name, and restore that afterwards.

    Args:
        api: the engine's client.
        name: the image's name.
        own_platform: the engine's own platform.
        progress: called with one line.

    Raises:
        RegistryError: it cannot be pulled; the text is the engine's.
    """
    platform = platform_of_name(name)
    if platform is None:
        its_platform = published_platform(name)
        its_platform = None if its_platform == own_platform else its_platform
        progress(f"pulling {name} (first use)")
        pull(api, *repository_and_tag(name), platform=its_platform)
        return
    original = without_platform(name)
    previous = image_info(api, original)
    try:
        if image_platform(previous) == platform:
            api.tag(original, *repository_and_tag(name), force=True)
            return
        progress(f"pulling {original} for {platform} (first use)")
        try:
            pull(api, *repository_and_tag(original), platform=platform)
            _check_platform(api, original, platform)
            api.tag(original, *repository_and_tag(name), force=True)
        finally:
            _give_back(api, original, previous)
    except client_errors() as error:
        raise RegistryError(plain(error)) from None


def _check_platform(api: APIClient, name: str, platform: Platform) -> None:
    """Check the platform of a pulled image: a registry with only one platform delivers that one.

    Raises:
        RegistryError: it is for another platform.
    """
    actual = image_platform(image_info(api, name))
    if actual != platform and not keeps_platforms(api.info()):
        raise RegistryError(f"no matching manifest for {platform}, but for {actual}")


def _give_back(api: APIClient, name: str, previous: Mapping[str, Any]) -> None:
    """Give a name back to the image from which a pull for another platform has taken it.

    Args:
        api: the engine's client.
        name: the name.
        previous: what the engine reported about the image before; empty if there was none.
    """
    current_id = image_info(api, name).get("Id")
    if current_id == previous.get("Id") or "@" in name:
        return
    if previous:
        api.tag(str(previous["Id"]), *repository_and_tag(name), force=True)
    else:
        api.remove_image(name, noprune=True)


def _events(ask: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the engine's messages while it works; an error may be the first one, or come later."""
    try:
        for event in ask():
            if event.get("error"):
                raise _registry_error(" ".join(str(event["error"]).split()))
            yield event
    except client_errors() as error:
        raise _registry_error(plain(error)) from None


def _registry_error(message: str) -> RegistryError:
    message, words = message[:_MAX_MESSAGE], message.lower()
    denied = any(phrase in words for phrase in _DENIED)
    missing = not denied and bool(_MISSING.search(words))
    silent = not (denied or missing) and bool(_SILENT.search(words))
    return RegistryError(message, missing=missing, denied=denied, silent=silent)


def _find_published(api: APIClient, name: str) -> tuple[str, ...]:
    """Return the platforms for which a registry has an image; see :meth:`Puller.find_published`."""
    try:
        answer: dict[str, Any] = api.inspect_distribution(without_platform(name))  # type: ignore[no-untyped-call]
    except client_errors() as error:
        problem = _registry_error(plain(error))
        if not (problem.missing or problem.denied or problem.silent):
            return ()  # an engine that cannot be asked, such as older Podman
        raise problem from None
    platforms = []
    for platform in answer.get("Platforms") or ():
        words = (platform.get("os"), platform.get("architecture"), platform.get("variant"))
        if "unknown" not in words:  # attestations are listed as well
            platforms.append("/".join(filter(None, words)))
    return tuple(platforms)


def content_of(image: Mapping[str, Any]) -> str:
    """Return the hash in an image's label; empty if it has none.

    Args:
        image: what the engine reports about it.
    """
    return str(((image.get("Config") or {}).get("Labels") or {}).get(CONTENT_LABEL) or "")


class Registry:
    """A registry of images, which one engine uses.

    Args:
        api: the engine's client.
        address: ``HOST[:PORT][/PREFIX]``.
        progress: called with one line for each slow step.
    """

    def __init__(
        self, api: APIClient, address: str, progress: Callable[[str], None] = lambda line: None
    ) -> None:
        self._api = api
        self._address = address
        self._progress = progress
        self.repository = f"{address}/{REPOSITORY}"

    def problem(self) -> str:
        """Return why it cannot be used, or nothing."""
        try:
            self._pull_tag("none")
        except RegistryError as error:
            return str(error)
        return ""

    def find(self, name: str, label: str, content: str) -> str:
        """Pull an image, if the registry has it.

        Args:
            name: its name on this engine afterwards.
            label: its short name.
            content: the hash of its content.

        Returns:
            Its permanent name there (``REPOSITORY@sha256:...``); nothing if it is missing.

        Raises:
            RegistryError: the registry does not answer, or has another image by this name.
        """
        platform = platform_of_name(name)
        tag = self._tag(label, content, platform)
        digest = self._pull_tag(tag, platform)
        if digest is None:
            return ""
        tagged_name = f"{self.repository}:{tag}"
        image = self._inspect(tagged_name)
        if (found_content := content_of(image)) != content:
            raise RegistryError(
                f"{tagged_name} is not the image that its tag names (made of "
                f"{found_content[:12]!r}): remove it from the registry"
            )
        self._name(tagged_name, name)
        return self._pin(image, digest)

    def take(self, name: str, pinned: str) -> None:
        """Pull the same image that another engine got from this registry.

        Args:
            name: its name on this engine afterwards.
            pinned: the result of :meth:`find` or :meth:`give` on the other engine.

        Raises:
            RegistryError: it cannot be pulled.
        """
        repository, _, digest = pinned.partition("@")
        line = f"pulling {name} by {pinned}"
        platform = platform_of_name(name)
        pull(self._api, repository, digest, lambda: self._progress(line), platform)
        self._name(pinned, name)

    def give(self, name: str, label: str, content: str) -> str:
        """Push an image; return its permanent name there, as :meth:`find` does.

        Raises:
            RegistryError: it cannot be pushed.
        """
        tag = self._tag(label, content, platform_of_name(name))
        self._name(name, f"{self.repository}:{tag}")
        self._progress(f"pushing {name} to {self.repository}")
        digest = ""
        try:
            for event in _events(
                lambda: self._api.push(self.repository, tag=tag, stream=True, decode=True)
            ):
                match = _DIGEST.search(str((event.get("aux") or {}).get("Digest")))
                digest = match[0] if match else digest
        except RegistryError as error:
            raise RegistryError(f"{name} cannot be pushed to {self.repository}: {error}") from None
        return self._pin(self._inspect(name), digest)

    # -- parts of these methods

    def _pull_tag(self, tag: str, platform: Platform | None = None) -> str | None:
        """Pull a tag; return its digest, or None if the tag does not exist."""
        line = f"pulling {self.repository}:{tag} (first use)"
        try:
            return pull(self._api, self.repository, tag, lambda: self._progress(line), platform)
        except RegistryError as error:
            if error.missing:
                return None
            if not error.denied:
                raise RegistryError(
                    f"the registry {self._address} does not answer: {error}. Fix that, or "
                    f"remove {_OPTION}: images are then built here"
                ) from None
            if self._has_credentials():  # for a missing tag, some registries only report this
                return None
            raise RegistryError(
                f"the registry {self._address} denies access: {error}. Set credentials with "
                f"'docker login {self._address.partition('/')[0]}'",
                denied=True,
            ) from None

    def _has_credentials(self) -> bool:
        from docker.auth import get_config_header
        from docker.errors import DockerException

        try:
            return get_config_header(self._api, self._address.partition("/")[0]) is not None
        except DockerException as error:
            raise RegistryError(f"the credentials of {self._address}: {plain(error)}") from None

    def _tag(self, label: str, content: str, platform: Platform | None) -> str:
        kind = str(platform or self._own_platform).removeprefix("linux/").replace("/", "-")
        return f"{label[:_MAX_LABEL]}-{content}-{kind}"

    @cached_property
    def _own_platform(self) -> Platform:
        return engine_platform(self._call(self._api.version))

    def _inspect(self, name: str) -> dict[str, Any]:
        image: dict[str, Any] = self._call(lambda: self._api.inspect_image(name))  # type: ignore[no-untyped-call]
        return image

    def _name(self, name: str, new_name: str) -> None:
        """Give an image another name."""
        repository, _, tag = new_name.rpartition(":")
        self._call(lambda: self._api.tag(name, repository, tag, force=True))

    def _call(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except client_errors() as error:
            raise RegistryError(plain(error)) from None

    def _pin(self, image: dict[str, Any], digest: str) -> str:
        """Return the name of an image with its digest in the registry."""
        prefix = f"{self.repository}@"
        digests = [digest for digest in image.get("RepoDigests") or () if digest.startswith(prefix)]
        return f"{prefix}{digest}" if digest else next(iter(digests), "")
