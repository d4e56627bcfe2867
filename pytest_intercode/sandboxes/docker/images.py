"""Images: built from a Dockerfile when first used, and known by the hash of what went in.

Where there is a registry, it is asked first, and gets what was built.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import io
import os
import posixpath
import re
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.files import cache_folder
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.errors import plain
from pytest_intercode.sandboxes.docker.registry import (
    CONTENT_LABEL,
    Registry,
    RegistryError,
    content_of,
    pull,
)
from pytest_intercode.suites.files import context_files
from pytest_intercode.suites.harbor.dockerfile import bases, standing_for

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    "Images",
    "build_context",
    "copied_modes",
    "copy_image",
    "layers_of",
    "replaced_bases",
]

_REPOSITORY = "pytest-intercode"
_FROM = re.compile(r"^\s*ARG\s+BASE=(\S+)", re.IGNORECASE | re.MULTILINE)
_FROM_LINE = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--platform=\S+[ \t]+)?(\S+)", re.IGNORECASE | re.MULTILINE
)
_CHMOD = re.compile(
    r"^([ \t]*(?:COPY|ADD)[ \t]+(?:--chown=\S+[ \t]+)?)--chmod=0?([0-7]{3,4})[ \t]+(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_LAST_LINES = 12


class Images:
    """Finds or builds the images that tasks name.

    Args:
        api: the engine's client.
        replacements: base images to use in place of others (``--intercode-base-image``).
        progress: called with one line for each step of a build, so that a person sees it move.
        registry: where images of ours are looked for first, and pushed to
            (``--intercode-registry``).
    """

    def __init__(
        self,
        api: APIClient,
        replacements: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        registry: str | None = None,
    ) -> None:
        self._api = api
        self._replacements = dict(replacements or {})
        self._progress = progress or (lambda line: None)
        self.registry = Registry(api, registry, self._progress) if registry else None
        self._pinned: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        self._known: dict[ImageSource, str | ImageError] = {}
        self._lock = threading.Lock()

    def resolve(self, source: ImageSource) -> str:
        """Return the name of an image that is there, building it first if need be.

        Raises:
            ImageError: it cannot be built or found; once for all tasks that use it.
        """
        with self._lock:
            if source not in self._known:
                try:
                    self._known[source] = self._find_or_build(source)
                except ImageError as error:
                    self._known[source] = error
            found = self._known[source]
        if isinstance(found, ImageError):
            raise ImageError(str(found)) from None
        return found

    def pinned(self, name: str) -> str:
        """Return what names an image in its registry for ever (``NAME@sha256:...``), or nothing.

        Args:
            name: what :meth:`resolve` returned.
        """
        if name not in self._pinned:  # without the lock, which is held while images are built
            self._pinned[name] = self._named_by_digest(name)
        return self._pinned[name]

    def identity(self, name: str) -> str:
        """Return the engine's own digest of an image; nothing where there is none."""
        if name not in self._identities:
            self._identities[name] = str(self._inspected(name).get("Id") or "")
        return self._identities[name]

    def take(self, name: str, pinned: str) -> None:
        """Pull the image that another engine has from the registry.

        Raises:
            ImageError: it cannot be had.
        """
        assert self.registry is not None, "what is pinned comes from a registry"
        self.registry.take(name, pinned)
        self._pinned[name] = pinned

    def _named_by_digest(self, name: str) -> str:
        """Return the digest that an image was pulled by, with the name that it has there."""
        if name.startswith(f"{_REPOSITORY}/"):  # ours, and in no registry of this run
            return ""
        repository = f"{_repository_and_tag(name)[0]}@"
        named = [str(each) for each in self._inspected(name).get("RepoDigests") or ()]
        return next((each for each in named if each.startswith(repository)), "")

    def _inspected(self, name: str) -> Mapping[str, Any]:
        """Return what the engine says of an image; nothing if it does not."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        with contextlib.suppress(DockerException, RequestException):
            return _facts(self._api, name)
        return {}

    def _find_or_build(self, source: ImageSource) -> str:
        if source.layers:
            return self._laid_over(self._find_or_build(replace(source, layers=())), source.layers)
        if source.image:
            name = self._replacements.get(source.image, source.image)
            try:
                self._ensure(name, f"image {name}")
                return name
            except ImageError:
                if source.dockerfile is None:
                    raise
                self._progress(f"{name} cannot be had: its Dockerfile is built instead")
        assert source.dockerfile is not None, "an image comes from a Dockerfile or has a name"
        context, base, named = self._prepare(source)
        content = hashlib.sha256(f"{base}\n".encode() + context).hexdigest()
        label = re.sub(r"[^a-z0-9_.-]", "-", source.dockerfile.name.lower())
        label = label.removesuffix(".dockerfile").strip("-.") or "image"
        build = partial(self._build, source.dockerfile, context, content, base=base, named=named)
        return self._had(label, content, build)

    def _laid_over(self, base: str, layers: Sequence[Path]) -> str:
        """Return the name of an image with tar archives laid over it."""
        lines = [f"FROM {base}", *(f"ADD {at}.tar /" for at in range(len(layers)))]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as context:
            _add(context, "Dockerfile", "\n".join(lines).encode())
            for at, layer in enumerate(layers):
                try:
                    _add(context, f"{at}.tar", layer.read_bytes())
                except OSError as error:
                    raise ImageError(f"{layer}: cannot be read: {error.strerror}") from None
        data = buffer.getvalue()
        content = hashlib.sha256(str(_facts(self._api, base).get("Id")).encode() + data).hexdigest()
        return self._had("layers", content, partial(self._build, Path("Dockerfile"), data, content))

    def _had(self, label: str, content: str, build: Callable[[str], None]) -> str:
        """Return the name of an image of ours, which is there, pulled or built.

        Args:
            label: what it is called in short.
            content: the hash of what goes into it.
            build: builds it under a name.
        """
        name = f"{_REPOSITORY}/{label}:{content[:12]}"
        with _one_builder(name):
            if self.registry is not None:
                self._pinned[name] = self._shared(self.registry, name, label, content, build)
            elif not _facts(self._api, name):
                build(name)
        return name

    def _shared(
        self,
        registry: Registry,
        name: str,
        label: str,
        content: str,
        build: Callable[[str], None],
    ) -> str:
        """Have an image from the registry, else build it and push it; return what names it there.

        Nobody waits for anybody: of two machines that build at a time, the later one takes what the
        earlier one pushed. Where both push, either is right, as both were made of the same.
        """
        found = registry.find(name, label, content)
        if not found and content_of(_facts(self._api, name)) != content:
            build(name)
            found = registry.find(name, label, content)
        if found:
            return found
        try:
            return registry.give(name, label, content)
        except RegistryError as error:  # we may be let read it alone
            self._progress(f"{error}; other machines have to build it, too")
            return ""

    def _prepare(self, source: ImageSource) -> tuple[bytes, str, list[tuple[str, str]]]:
        """Return a Dockerfile's build context as a tar archive, and its base images.

        Base images have a second name for messages, with that of the Dockerfile.

        A base image is a build argument of ours, or else what a FROM line names; these lines are
        rewritten where another image is to take its place.
        """
        dockerfile, text = source.dockerfile, source.text
        assert dockerfile is not None
        try:
            text = text or dockerfile.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ImageError(f"{dockerfile}: cannot be read: {error}") from None
        found = _FROM.search(text)
        base = found[1] if found else ""
        base = self._replacements.get(base, base)
        standing = standing_for(
            text, self._replacements, lambda name: bool(_facts(self._api, name))
        )
        rebased = replaced_bases(text, {**self._replacements, **standing})
        rebased, modes = copied_modes(rebased)
        changed = rebased if source.text or rebased != text else None
        context = build_context(dockerfile, source.context, changed, modes)
        written = {plain: f"{plain} (for {name})" for name, plain in standing.items()}
        named = [] if base else [(name, written.get(name, name)) for name in bases(rebased)]
        return context, base, named

    def _ensure(self, name: str, what: str) -> None:
        """Make sure that an image is there, pulling it if it is not."""
        if _facts(self._api, name):
            return
        self._progress(f"pulling {name} (first use)")
        try:
            pull(self._api, *_repository_and_tag(name))
        except RegistryError as error:
            raise ImageError(
                f"{what} is not on this machine and cannot be pulled: {error}. "
                "Load it with 'docker load' or 'docker import', or name another with "
                f"--intercode-base-image {name}=REPLACEMENT"
            ) from None

    def _build(
        self,
        dockerfile: Path,
        context: bytes,
        content: str,
        tag: str,
        base: str = "",
        named: Iterable[tuple[str, str]] = (),
    ) -> None:
        from docker.errors import APIError
        from requests.exceptions import RequestException

        if base:
            self._ensure(base, f"base image {base} of {dockerfile.name}")
        for name, shown in named:
            self._ensure(name, f"base image {shown} of {dockerfile}")
        self._progress(f"building {tag} from {dockerfile.name} (first use)")
        last: deque[str] = deque(maxlen=_LAST_LINES)
        failure = ""
        try:
            stream: Iterator[dict[str, Any]] = self._api.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                dockerfile=dockerfile.name,
                tag=tag,
                buildargs={"BASE": base} if base else {},
                rm=True,
                forcerm=True,
                decode=True,
                labels={f"{_REPOSITORY}.image": dockerfile.name, CONTENT_LABEL: content},
                timeout=1800,
            )
            for event in stream:
                for line in str(event.get("stream") or "").splitlines():
                    if not line.strip():
                        continue
                    last.append(line.rstrip())
                    step = _STEP.match(line)
                    if step:
                        self._progress(f"  step {step[1]}/{step[2]}: {step[3][:90]}")
                failure = failure or str(event.get("error") or "")
        except (APIError, RequestException) as error:
            failure = plain(error)
        if failure or not _facts(self._api, tag):
            lines = "".join(f"\n    {line}" for line in last)
            raise ImageError(f"{dockerfile} does not build: {failure or 'no image'}{lines}")


def _repository_and_tag(name: str) -> tuple[str, str]:
    """Return the halves of an image's name; a digest is its tag."""
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    repository, _, tag = name.rpartition(":")
    return (name, "latest") if not repository or "/" in tag else (repository, tag)


