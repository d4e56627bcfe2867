"""Recipes for images: a Dockerfile with replaced base images, and its build by an engine."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.dockerfile import (
    find_substitutes,
    replace_bases,
    write_platforms,
)
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.build import build_context, copied_modes, read_dockerfile
from pytest_intercode.sandboxes.docker.errors import client_errors, plain
from pytest_intercode.sandboxes.docker.platforms import (
    ImageNames,
    image_info,
    name_for_platform,
)
from pytest_intercode.sandboxes.docker.registry import CONTENT_LABEL, REPOSITORY
from pytest_intercode.system.archives import add_entry

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Recipe", "layers_context", "make_recipe", "own_name", "run_build"]

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_LAST_LINES = 12


@dataclass(frozen=True)
class Recipe:
    """Everything from which an image is built.

    Attributes:
        dockerfile: the path of the Dockerfile.
        text: its text, with replaced base images.
        changed: the text differs from the file's.
        modes: modes of files by their names in the context.
        arguments: the arguments of the build.
        base_images: the images that it needs, each with the name that it replaces.
        purpose: the task that it is built for; empty if that is not known.
        platform: the platform that it is built for; None for the engine's own.
    """

    dockerfile: Path
    text: str
    changed: bool
    modes: Mapping[str, int]
    arguments: Mapping[str, str] = field(default_factory=dict)
    base_images: Sequence[tuple[str, str]] = ()
    purpose: str = ""
    platform: Platform | None = None

    @property
    def label(self) -> str:
        """A short name for the image."""
        label = re.sub(r"[^a-z0-9_.-]", "-", self.dockerfile.name.lower())
        return label.removesuffix(".dockerfile").strip("-.") or "image"

    def has_triggers(self, api: APIClient) -> bool:
        """Whether an existing base image has triggers (``ONBUILD``), which may read files."""
        infos = [image_info(api, name) for name, _ in self.base_images]
        return any((info.get("Config") or {}).get("OnBuild") for info in infos)

    def hash(self, context: bytes) -> str:
        """Return the hash of the image's content, including the context from which it is built."""
        values = " ".join(self.arguments.values())
        return hashlib.sha256(f"{values}\n".encode() + context).hexdigest()

    def context(self, source: ImageSource, *, alone: bool) -> bytes:
        """Return the context of the build, as an archive.

        Args:
            source: where the image comes from.
            alone: the Dockerfile is the only file that is used.

        Raises:
            ImageError: a file cannot be read.
        """
        text = self.text if self.changed else None
        if alone:
            return build_context(self.dockerfile, (), text, alone=True)
        return build_context(self.dockerfile, source.context, text, self.modes)


def own_name(label: str, content: str, platform: Platform | None) -> str:
    """Return the name of one of our images.

    Args:
        label: a short name for it.
        content: the hash of its content.
        platform: the platform that it is for; None for the engine's own.
    """
    name = f"{REPOSITORY}/{label}:{content[:12]}"
    return name if platform is None else name_for_platform(name, platform)


def layers_context(base: str, layers: Sequence[Path]) -> bytes:
    """Return the context of an image that is another one with tar archives on top of it.

    Raises:
        ImageError: an archive cannot be read.
    """
    lines = [f"FROM {base}", *(f"ADD {index}.tar /" for index in range(len(layers)))]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as context:
        add_entry(context, "Dockerfile", "\n".join(lines).encode())
        for number, layer in enumerate(layers):
            try:
                add_entry(context, f"{number}.tar", layer.read_bytes())
            except OSError as error:
                raise ImageError(f"{layer}: cannot be read: {error.strerror}") from None
    return buffer.getvalue()


def make_recipe(
    api: APIClient,
    names: ImageNames,
    replacements: Mapping[str, str],
    source: ImageSource,
    purpose: str = "",
) -> Recipe:
    """Return the recipe of an image, with replaced base images.

    Args:
        api: the engine's client.
        names: the names of images on that engine.
        replacements: other base images, by the names of those that they replace.
        source: where the image comes from: a Dockerfile, or an image with a Dockerfile.
        purpose: the task that it is built for.

    Raises:
        ImageError: the Dockerfile cannot be read.
    """
    dockerfile, text = source.dockerfile, source.text
    assert dockerfile is not None, "an image comes from a Dockerfile or has a name"
    original = text or read_dockerfile(dockerfile)
    platform = names.platform_of(source)
    text = write_platforms(original, str(names.own), str(platform or names.own))
    standing = find_substitutes(text, replacements, lambda name: bool(image_info(api, name)))
    rebased, arguments, bases = replace_bases(
        text,
        {**replacements, **standing},
        lambda name, written: names.base_name(name, written, platform),
    )
    rebased, modes = copied_modes(rebased)
    changed = bool(source.text) or rebased != original
    return Recipe(
        *(dockerfile, rebased, changed, modes, arguments, bases, purpose),
        platform=names.other_platform_of(source),
    )


def run_build(
    api: APIClient,
    recipe: Recipe,
    context: bytes,
    content: str,
    tag: str,
    report_step: Callable[[str], None],
) -> tuple[str, Iterable[str]]:
    """Build an image; return why it cannot be built, if so, and the last lines of the build."""
    name = recipe.dockerfile.name
    last: deque[str] = deque(maxlen=_LAST_LINES)
    failure = ""
    try:
        stream: Iterator[dict[str, Any]] = api.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            dockerfile=name,
            tag=tag,
            buildargs=dict(recipe.arguments),
            rm=True,
            forcerm=True,
            decode=True,
            labels={f"{REPOSITORY}.image": name, CONTENT_LABEL: content},
            timeout=1800,
            platform=None if recipe.platform is None else str(recipe.platform),
        )
        for event in stream:
            for line in str(event.get("stream") or "").splitlines():
                if not line.strip():
                    continue
                last.append(line.rstrip())
                step = _STEP.match(line)
                if step:
                    report_step(f"  step {step[1]}/{step[2]}: {step[3][:90]}")
            failure = failure or str(event.get("error") or "")
    except client_errors() as error:
        failure = plain(error)
    return failure, last
