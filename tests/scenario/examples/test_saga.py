# SPDX-License-Identifier: Apache-2.0
"""examples/saga: whoever is killed, every refund is in the ledger once. What the example's script prints is not
believed: the databases of both services are counted here."""
import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

from harness import HANG_S, binary, sanitized
from harness.gateway import ROOT

EXAMPLE = ROOT / "examples" / "saga"


def rows(database, sql):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def run_saga(directory, refunds, *flags):
    run = subprocess.run([sys.executable, "-B", str(EXAMPLE / "run"), "--data", str(directory), "--refunds",
                          str(refunds), *flags], capture_output=True, text=True, timeout=10 * HANG_S, check=False,
                         env={**os.environ, "HAPAX": str(binary())})
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def is_in_both(directory, ledger, refunds):
    """Every refund that was made is in that ledger, with two entries that balance and its last state."""
    made = rows(directory / "refunds" / "refunds.db", "SELECT id, amount FROM refunds ORDER BY id")
    database = directory / ledger / "ledger.db"
    assert len(made) == refunds
    assert rows(database, "SELECT refund, amount FROM entries WHERE account = 'ch_1' ORDER BY refund") == made
    assert rows(database, "SELECT refund, -amount FROM entries WHERE account = 'merchant' ORDER BY refund") == made
    assert rows(database, "SELECT DISTINCT state, version FROM refunds") == [("succeeded", 2)]
    assert rows(database, "SELECT count(*) FROM inbox_events WHERE processed_at IS NOT NULL") == [(2 * refunds,)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["3", "8"])
def test_every_refund_is_in_the_ledger_once_whoever_is_killed(tmp_path, seed):
    refunds = 15 if sanitized() else 40
    shown = run_saga(tmp_path / "saga", refunds, "--seed", seed, "--kills", "5" if sanitized() else "12")
    is_in_both(tmp_path / "saga", "ledger", refunds)
    is_in_both(tmp_path / "saga", "shuffled", refunds)
    calls = rows(tmp_path / "saga" / "ledger" / "ledger.db", "SELECT count(*) FROM calls")[0][0]
    assert calls > 2 * refunds, f"no kill made the ledger be called twice, so this shows nothing:\n{shown}"


def test_configurations_are_ones_that_a_strict_check_takes(hapax, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "webhook.secret").write_text("whsec_" + "A" * 44)
    for name in ("refunds.yaml", "ledger.yaml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text(encoding="utf-8"), encoding="utf-8")
        checked = hapax("check", "--strict", tmp_path / name)
        assert checked.code == 0, checked