def layers_of(api: APIClient, name: str) -> tuple[str, ...]:
    """Return the layers of an image, by which it is the same on every engine; () for no image.

    Its id may differ, as engines store images in several ways.
    """
    return tuple((_facts(api, name).get("RootFS") or {}).get("Layers") or ())


def _facts(api: APIClient, name: str) -> Mapping[str, Any]:
    """Return what an engine says of an image; nothing for no image."""
    from docker.errors import ImageNotFound

    try:
        found: Mapping[str, Any] = api.inspect_image(name) if name else {}  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return {}
    return found


def copy_image(theirs: APIClient, ours: APIClient, name: str) -> None:
    """Copy an image from one engine to another, through this machine.

    Raises:
        ImageError: the engine cannot store it.
        docker.errors.DockerException: an engine refuses.
        requests.exceptions.RequestException: an engine is gone.
    """
    loaded = ""
    for event in ours.load_image(theirs.get_image(name), quiet=False):  # type: ignore[no-untyped-call]
        if event.get("error"):
            raise ImageError(f"{name} cannot be stored: {event['error']}")
        _, found, told = str(event.get("stream") or "").partition("Loaded image: ")
        loaded = told.strip().splitlines()[0] if found and told.strip() else loaded
    if loaded and loaded != name and not layers_of(ours, name):
        repository, _, tag = name.rpartition(":")
        ours.tag(loaded, repository or name, tag if repository else "latest", force=True)


