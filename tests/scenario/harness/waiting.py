# SPDX-License-Identifier: Apache-2.0
"""Waiting for what has no event of its own. The deadline only keeps a broken build from hanging for ever: no test
measures time against it."""
import os
import time

# Below 60 s, which is how long an idle upstream connection, an attempt, a lease and a grace last by default: what one
# of those timers brings about must not be taken for what a story waits for.
HANG_S = float(os.environ.get("HAPAX_HANG_S", "45"))


def eventually(holds, what="the condition"):
    """Calls `holds` until it returns something true, and returns that."""
    deadline = time.monotonic() + HANG_S
    pause = 0.001
    while True:
        result = holds()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {HANG_S:.0f} s; last seen: {result!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def in_time(story):
    """Tells a story that needs the machine to be quick at one point, until it was; a story returns whether it was."""
    assert any(story() for _ in range(20)), "the machine was too slow for this story every time"
