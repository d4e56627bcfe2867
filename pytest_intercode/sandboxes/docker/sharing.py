"""Tell whether an engine is on this machine, which several faster ways depend on."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from typing import Any

from pytest_intercode.sandboxes.docker.address import Address
from pytest_intercode.system.platform import IS_LINUX

__all__ = ["shares_machine"]


def shares_machine(address: Address, facts: Mapping[str, Any]) -> bool:
    """Whether an engine has this machine's kernel and files, as far as this can be known.

    Only then can folders of this machine be mounted into its containers, sockets in them reach both
    sides, and its layers and processes be read from here. If this is wrongly false, sandboxes do
    the same, but slower. If it is wrongly true, the engine mounts empty folders, and an agent does
    not find its program.

    A socket of this machine does not mean much: Docker Desktop, Colima, OrbStack, Rancher Desktop
    and Podman's machines run the engine in a virtual machine and forward a socket to it, as SSH
    does. So all of these must hold:

    - this is Linux, which every engine runs on;
    - its address is a socket here;
    - it has the same kernel release. Each of the virtual machines named above has a kernel of its
      own, but its release may be the same if both are of one distribution;
    - it has this machine's name, which such a virtual machine then does not have (nor does the WSL
      distribution of Docker Desktop, although all of these have one kernel);
    - the folder of its data is here. In a container that was given the engine's socket it is not,
      although the kernel is the same.

    Args:
        address: where the engine is.
        facts: what the engine reports about itself (``GET /info``).
    """
    if not IS_LINUX or not address.is_socket:
        return False
    machine = (os.uname().release, socket.gethostname())
    if (facts.get("KernelVersion"), facts.get("Name")) != machine:
        return False
    folder = str(facts.get("DockerRootDir") or "")
    try:
        return stat.S_ISDIR(os.stat(folder).st_mode)  # noqa: PTH116 - is_dir() hides the reason
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it exists, in a folder that this user may not read
        return True