def replaced_bases(text: str, replacements: Mapping[str, str]) -> str:
    """Return a Dockerfile whose FROM lines name other images."""

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        return found[0].replace(name, replacements.get(name, name), 1)

    return _FROM_LINE.sub(replaced, text)


def copied_modes(text: str) -> tuple[str, dict[str, int]]:
    """Return a Dockerfile without ``--chmod``, and the modes of what is copied with it.

    The builder that the engine's API has does not know the option, so the files of the context get
    the modes.
    """
    modes: dict[str, int] = {}

    def plain(found: re.Match[str]) -> str:
        words = found[3].split()
        for name in words[:-1]:
            if not name.startswith("--"):
                modes[posixpath.normpath(name)] = int(found[2], 8)
        return f"{found[1]}{found[3]}"

    return _CHMOD.sub(plain, text), modes


def build_context(
    dockerfile: Path,
    more: Iterable[tuple[str, Path]] = (),
    text: str | None = None,
    modes: Mapping[str, int] | None = None,
) -> bytes:
    """Return what a build may use as a tar archive, which depends on names, modes and bytes alone.

    Args:
        dockerfile: the Dockerfile.
        more: further files, by their names there.
        text: what is built in place of the Dockerfile's own text; None for that.
        modes: modes of files by their names there, which may be patterns or folders.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in (*context_files(dockerfile), *more):
            try:
                data = path.read_bytes()
            except OSError as error:
                raise ImageError(f"{path}: cannot be read: {error.strerror}") from None
            if path == dockerfile and text is not None:
                data = text.encode()
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            for pattern, other in (modes or {}).items():
                if fnmatch.fnmatch(name, pattern) or f"{name}/".startswith(f"{pattern}/"):
                    mode = other
            _add(archive, name, data, mode)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


@contextlib.contextmanager
def _one_builder(tag: str) -> Iterator[None]:
    """Let only one process of this user build a given image at a time (think of xdist)."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{folder} is needed for the locks of image builds: {error}") from None
    path = folder / (re.sub(r"[^a-z0-9]", "-", tag) + ".lock")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
