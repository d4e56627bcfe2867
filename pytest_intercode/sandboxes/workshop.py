"""Linux programs for another platform than this machine's, in a folder that runs in any sandbox.

If this machine runs Linux on the platform's processor, :mod:`~pytest_intercode.sandboxes.portable`
copies programs from it. Else, this module copies them from a sandbox of that platform: Debian's
Python and C library, by the Dockerfile of the environment ``bash``. No program for another platform
is run on this machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import FetchError, IntercodeError
from pytest_intercode.sandboxes.portable import EXCLUDED, LinuxPython, write_wrapper
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.archives import add_entry, unpack_archive, unpack_files
from pytest_intercode.system.files import bundled_folder

__all__ = ["Workshop"]

_LIMITS = Limits(memory=2 * 1024**3, cpus=2.0, pids=200, file_size=2 * 1024**3)
_STEP_TIMEOUT = 600.0  # seconds for one step, which may run under emulation
_INPUT = "/var/tmp/intercode-input"
_STAGE = "/var/tmp/intercode-stage"

# Both steps begin with this: a folder as `copy_program` makes it, and a function for libraries.
_BEGIN = r"""
set -eu
rm -rf "$stage"
mkdir -p "$stage/bin" "$stage/lib"
copy_libraries() {
  ldd "$@" 2>/dev/null | sed -n 's/^[[:space:]]*\(.* => \)\{0,1\}\(\/[^ ]*\) (0x.*/\2/p' | sort -u |
    while read -r path; do
      cp -L "$path" "$stage/lib/"
      case ${path##*/} in ld-*) cp -L "$path" "$stage/lib/ld.so" ;; esac
    done
  [ -e "$stage/lib/ld.so" ]
}
"""
_END = """
chmod -R a+rX "$stage"
tar -C "$stage" -cf "$stage.tar" .
"""
_PYTHON = r"""
program=$(readlink -f "$(command -v python3)")
library=$("$program" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
version=${library##*/}
cp "$program" "$stage/bin/python"
cp -RL "$library" "$stage/lib/$version"
rm -f "$stage/lib/$version/sitecustomize.py"
for name in $excluded config-* dist-packages __pycache__; do
  find "$stage/lib/$version" -depth -name "$name" -exec rm -rf {} +
done
mkdir "$stage/lib/$version/site-packages"
for name in $programs; do
  path=$(command -v "$name")
  cp -L "$path" "$stage/bin/$name"
  set -- "$@" "$path"
done
find "$stage/lib/$version" -name '*.so' >"$stage.list"
while read -r path; do set -- "$@" "$path"; done <"$stage.list"
copy_libraries "$program" "$@"
"$program" -m compileall -q --invalidation-mode unchecked-hash "$stage/lib/$version" >/dev/null || :
"""
_FACTS = """\
import json, os, platform
print(json.dumps([platform.python_version(), os.confstr("CS_GNU_LIBC_VERSION")]))
"""
_PROGRAM = """
cp "$input" "$stage/bin/.$name"
chmod 755 "$input"
copy_libraries "$input"
"""


class Workshop:
    """A sandbox of a platform, from which programs are copied; a context that ends it.

    Args:
        settings: where sandboxes come from.
        platform: the platform.
        purpose: what the programs are for, in messages.

    Every method raises FetchError if there is no such sandbox, or if a step fails in it.
    """

    def __init__(self, settings: SandboxSettings, platform: Platform, purpose: str) -> None:
        self._settings = replace(settings, platform=platform, readonly=(), scratch=(), slots=None)
        self._platform = platform
        self._purpose = purpose
        self._resources = contextlib.ExitStack()
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def copy_python(
        self, target: Path, mount_path: str, programs: Iterable[str] = ()
    ) -> LinuxPython:
        """Copy the Python of the sandbox: the interpreter and its standard library.

        Args:
            target: the folder to make; ``bin/python3`` starts it.
            mount_path: where a sandbox will see that folder.
            programs: names of further programs that are put into ``bin``, and find their libraries
                there.

        Returns:
            The Python for which packages are to be installed.
        """
        variables = {"excluded": " ".join(EXCLUDED), "programs": " ".join(programs)}
        self._stage(_PYTHON, variables, target)
        write_wrapper(target / "bin" / "python3", mount_path, "python")
        facts = self._run(f"python3 -c {shlex.quote(_FACTS)}")
        try:
            version, library = json.loads(facts)
            return LinuxPython(self._platform, version, library.removeprefix("glibc "))
        except (ValueError, AttributeError):
            raise FetchError(f"{self._label}: its Python has no glibc: {facts!r:.80}") from None

    def copy_program(self, path: Path, name: str, target: Path, mount_path: str) -> None:
        """Copy a program for the platform from this machine's disk, with its libraries.

        Args:
            path: the program.
            name: what it is called.
            target: the folder to make; ``bin/NAME`` starts it.
            mount_path: where a sandbox will see that folder.
        """
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            add_entry(archive, _INPUT.lstrip("/"), path.read_bytes(), 0o755)
        with self._explained():
            self._started().unpack(buffer.getvalue())
        self._stage(_PROGRAM, {"input": _INPUT, "name": name}, target)
        write_wrapper(target / "bin" / name, mount_path, f".{name}")

    @property
    def _label(self) -> str:
        return f"{self._purpose}: programs for {self._platform}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FetchError:
            raise
        except IntercodeError as error:
            raise FetchError(f"{self._label}: {error}") from None

    def _started(self) -> Sandbox:
        """Return the sandbox, and start it the first time."""
        if self._sandbox is None:
            provider = SandboxProvider(self._settings)
            self._resources.callback(provider.close)
            dockerfile = bundled_folder("dockerfiles") / "bash.Dockerfile"
            image = provider.image(ImageSource(dockerfile=dockerfile, platform=self._platform))
            self._sandbox = provider.acquire(SandboxSpec(image, limits=_LIMITS))
            self._resources.callback(self._sandbox.close)
        return self._sandbox

    def _run(self, command: str) -> str:
        with self._explained():
            status, output = self._started().admin(command, _STEP_TIMEOUT)
        text = output.decode("utf-8", "replace").strip()
        if status:
            raise FetchError(f"{self._label}: status {status}: {' '.join(text.split())[-300:]}")
        return text

    def _stage(self, script: str, variables: Mapping[str, str], target: Path) -> None:
        """Make a folder in the sandbox, and copy it here."""
        all_variables = {"stage": _STAGE, **variables}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in all_variables.items()]
        whole = "".join([*lines, _BEGIN, script, _END])
        self._run(f"bash -c {shlex.quote(whole)} 2>&1")
        with self._explained():
            content = unpack_files(self._started().archive([f"{_STAGE}.tar"]))[f"{_STAGE}.tar"]
            with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".tar") as file:
                file.write(content)
                file.flush()
                part = target.with_name(f"{target.name}.part")
                shutil.rmtree(part, ignore_errors=True)  # left by a copy that was interrupted
                part.mkdir()
                unpack_archive(Path(file.name), part)
        part.rename(target)
