"""Opens sockets in the network namespace of another process.

A socket belongs to the namespace in which it was made, whichever process holds it later. A thread
that has entered a namespace stays there, so use a thread that is not needed any more.

The text of this module also runs in bubblewrap's starter, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from typing import Any

if sys.platform != "linux":
    raise ImportError("namespaces are Linux's")

__all__ = ["enter", "open_process", "open_sockets"]

_NEWNET = 0x40000000
_SETNS = ctypes.CDLL(None, use_errno=True).setns
_BACKLOG = 64
_FREE_BIND = 78

# rtnetlink(7): a route that makes every address local to this machine.
_NEW_ROUTE, _ERROR, _REQUEST, _ACKNOWLEDGE, _CREATE = 24, 2, 1, 4, 0x400
_LOCAL_TABLE, _BOOT, _HOST_SCOPE, _LOCAL = 255, 3, 254, 2
_DESTINATION, _DEVICE, _SOURCE = 1, 4, 7
_LOOPBACK = 1  # the number of the device `lo`, in every namespace

# Keeps packets for addresses outside of loopback, or for addresses that represent a name: the first
# packet of a TCP connection, and all of UDP. Classic BPF (linux/filter.h), on a packet that begins
# with its IP header.
_ALL = 0xFFFF
_FILTER_4 = (
    (0x20, 0, 0, 16),  # the destination
    (0x15, 13, 0, 0x7F580001),  # the name server and the proxy (``plan.py``): drop
    (0x54, 0, 0, 0xFFFF0000),
    (0x15, 3, 0, 0x7F580000),  # it represents a name
    (0x20, 0, 0, 16),
    (0x54, 0, 0, 0xFF000000),
    (0x15, 8, 0, 0x7F000000),  # loopback: drop
    (0x30, 0, 0, 9),  # the protocol
    (0x15, 5, 0, 17),  # UDP: keep
    (0x15, 0, 5, 6),  # not TCP: drop
    (0xB1, 0, 0, 0),  # the length of the header
    (0x50, 0, 0, 13),  # the flags
    (0x54, 0, 0, 0x12),
    (0x15, 0, 1, 0x02),  # SYN alone: keep
    (0x06, 0, 0, _ALL),
    (0x06, 0, 0, 0),
)
_FILTER_6 = (
    (0x20, 0, 0, 36),  # the destination, from its end
    (0x15, 0, 6, 1),
    (0x20, 0, 0, 24),
    (0x15, 0, 4, 0),
    (0x20, 0, 0, 28),
    (0x15, 0, 2, 0),
    (0x20, 0, 0, 32),
    (0x15, 7, 0, 0),  # loopback: drop
    (0x30, 0, 0, 6),  # the next header
    (0x15, 4, 0, 17),  # UDP: keep
    (0x15, 0, 4, 6),  # not TCP: drop
    (0x30, 0, 0, 53),  # the flags
    (0x54, 0, 0, 0x12),
    (0x15, 0, 1, 0x02),  # SYN alone: keep
    (0x06, 0, 0, _ALL),
    (0x06, 0, 0, 0),
)
_ATTACH_FILTER = 26
_IP_4, _IP_6 = 0x0800, 0x86DD


def open_process(number: int) -> int:
    """Return a descriptor of a process, with which its namespaces can be entered."""
    return os.pidfd_open(number)


def enter(process: int) -> None:
    """Move this thread into the network namespace of a process, for good.

    Args:
        process: a descriptor of the process.

    Raises:
        OSError: the process is gone, or we may not do this.
    """
    if _SETNS(process, _NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the sandbox's network cannot be entered: {os.strerror(number)}")


def open_sockets(tcp: list[Any], udp: list[Any]) -> list[socket.socket]:
    """Open sockets in the namespace of this thread.

    Every address is made local to the namespace, so that a listener can have any address, and the
    kernel refuses a connection to any other one immediately. The last sockets see these packets.

    Args:
        tcp: pairs of an address and a port on which to listen.
        udp: pairs of an address and a port on which to receive.

    Raises:
        OSError: one cannot be opened.
    """
    opened: list[socket.socket] = []
    try:
        _make_local(socket.AF_INET)
        has_ipv6 = True
        try:
            _make_local(socket.AF_INET6)
        except OSError:  # IPv6 is off
            has_ipv6 = False
        for kind, endpoints in ((socket.SOCK_STREAM, tcp), (socket.SOCK_DGRAM, udp)):
            for address, port in endpoints:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                if family == socket.AF_INET6 and not has_ipv6:
                    continue
                sock = socket.socket(family, kind)
                opened.append(sock)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    sock.setsockopt(socket.IPPROTO_IPV6, _FREE_BIND, 1)  # a route is not enough
                sock.bind((address, port))
                if kind == socket.SOCK_STREAM:
                    sock.listen(_BACKLOG)
        opened.append(_open_packet_socket(_IP_4, _FILTER_4))
        if has_ipv6:
            opened.append(_open_packet_socket(_IP_6, _FILTER_6))
    except BaseException:
        for opened_socket in opened:
            opened_socket.close()
        raise
    return opened


def _make_local(family: int) -> None:
    route = struct.pack("=8BI", family, 0, 0, 0, _LOCAL_TABLE, _BOOT, _HOST_SCOPE, _LOCAL, 0)
    route += struct.pack("=HHI", 8, _DEVICE, _LOOPBACK)
    flags = _REQUEST | _ACKNOWLEDGE | _CREATE
    header = struct.pack("=IHHII", 16 + len(route), _NEW_ROUTE, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(5)
        kernel.send(header + route)
        answer = kernel.recv(4096)
    kind, number = struct.unpack_from("=4xH10xi", answer)
    if kind == _ERROR and number:
        raise OSError(-number, f"a route in the sandbox: {os.strerror(-number)}")


def _open_packet_socket(
    protocol: int, steps: tuple[tuple[int, int, int, int], ...]
) -> socket.socket:
    """Open a socket that receives the packets that a filter keeps."""
    packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
    try:
        code = b"".join(struct.pack("=HBBI", *step) for step in steps)
        filter_buffer = ctypes.create_string_buffer(code)
        program = struct.pack("HP", len(steps), ctypes.addressof(filter_buffer))
        packet_socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        packet_socket.bind(("lo", protocol))
    except BaseException:
        packet_socket.close()
        raise
    with contextlib.suppress(OSError):
        packet_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    return packet_socket
