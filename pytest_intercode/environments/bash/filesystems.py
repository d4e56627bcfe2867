"""Make the file trees of NL2Bash: run InterCode's own scripts in a sandbox, and pack the result.

InterCode's repository has the scripts, but not the trees: it runs them when it builds its images.
Several of their lines fail there as well as here (a ``touch`` with an impossible date), so their
exit status is ignored.
"""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from collections.abc import Sequence

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import FetchError
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.files import bundled_folder

__all__ = ["pack_filesystem"]

_TIMEOUT = 60.0  # seconds for a command


def pack_filesystem(
    script: str, roots: Sequence[str], provider: SandboxProvider, name: str = ""
) -> bytes:
    """Run a script in a fresh sandbox and return what it made, as a compressed tar archive.

    Args:
        script: the script, in bash.
        roots: the files and folders that it makes, as paths below ``/``.
        provider: where the sandbox comes from.
        name: the script's own name. If it is among ``roots``, the archive includes the script.

    Raises:
        FetchError: the script did not make it.
        InfrastructureError: the sandbox broke, or there is none.
    """
    dockerfile = bundled_folder("dockerfiles") / "nl2bash.Dockerfile"
    sandbox = provider.acquire(SandboxSpec(provider.image(ImageSource(dockerfile=dockerfile))))
    try:
        if name in roots:
            store = f"printf %s {shlex.quote(script)} >/{name} && chmod 755 /{name}"
            sandbox.admin(store, _TIMEOUT)
        sandbox.admin(f"cd / && exec bash -c {shlex.quote(script)}", _TIMEOUT)
        names = shlex.join(roots)
        status, packed = sandbox.admin(
            "set -o pipefail; tar --create --directory=/ --sort=name --owner=0 --group=0 "
            f"--numeric-owner {names} 2>/dev/null | gzip -9n | base64 -w0",
            _TIMEOUT,
        )
    finally:
        sandbox.close()
    if status != 0:
        raise FetchError(f"the script made no {' and '.join(roots)}")
    archive = base64.b64decode(packed)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        assert set(roots) <= set(tree.getnames())
    return archive
