"""Images: built from a Dockerfile on first use, and named by the hash of their content.

If there is a registry, it is asked first, and built images are pushed to it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.dockerfile import reads_context
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.build import describe_build, one_builder
from pytest_intercode.sandboxes.docker.errors import client_errors
from pytest_intercode.sandboxes.docker.image_facts import describe_images
from pytest_intercode.sandboxes.docker.platforms import (
    ImageNames,
    image_info,
    lacks_platform,
    platform_of_name,
    registry_host,
    repository_and_tag,
    without_platform,
)
from pytest_intercode.sandboxes.docker.recipes import (
    Recipe,
    layers_context,
    make_recipe,
    own_name,
    run_build,
)
from pytest_intercode.sandboxes.docker.registry import (
    REPOSITORY,
    Puller,
    Registry,
    RegistryError,
    content_of,
)
from pytest_intercode.sandboxes.docker.transfers import Transfers
from pytest_intercode.sandboxes.images import ImageFact
from pytest_intercode.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["DockerImages", "copy_image", "layers_of"]


class _ContextRead(Exception):
    """A build would read files of its context, as its base has triggers (``ONBUILD``)."""


class DockerImages:
    """Finds or builds the images that tasks name, from several threads at the same time.

    While an image is built or pulled, only the lock of that image is held, which all processes of a
    user share. An image that failed is tried only once.

    Args:
        api: the engine's client.
        settings: the replacements of base images, the registry in which our images are looked for
            first and to which they are pushed, and how much of builds is reported.
        progress: called with one line for each slow step, so that the user sees progress.
        platform: the engine's own platform; None to ask the engine.
    """

    def __init__(
        self,
        api: APIClient,
        settings: SandboxSettings | None = None,
        progress: Callable[[str], None] | None = None,
        platform: Platform | None = None,
    ) -> None:
        settings = settings or SandboxSettings()
        self._api = api
        self._replacements = settings.base_images
        self._progress = progress or (lambda line: None)
        self._verbosity = settings.verbosity
        self._names = ImageNames(api, settings.default_platform, platform)
        self._warned = False  # about emulation
        registry = settings.registry
        self.registry = Registry(api, registry, self._report) if registry else None
        self._pinned: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        self._failed: dict[str, ImageError] = {}  # by the images' names
        self._transfers = Transfers(api)
        self._puller = Puller(api, self._report)

    def _report(self, line: str, verbosity: int = 0) -> None:
        if self._verbosity >= verbosity:
            self._progress(line)

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name of an image that exists; pull or build it first if necessary."""
        name = self._resolve(source, purpose)
        if not self._warned and (warning := self._names.emulation(name)):
            self._warned = True
            self._report(warning, -1)
        return name

    def _resolve(self, source: ImageSource, purpose: str) -> str:
        if source.layers:
            base = self._resolve(replace(source, layers=()), purpose)
            return self._add_layers(base, source.layers, purpose)
        if source.image:
            original = self._replacements.get(source.image, source.image)
            name = self._names.name(original, self._names.platform_of(source))
            try:
                self._ensure(name, "image", original, source.image)
                return name
            except ImageError:
                if source.dockerfile is None:
                    raise
                self._report(f"{original} is not available: its Dockerfile is built instead")
        return self._provide_from_dockerfile(source, purpose)

    # -- what exists, as reported before a run

    def describe(self, source: ImageSource, *, built: bool = True) -> Iterator[ImageFact]:
        """Yield what is known of an image and of the images that it is made from; make nothing."""
        return describe_images(self._api, self._names, self._replacements, source, built=built)

    def pull(self, source: ImageSource) -> None:
        """Pull an image, or the images that it is built from, and build nothing.

        Raises:
            ImageError: it is not available.
        """
        if source.image:
            try:
                self._resolve(replace(source, dockerfile=None, layers=()), "")
                return
            except ImageError:
                if source.dockerfile is None:
                    raise
        self._pull_bases(self._recipe(source))

    def find_published(self, fact: ImageFact) -> tuple[str, ...]:
        """Return the platforms that an image can be pulled for; see :meth:`Puller.find_published`.

        Raises:
            ImageError: it cannot be pulled.
        """
        return self._puller.find_published(fact.replacement or fact.name)

    def stop_builds(self) -> None:
        """End the builds and pulls that are under way."""
        self._transfers.stop()

    def pinned(self, name: str) -> str:
        """Return the permanent name of an image in its registry, or nothing."""
        if name not in self._pinned:  # without the lock, which is held while images are built
            self._pinned[name] = self._find_digest(name)
        return self._pinned[name]

    def identity(self, name: str) -> str:
        """Return the engine's own digest of an image; nothing if there is none."""
        if name not in self._identities:
            self._identities[name] = str(self._inspect(name).get("Id") or "")
        return self._identities[name]

    def take(self, name: str, pinned: str) -> None:
        """Pull from the registry the same image that another engine has.

        Raises:
            ImageError: it is not available.
        """
        assert self.registry is not None, "what is pinned comes from a registry"
        self.registry.take(name, pinned)
        self._pinned[name] = pinned

    def _find_digest(self, name: str) -> str:
        """Return the digest with which an image was pulled, with its name there."""
        if name.startswith(f"{REPOSITORY}/"):  # ours, which is in no registry of this run
            return ""
        repository = f"{repository_and_tag(name)[0]}@"
        digests = [str(digest) for digest in self._inspect(name).get("RepoDigests") or ()]
        return next((digest for digest in digests if digest.startswith(repository)), "")

    def _inspect(self, name: str) -> Mapping[str, Any]:
        """Return what the engine reports about an image; nothing if it does not answer."""
        with contextlib.suppress(*client_errors()):
            return image_info(self._api, name)
        return {}

    def _provide_from_dockerfile(self, source: ImageSource, purpose: str) -> str:
        """Return the name of the image that a Dockerfile makes."""
        recipe = self._recipe(source, purpose)
        if not reads_context(recipe.text):
            # Then equal Dockerfiles make one image, whatever is in the folders next to them.
            with contextlib.suppress(_ContextRead):
                return self._provide_from_context(recipe, source, alone=True)
        return self._provide_from_context(recipe, source)

    def _recipe(self, source: ImageSource, purpose: str = "") -> Recipe:
        return make_recipe(self._api, self._names, self._replacements, source, purpose)

    def _provide_from_context(
        self, recipe: Recipe, source: ImageSource, *, alone: bool = False
    ) -> str:
        """Return the name of the image that a Dockerfile makes from a context.

        Raises:
            ImageError: it cannot be built.
            _ContextRead: it has to be built with its whole context, and ``alone`` is given.
        """
        context = recipe.context(source, alone=alone)
        content = recipe.hash(context)

        def build(tag: str) -> None:
            self._pull_bases(recipe)
            if alone and recipe.has_triggers(self._api):
                raise _ContextRead
            self._build(recipe, context, content, tag)

        return self._provide(recipe.label, content, build, recipe.platform)

    def _pull_bases(self, recipe: Recipe) -> None:
        for name, replaced in recipe.base_images:
            label = f"{without_platform(name)} of {recipe.dockerfile}"
            self._ensure(name, "base image", label, replaced)

    def _add_layers(self, base: str, layers: Sequence[Path], purpose: str) -> str:
        """Return the name of an image with tar archives on top of it."""
        data = layers_context(base, layers)
        content = hashlib.sha256(
            str(image_info(self._api, base).get("Id")).encode() + data
        ).hexdigest()
        platform = platform_of_name(base)
        recipe = Recipe(
            Path("Dockerfile"), "", changed=False, modes={}, purpose=purpose, platform=platform
        )
        build = partial(self._build, recipe, data, content)
        return self._provide("layers", content, build, platform)

    def _provide(
        self, label: str, content: str, build: Callable[[str], None], platform: Platform | None
    ) -> str:
        """Return the name of one of our images, after it is found, pulled or built.

        Args:
            label: a short name for it.
            content: the hash of its content.
            build: builds it under a name.
            platform: the platform that it is for; None for the engine's own.
        """
        name = own_name(label, content, platform)
        with one_builder(name, lambda: self._transfers.stopped), self._fail_once(name):
            if self.registry is not None:
                self._pinned[name] = self._provide_from_registry(
                    self.registry, name, label, content, build
                )
            elif not image_info(self._api, name):
                build(name)
        return name

    @contextlib.contextmanager
    def _fail_once(self, name: str) -> Iterator[None]:
        """Raise again the error that an image had before.

        Raises:
            ImageError: it is not available.
        """
        if name in self._failed:
            failure = self._failed[name]
            raise ImageError(str(failure), failure.image, failure.cause)
        try:
            yield
        except ImageError as error:
            error.image = error.image or name
            if not self._transfers.stopped:
                self._failed[name] = error
            raise

    def _provide_from_registry(
        self,
        registry: Registry,
        name: str,
        label: str,
        content: str,
        build: Callable[[str], None],
    ) -> str:
        """Pull an image from the registry, else build and push it; return its name there.

        No machine waits for another: if two machines build it at the same time, the later one takes
        what the earlier one pushed. If both push, both images are right, as their content is equal.
        """
        pinned = registry.find(name, label, content)
        if not pinned and content_of(image_info(self._api, name)) != content:
            build(name)
            pinned = registry.find(name, label, content)
        if pinned:
            return pinned
        try:
            return registry.give(name, label, content)
        except RegistryError as error:  # we may only be allowed to read
            self._report(f"{error}; other machines have to build it, too", -1)
            return ""

    def _ensure(self, name: str, kind: str, label: str, replaced: str) -> None:
        """Make sure that an image exists; pull it if it does not, once for all that need it.

        Args:
            name: the image.
            kind: what messages call it.
            label: its name in messages, with the place where it is named.
            replaced: the name that it replaces, or its own.
        """
        if image_info(self._api, name):
            return
        with one_builder(name, lambda: self._transfers.stopped), self._fail_once(name):
            if image_info(self._api, name):
                return
            try:
                with self._transfers.begin():
                    self._puller.pull(name, self._names.own)
            except RegistryError as error:
                is_own = without_platform(name) == without_platform(replaced)
                origin = "" if is_own else f", which replaces {replaced},"
                if lacks_platform(str(error)):
                    platform = platform_of_name(name) or self._names.own
                    raise ImageError(
                        f"{kind} {label}{origin} is not made for {platform}: {error}. If it is "
                        "for another processor, say so: 'platform: linux/amd64' in the suite, or "
                        "--intercode-platform=linux/amd64",
                        name,
                        f"made for another platform than {platform}",
                    ) from None
                place = self._names.describe_place(name)
                raise ImageError(
                    f"{kind} {label}{origin} is {place}: "
                    f"{error}. Load it with 'docker load' or 'docker import', or name another with "
                    f"--intercode-base-image {replaced}=REPLACEMENT",
                    name,
                    f"cannot be pulled from {registry_host(name)}",
                ) from None

    def _build(self, recipe: Recipe, context: bytes, content: str, tag: str) -> None:
        with self._transfers.begin():
            self._report(describe_build(tag, recipe.dockerfile, recipe.purpose))
            failure, last = run_build(
                self._api, recipe, context, content, tag, lambda line: self._report(line, 1)
            )
        if failure or not image_info(self._api, tag):
            lines = "".join(f"\n    {line}" for line in last)
            raise ImageError(f"{recipe.dockerfile} does not build: {failure or 'no image'}{lines}")


def layers_of(api: APIClient, name: str) -> tuple[str, ...]:
    """Return the layers of an image, which are the same on every engine; () for no image.

    Its id may differ, as engines store images in different ways.
    """
    return tuple((image_info(api, name).get("RootFS") or {}).get("Layers") or ())


def copy_image(source: APIClient, target: APIClient, name: str) -> None:
    """Copy an image from one engine to another, through this machine.

    Raises:
        ImageError: the engine cannot store it.
        docker.errors.DockerException: an engine refuses.
        requests.exceptions.RequestException: an engine is gone.
    """
    loaded = ""
    for event in target.load_image(source.get_image(name), quiet=False):  # type: ignore[no-untyped-call]
        if event.get("error"):
            raise ImageError(f"{name} cannot be stored: {event['error']}")
        _, separator, image_name = str(event.get("stream") or "").partition("Loaded image: ")
        loaded = image_name.strip().splitlines()[0] if separator and image_name.strip() else loaded
    if loaded and loaded != name and not layers_of(target, name):
        repository, _, tag = name.rpartition(":")
        target.tag(loaded, repository or name, tag if repository else "latest", force=True)
