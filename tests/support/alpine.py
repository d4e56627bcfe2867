"""A stand-in for Alpine's image, which tests cannot have: busybox's commands, of Debian packages.

Beside busybox it has git, and what sandboxes need: bash, setpriv, GNU's find, and the libraries of
these four. It is mapped as a base image is: ``--intercode-base-image alpine:3.20.0=NAME``.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import docker

__all__ = ["ALPINE", "NAME", "make_image", "unpack_image"]

ALPINE = "alpine:3.20.0"
"""The base image that it stands for."""

NAME = "pytest-intercode-test-alpine:latest"

_DOCKERFILE = r"""
FROM debian:bookworm-slim AS made
RUN apt-get update \
    && apt-get install -y --no-install-recommends busybox-static git \
    && rm -rf /var/lib/apt/lists/*
RUN set -e; mkdir /new; cd /new; \
    mkdir -p bin sbin lib dev etc home media mnt opt proc root run srv sys tmp usr/bin usr/sbin \
        usr/lib usr/share var/log; \
    chmod 1777 tmp; chmod 700 root; \
    for path in $(busybox --list-full); do ln -sf /bin/busybox "$path"; done; \
    cp --remove-destination /bin/busybox bin/; \
    cp --remove-destination /bin/bash bin/; \
    cp --remove-destination /usr/bin/git /usr/bin/find /usr/bin/setpriv usr/bin/; \
    rm -f bin/setpriv bin/find; \
    mkdir -p usr/lib/git-core; cp /usr/lib/git-core/git-sh-setup usr/lib/git-core/; \
    cp -r /usr/share/git-core usr/share/; cp -r --parents /usr/lib/locale/C.utf8 .; \
    for each in /bin/bash /usr/bin/git /usr/bin/find /usr/bin/setpriv; do ldd $each; done \
        | grep -o '/[^ ]*' | sort -u | xargs -I{} cp --parents -L {} .; \
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' \
        >etc/passwd; \
    printf 'root:x:0:root\ndaemon:x:1:\nnobody:x:65534:\n' >etc/group
FROM scratch
COPY --from=made /new /
CMD ["/bin/sh"]
"""


def make_image(api: docker.APIClient) -> str:
    """Build the image if it is not there, and return its name."""
    if not api.images(name=NAME):
        for event in api.build(
            fileobj=io.BytesIO(_DOCKERFILE.encode()), tag=NAME, rm=True, forcerm=True, decode=True
        ):
            if "error" in event:
                raise RuntimeError(event["error"])
    return NAME


def unpack_image(api: docker.APIClient, image: str, folder: Path) -> Path:
    """Unpack the root file system of an image, for bubblewrap."""
    container = api.create_container(image, "true")
    try:
        with tarfile.open(fileobj=_Stream(api.export(container)), mode="r|") as tree:
            # the filters are younger than Debian 12's Python
            tree.extraction_filter = getattr(
                tarfile, "fully_trusted_filter", lambda member, _: member
            )
            tree.extractall(folder, numeric_owner=True)
    finally:
        api.remove_container(container)
    return folder


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: object) -> None:
        self._chunks = iter(chunks)  # type: ignore[call-overload]
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        part, self._rest = self._rest[:size], self._rest[size:]
        return part
