# SPDX-License-Identifier: Apache-2.0
"""Places for files that belong to no single story, and ports for servers that come back to them."""
import atexit
import contextlib
import errno
import os
import pathlib
import random
import shutil
import socket
import tempfile


def free_port():
    """A port that a server can close and open again: below those that the kernel gives to whoever connects."""
    first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, first_ephemeral)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def passing_directory():
    """A directory with a short path, which goes when the tests are over."""
    path = tempfile.mkdtemp(prefix="hapax-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def fill(disk):
    """Take every byte that is left on a disk."""
    with open(disk / "ballast", "ab", buffering=0) as ballast:
        for block in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(block))
    try:
        with open(disk / "one-more", "wb", buffering=0) as more:
            more.write(b"x" * 4096)
    except OSError as full:
        assert full.errno == errno.ENOSPC
    else:
        raise AssertionError(f"{disk} is not full")
    os.unlink(disk / "one-more")
