# SPDX-License-Identifier: Apache-2.0
"""What the gateway is worth: every story of test_yoked_protected once more, against the application itself. Each of
them must fail, and must fail because of an effect that the gateway would have prevented; a story that passes here
proves nothing there."""
import os
import subprocess
import sys
import xml.etree.ElementTree as tree

import pytest

from harness import HANG_S
from harness.yoked import DUPLICATED

HERE = os.path.dirname(os.path.abspath(__file__))
SCENARIOS = os.path.dirname(HERE)
STORIES = os.path.join(HERE, "test_yoked_protected.py")


def pytest_run(*words, **env):
    """pytest on its own, whoever runs us."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", SCENARIOS]
    return subprocess.run([*pytest_here, *words, STORIES], cwd=SCENARIOS,
                          env={**clean, **env}, capture_output=True, text=True, timeout=20 * HANG_S, check=False)


@pytest.mark.slow
def test_every_protected_story_fails_without_the_gateway(tmp_path):
    collected = [line.partition("::")[2] for line in pytest_run("--collect-only").stdout.splitlines() if "::" in line]
    assert len(collected) > 50
    report = tmp_path / "report.xml"
    run = pytest_run("--tb=line", f"--junitxml={report}", HAPAX_BYPASS="1")
    assert run.returncode == 1, run.stdout + run.stderr
    verdicts = {}
    for case in tree.parse(report).iter("testcase"):
        failure = case.find("failure")
        verdicts[case.get("name")] = "" if failure is None else failure.get("message", "")
    assert sorted(verdicts) == sorted(collected)
    useless = [name for name, message in verdicts.items() if DUPLICATED not in message]
    assert not useless, f"no effect was missed without the gateway: {useless}\n{run.stdout}"
