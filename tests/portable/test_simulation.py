"""The simulated Mac is one: every process, however it is started, lacks what Linux alone has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.portable.mac import LINUX_PROGRAMS, Mac
from tests.support.portable.typeshed import missing_names, names_of

# Names that this package has used on Linux, or still does.
KNOWN = {
    "fcntl": {"F_ADD_SEALS", "F_SETPIPE_SZ"},
    "os": {"O_PATH", "copy_file_range", "eventfd", "getrandom", "getxattr", "memfd_create"},
    "resource": {"RLIMIT_NICE", "prlimit"},
    "select": {"POLLRDHUP", "epoll"},
    "signal": {"SIGRTMIN", "sigtimedwait"},
    "socket": {"AF_NETLINK", "AF_VSOCK", "SO_PEERCRED"},
    "time": {"CLOCK_BOOTTIME"},
}

REPORT = """\
import sys
if len(sys.argv) > 1:
    import subprocess
    subprocess.run([sys.executable, *sys.argv[2:], "-c", open(sys.argv[1]).read()], check=True)
    sys.exit()
import ctypes, fcntl, json, os, platform, resource, select, signal, socket, time
modules = (fcntl, os, resource, select, signal, socket, time)


def error_of(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return str(error)


print(json.dumps({
    "names": {module.__name__: dir(module) for module in modules},
    "platform": sys.platform,
    "machine": os.uname().machine,
    "system": platform.system(),
    "proc": os.listdir("/proc"),
    "sys": os.listdir("/sys"),
    "memory": error_of(resource.setrlimit, resource.RLIMIT_AS, (2**30, 2**30)),
    "prctl": error_of(getattr, ctypes.CDLL(None), "prctl"),
    "abstract": error_of(socket.socket(socket.AF_UNIX).bind, "\\0name"),
    "long": error_of(socket.socket(socket.AF_UNIX).bind, "/tmp/" + "n" * 100),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
}))
"""


def test_what_typeshed_says() -> None:
    for module, names in KNOWN.items():
        assert names <= missing_names(module, "darwin"), module
    assert {"fork", "getuid"} <= missing_names("os", "win32")
    assert {"fork", "getuid", "path"} <= names_of("os", "darwin")
    assert "fcntl" in names_of("fcntl", "darwin")
    assert "fcntl" not in names_of("fcntl", "win32")


@pytest.mark.parametrize("options", ["", "-I", "-I -S", "-E -s", "-X utf8"])
def test_every_process_lacks_it(alone: Mac, tmp_path: Path, options: str) -> None:
    script = tmp_path / "report.py"
    script.write_text(REPORT)
    result = alone.run(alone.python, script, script, *options.split(), folder=tmp_path)
    assert result.returncode == 0, result.stdout
    report = json.loads(result.stdout)
    for module, names in KNOWN.items():
        assert not names & set(report["names"][module]), module
        assert names_of(module, "darwin") & set(report["names"][module])
    assert not {"F_OFD_SETLK", "F_OFD_GETLK"} & set(report["names"]["fcntl"])
    assert (report["platform"], report["system"]) == ("darwin", "Darwin")
    assert report["machine"] == "arm64"
    assert (report["proc"], report["sys"]) == ([], [])
    assert report["memory"] == "current limit exceeds maximum limit"
    assert "symbol not found" in report["prctl"]
    assert "No such file" in report["abstract"]
    assert report["long"] == "AF_UNIX path too long"
    assert report["files"] == 256


def test_processes_are_there_for_psutil_alone(alone: Mac, tmp_path: Path) -> None:
    code = (
        "import asyncio, socket, subprocess, psutil as p; q = p.Process(); "
        "print(q.name(), len(p.pids()) > 3, hasattr(socket, 'AF_PACKET'), dir(q))"
    )
    result = alone.run(alone.python, "-c", code, folder=tmp_path)
    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("python True False")
    assert "rlimit" not in result.stdout
    assert "children" in result.stdout


def test_what_spawns_and_asks_for_proxies_works(alone: Mac, tmp_path: Path) -> None:
    """The branches of the standard library for macOS."""
    (tmp_path / "spawning.py").write_text(
        "import multiprocessing, os, sysconfig, urllib.request\n"
        "def sees():\n"
        "    return hasattr(os, 'O_PATH')\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(1) as pool:\n"
        "        print(multiprocessing.get_start_method(), pool.apply(sees))\n"
        "    print(urllib.request.getproxies(), sysconfig.get_platform())\n"
    )
    result = alone.run(alone.python, "spawning.py", folder=tmp_path, http_proxy="")
    assert result.stdout.startswith("spawn False\n"), result.stdout
    assert "darwin" in result.stdout or "macos" in result.stdout


def test_programs_of_linux_are_gone(alone: Mac, tmp_path: Path) -> None:
    code = "import shutil, sys; print(*filter(shutil.which, sys.argv[1:]))"
    result = alone.run(alone.python, "-c", code, *LINUX_PROGRAMS, folder=tmp_path)
    assert (result.returncode, result.stdout) == (0, "\n")
