# SPDX-License-Identifier: Apache-2.0
"""A command of the program that listens and answers by itself: `hapax listen`, or `hapax explain --listen`."""
import contextlib
import os
import pty
import re
import select
import signal
import subprocess

from .gateway import REPORT, binary, environment
from .waiting import HANG_S


class Listening:
    """Started, on a port of its own; `terminal` gives it one to write to."""

    def __init__(self, command, *flags, terminal=False):
        ours, theirs = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen([binary(), command, "--listen", "127.0.0.1:0", *map(str, flags)],
                                        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
                                        env=environment())
        os.close(theirs)
        self.output = os.fdopen(ours, "rb", buffering=0)
        self.unread = b""
        self.said = self.line()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", self.said)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def more(self):
        """False once it has closed its output."""
        assert select.select([self.output], [], [], HANG_S)[0], f"nothing more came after {self.unread!r}"
        with contextlib.suppress(OSError):  # how Linux says that the other side of a terminal is closed
            piece = self.output.read(65536)
            self.unread += piece
            return bool(piece)
        return False

    def line(self):
        while b"\n" not in self.unread:
            assert self.more(), f"it ended: {self.unread!r} {self.process.communicate(timeout=HANG_S)[1]!r}"
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def rest(self, code=0):
        """What it still writes until it ends by itself, which it must do with this code."""
        while self.more():
            pass
        err = self.process.communicate(timeout=HANG_S)[1].decode()
        assert (self.process.returncode, err) == (code, "") and not REPORT.search(err)
        return self.unread.decode()

    def end(self, number=signal.SIGINT, code=0):
        self.process.send_signal(number)
        return self.rest(code)

    def finish(self):
        if self.process.returncode is None:
            self.end()
        self.output.close()
