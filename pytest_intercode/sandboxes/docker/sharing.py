"""Whether an engine is on this machine: all that is faster there depends on it."""

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
    """Whether an engine has this machine's kernel and files, as far as one can be sure.

    Only then may folders of this machine be mounted into its containers, sockets in them reach both
    sides, and its layers and processes be looked at from here. Where it is wrongly taken for
    another machine's, sandboxes do the same and are slower. The other way round, the engine would
    mount empty folders, and an agent would not find its program.

    A socket of this machine says little: Docker Desktop, Colima, OrbStack, Rancher Desktop and
    Podman's machines run the engine in a virtual machine and lead a socket to it, as SSH does. So
    all of these have to hold:

    - this is Linux, which every engine runs on;
    - its address is a socket here;
    - it has the release of this kernel. Of the virtual machines named above, each has a kernel of
      its own, but one may be of the same release where both are of one distribution;
    - it has this machine's name, which such a machine then has not (nor has the distribution of WSL
      that Docker Desktop has for itself, though all of them have one kernel);
    - the folder of its data is here. In a container that was given the engine's socket it is not,
      though the kernel is the same.

    Args:
        address: where the engine is.
        facts: what it says of itself (``GET /info``).
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
    except OSError:  # it is here, in a folder that this user may not look into
        return True
