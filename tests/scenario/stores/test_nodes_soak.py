# SPDX-License-Identifier: Apache-2.0
"""The short forms of `./dev soak nodes`, `failover` and `transactional`: gateways, the primary and the application,
killed under load."""
import json
import os
import subprocess
import sys

import pytest

from harness import binary
from harness.gateway import ROOT, environment


def soak(name, *arguments):
    command = [sys.executable, str(ROOT / "tests" / "soak" / f"{name}.py"), "--short", "--json", "--hapax",
               str(binary()), *arguments]
    result = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    report = json.loads(result.stdout)
    assert report["failure"] is None
    assert report["looked_at_again"] >= report["acknowledged"] > 0
    return report


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--pooled",)], ids=["direct", "pooled"])
def test_two_gateways_of_which_either_is_killed_are_one(arguments):
    report = soak("nodes", *arguments)
    assert report["kills"] >= 2
    assert report["acknowledged"] + report["unknown"] == report["keys"] == 300


@pytest.mark.slow
def test_a_primary_that_is_killed_takes_nothing_acknowledged_with_it():
    report = soak("failover")
    assert report["kills"] == 2
    assert min(report["least_requests_in_flight"], report["least_connections_in_commit"]) >= 32


@pytest.mark.slow
def test_whoever_is_killed_every_key_has_one_effect():
    command = [sys.executable, str(ROOT / "tests" / "soak" / "transactional.py"), "--short"]
    result = subprocess.run(command, capture_output=True, env={**os.environ, "HAPAX": str(binary())}, check=False)
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    assert b"one effect each" in result.stdout
