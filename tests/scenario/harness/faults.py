# SPDX-License-Identifier: Apache-2.0
"""Faults of the system below the gateway, by a library that is preloaded into it (faults.c)."""
import contextlib
import functools
import pathlib
import subprocess

from .places import passing_directory
from .waiting import eventually


@functools.lru_cache(maxsize=None)
def _library():
    library = pathlib.Path(passing_directory()) / "faults.so"
    source = pathlib.Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def kernel_clock(file):
    """An environment in which the kernel says that the wall clock is synchronised while the file exists."""
    return {"LD_PRELOAD": str(_library()), "FAULT_SYNCHRONISED": str(file)}


def without_tmpfile():
    """An environment in which O_TMPFILE is not supported."""
    return {"LD_PRELOAD": str(_library()), "FAULT_NO_TMPFILE": "1"}


def killed_at_sync(number):
    """An environment in which a process is killed instead of making its sync of that number."""
    return {"LD_PRELOAD": str(_library()), "FAULT_KILL_AT_SYNC": str(number)}


def killed_at_change(number):
    """An environment in which a process is killed instead of making its change of that number to files' names, or its
    sync of that number, both counted together."""
    return {"LD_PRELOAD": str(_library()), "FAULT_KILL_AT_CHANGE": str(number)}


def killed_at_step(number, name_to):
    """The same for changes, syncs, connects, sends and receives, all counted together; the name of the one at which it
    died is in the file `name_to`."""
    return {"LD_PRELOAD": str(_library()), "FAULT_KILL_AT_STEP": str(number), "FAULT_STEP": str(name_to)}


def killed_by(counter, number):
    """An environment in which a process is killed when a counter is there: "AT_SYNC", "AFTER_SYNC", "AT_SEND" or
    "AFTER_SEND"."""
    return {"LD_PRELOAD": str(_library()), f"FAULT_KILL_{counter}": str(number)}


class SlowDisk:
    """Pass `env` to a gateway; inside `held()` none of its commits becomes durable."""

    def __init__(self, directory):
        self.file = pathlib.Path(directory) / "hold-sync"
        self._held = self.file.with_name("hold-sync.held")
        self.env = {"LD_PRELOAD": str(_library()), "FAULT_HOLD_SYNC": str(self.file)}

    @contextlib.contextmanager
    def held(self):
        self._held.unlink(missing_ok=True)
        self.file.touch()
        try:
            yield
        finally:
            self.file.unlink()

    def holds_a_commit(self):
        return self._held.exists()

    def wait_for_commit(self):
        """Returns once a commit waits for the disk."""
        eventually(self.holds_a_commit, "a commit waiting for the disk")


class BrokenDisk:
    """Pass `env` to a gateway; after `breaks()` each of its commits fails, until `is_repaired()`."""

    def __init__(self, directory):
        self.file = pathlib.Path(directory) / "fail-sync"
        self.env = {"LD_PRELOAD": str(_library()), "FAULT_FAIL_SYNC": str(self.file)}

    def breaks(self):
        self.file.touch()

    def is_repaired(self):
        self.file.unlink()
