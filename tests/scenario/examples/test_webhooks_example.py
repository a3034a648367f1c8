# SPDX-License-Identifier: Apache-2.0
"""examples/webhooks: the document's "Webhook Processing" behind the inbox. Its script sends every event three times;
the application's database is counted here."""
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest

from harness import HANG_S, binary
from harness.gateway import ROOT

EXAMPLE = ROOT / "examples" / "webhooks"


def rows(directory, sql):
    with contextlib.closing(sqlite3.connect(directory / "shop.db")) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.slow
def test_each_webhook_is_acknowledged_and_processed_once(tmp_path):
    run = subprocess.run([sys.executable, "-B", str(EXAMPLE / "try"), "--data", str(tmp_path)], capture_output=True,
                         text=True, timeout=5 * HANG_S, check=False, env={**os.environ, "HAPAX": str(binary())})
    assert run.returncode == 0, run.stdout + run.stderr
    got = re.findall(r"(\d{3}) (\{[^}]*\}), (\w+)", run.stdout)
    assert [(status, json.loads(body)) for status, body, _ in got] == [("200", {"received": True})] * 6, run.stdout
    assert [word for _, _, word in got] == ["stored", "replayed"] * 3
    assert run.stdout.count("401 AUTH.signature_invalid") == 2
    assert rows(tmp_path, "SELECT invoice FROM payments ORDER BY 1") == [("in_1",), ("in_2",), ("in_3",)]
    assert rows(tmp_path, "SELECT event_id, count(*) FROM calls GROUP BY 1") == [
        ("evt_1", 1), ("evt_2", 2), ("evt_3", 2)]
    assert rows(tmp_path, "SELECT count(DISTINCT idempotency_key) FROM processed") == [(3,)]


def test_configuration_is_one_that_a_strict_check_takes(hapax, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stripe.secret").write_text("whsec_test_secret")
    (tmp_path / "hapax.yaml").write_text((EXAMPLE / "hapax.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    checked = hapax("check", "--strict", tmp_path / "hapax.yaml")
    assert checked.code == 0, checked
