# SPDX-License-Identifier: Apache-2.0
"""Places for files that belong to no single story."""
import atexit
import contextlib
import errno
import os
import shutil
import tempfile


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
