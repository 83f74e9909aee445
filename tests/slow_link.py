"""A slow link between two network namespaces: `python slow_link.py ONE OTHER SECONDS BYTES_PER_SECOND`.

A TUN device in each, and this process between them, which lets every packet wait for its turn and for the
delay. It says "ready" when the devices are there, which go when it ends, and at its end how many bytes it has
carried.
"""

import ctypes
import fcntl
import heapq
import os
import select
import signal
import struct
import sys
import time
from itertools import count
from pathlib import Path

NEW_NETWORK, SET_NAME, IS_TUN, WITHOUT_HEAD = 0x40000000, 0x400454CA, 0x0001, 0x1000
MTU = 9000


def device(space, name="t0"):
    """An open TUN device of a namespace; packets are read from it and written to it anywhere."""
    with open(Path("/var/run/netns", space), "rb") as there:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(there.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    found = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(found, SET_NAME, struct.pack("16sH22x", name.encode(), IS_TUN | WITHOUT_HEAD))
    return found


def relay(ends, delay, rate):
    """Carry packets until SIGTERM; each way has the whole rate."""
    opposite = dict(zip(ends, reversed(ends), strict=True))
    free = dict.fromkeys(ends, 0.0)  # when the last packet from there has left
    waiting, carried, ended, number = [], 0, [], count()
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    while not ended:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(waiting)
            try:
                os.write(target, packet)
            except OSError:  # a lost packet, which TCP sends again
                continue
            carried += len(packet)
        wait = max(0.0, waiting[0][0] - now) if waiting else 0.5
        for source in select.select(ends, [], [], wait)[0]:
            packet = os.read(source, 1 << 16)
            free[source] = max(free[source], time.monotonic()) + len(packet) / rate
            heapq.heappush(waiting, (free[source] + delay, next(number), opposite[source], packet))
    return carried


if __name__ == "__main__":
    one, other, seconds, per_second = sys.argv[1:]
    both = [device(one), device(other)]
    print("ready", flush=True)
    print(relay(both, float(seconds), float(per_second)), flush=True)
