# SPDX-License-Identifier: Apache-2.0
"""The short form of `./dev soak events`: twenty kills of either side under load."""
import json
import subprocess
import sys

import pytest

from harness import binary
from harness.gateway import ROOT, environment


@pytest.mark.slow
def test_twenty_kills_of_either_side_lose_no_event():
    command = [sys.executable, str(ROOT / "tests" / "soak" / "events.py"), "--kills", "20", "--least", "0", "--json"]
    result = subprocess.run(command, capture_output=True, env={**environment(), "HAPAX": str(binary())}, check=False)
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    report = json.loads(result.stdout)
    assert report["kills"] >= 20 and report["events"] > 0
    assert sum(hits > 0 for hits in report["windows"].values()) >= 3
