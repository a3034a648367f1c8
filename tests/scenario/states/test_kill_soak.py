# SPDX-License-Identifier: Apache-2.0
"""The short form of `./dev soak kill`: twenty kills under load, each phase hit at least once."""
import json
import subprocess
import sys

import pytest

from harness import binary
from harness.gateway import ROOT, environment


@pytest.mark.slow
def test_twenty_kills_under_load_lose_nothing_and_run_nothing_twice():
    command = [sys.executable, str(ROOT / "tests" / "soak" / "kill.py"), "--short", "--json", "--hapax", str(binary())]
    result = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    report = json.loads(result.stdout)
    assert report["kills"] >= 20
    assert min(report["phases"].values()) >= 1
    assert report["failure"] is None
    assert report["looked_at_again"] >= report["acknowledged"] > 0
