"""Makes network namespaces and passes packets between them, over links that fail as told.

Run as a script by `harness.network.nodes`. Each node is a network namespace with a TUN device: what
its processes send to other nodes is read here, and written to the device of the receiver after the
delay of the link, or never. So no packet filter and no module of the kernel for delays is needed.

The arguments are the nodes' addresses. The answer is a line with the descriptors of their
namespaces, which exist as long as this process. A request is a JSON object in a line, with the
fields of a link; its answer is an empty line.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
# Of the kernel's interfaces: linux/if_tun.h, bits/ioctls.h, net/if.h.
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_IPV4: Final = 4
_LARGEST_PACKET: Final = 65536
# More packets wait only behind a link that is far too slow for its load.
_MOST_WAITING: Final = 20_000


class Link:
    """One direction between two nodes."""

    def __init__(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.loss = 0.0

    def change(self, values: dict[str, float]) -> None:
        self.is_cut = bool(values["is_cut"])
        self.delay_s = values["delay_s"]
        self.loss = values["loss"]


class Router:
    """Reads packets of all devices and passes them on."""

    def __init__(self, devices: dict[bytes, int]) -> None:
        """Use devices by the addresses of their nodes."""
        self._devices = devices
        self._links = {
            pair: Link() for pair in itertools.product(devices, devices) if pair[0] != pair[1]
        }
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = itertools.count()
        self._random = random.Random(0)

    def run(self) -> None:
        """Pass packets on until stdin ends."""
        selector = selectors.DefaultSelector()
        for device in self._devices.values():
            os.set_blocking(device, False)
            selector.register(device, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(self._next_wait_s()):
                if key.fd != sys.stdin.fileno():
                    self._read(key.fd)
                elif line := sys.stdin.buffer.readline():
                    self._change(json.loads(line))
                else:
                    return
            self._send_due()

    def _change(self, values: dict[str, float | str]) -> None:
        pair = tuple(socket.inet_aton(str(values.pop(name))) for name in ("sender", "receiver"))
        self._links[pair].change(values)  # type: ignore[arg-type,index]
        sys.stdout.write("\n")
        sys.stdout.flush()

    def _read(self, device: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(device, _LARGEST_PACKET)
            except BlockingIOError:
                return
            link = self._links.get((packet[12:16], packet[16:20]))
            if packet[0] >> 4 != _IPV4 or link is None or link.is_cut:
                continue
            if link.loss and self._random.random() < link.loss:
                continue
            receiver = self._devices[packet[16:20]]
            if not link.delay_s:
                _write(receiver, packet)
            elif len(self._waiting) < _MOST_WAITING:
                due = time.monotonic() + link.delay_s
                heapq.heappush(self._waiting, (due, next(self._count), receiver, packet))

    def _next_wait_s(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] - time.monotonic())

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._waiting)
            _write(receiver, packet)


def _write(device: int, packet: bytes) -> None:
    """Pass a packet on; a device whose queue is full loses it, as a network does."""
    with contextlib.suppress(BlockingIOError):
        os.write(device, packet)


def make_node(address: str) -> tuple[int, int]:
    """Make a namespace, in which this process then is; return its descriptor and its device's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace can be made")
    device = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", b"mesh", _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interfaces:
        fcntl.ioctl(interfaces, _SIOCSIFADDR, _with_address(b"mesh", address))
        fcntl.ioctl(interfaces, _SIOCSIFNETMASK, _with_address(b"mesh", "255.255.255.0"))
        for name in (b"lo", b"mesh"):
            fcntl.ioctl(interfaces, _SIOCSIFFLAGS, struct.pack("16sH22x", name, _IFF_UP))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY), device


def _with_address(interface: bytes, address: str) -> bytes:
    return struct.pack("16sH2x4s16x", interface, socket.AF_INET, socket.inet_aton(address))


if __name__ == "__main__":
    made = {address: make_node(address) for address in sys.argv[1:]}
    sys.stdout.write(json.dumps({address: node for address, (node, _) in made.items()}) + "\n")
    sys.stdout.flush()
    Router({socket.inet_aton(address): device for address, (_, device) in made.items()}).run()
