# SPDX-License-Identifier: Apache-2.0
"""hapax audit: every change of state is a row, and one that was changed later is named."""
import contextlib
import csv
import io
import json
import shutil
import sqlite3

import pytest

from harness import drop_after_effect, eventually, fresh_key

ROUTE = """
    routes:
      - {name: refunds, match: POST /refunds, result: /id}
    """


def rows_of(hapax, gateway, *words):
    done = hapax("audit", "export", *words, "--store", gateway.store_url)
    assert done.code == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def verify(hapax, store, *words):
    done = hapax("audit", "verify", "--json", "--store", store, *words)
    return done.code, json.loads(done.stdout)


def views_show(path, rows):
    """The views have the columns that reports expect, and say what the export says."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        audit = [dict(row) for row in database.execute("SELECT * FROM hapax_idempotency_audit ORDER BY sequence")]
        keys = [dict(row) for row in database.execute("SELECT * FROM hapax_idempotency_keys ORDER BY http_code DESC")]
    assert audit == [{name: row[name] for name in audit[0]} for row in rows]
    assert list(audit[0]) == ["sequence", "timestamp", "operation_type", "idempotency_key", "principal", "result",
                              "from_state", "to_state", "attempt", "error_code", "correlation_id"]
    first, second = keys
    assert first.pop("expires_at").endswith("Z") and second.pop("expires_at") is None
    assert first == {"key": rows[1]["idempotency_key"], "payload_hash": rows[1]["payload_hash"], "status": "completed",
                     "http_code": 201, "result_ref": "rf_1"}
    assert second["status"] == "unknown" and second["http_code"] is None


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_every_change_of_state_is_a_row(start_gateway, upstream, hapax, tmp_path, kind):
    gateway = start_gateway(config=ROUTE, **({"store": f"sqlite:{tmp_path / 'store.db'}"} if kind == "sqlite" else {}))
    first = gateway.post("/refunds", key=fresh_key(), json={"amount": 1}, headers=[("X-Correlation-Id", "c-1")])
    assert first.status == 201
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=fresh_key(), json={"amount": 2}).status in (502, 504)
    rows = rows_of(hapax, gateway)
    assert [(row["from_state"], row["to_state"]) for row in rows] == [
        ("absent", "processing"), ("processing", "completed"), ("absent", "processing"), ("processing", "unknown")]
    claimed, completed, _, unknown = rows
    assert completed["operation_type"] == "refunds" and completed["result"] == "rf_1"
    assert completed["http_code"] == 201 and completed["attempt"] == 1 and completed["correlation_id"] == "c-1"
    assert completed["timestamp"].endswith("Z") and completed["sequence"] > claimed["sequence"]
    assert len(completed["idempotency_key"]) == len(completed["principal"]) == 64
    assert unknown["error_code"] and unknown["idempotency_key"] != completed["idempotency_key"]

    assert rows_of(hapax, gateway, "--operation", unknown["operation"]) == rows[2:]
    assert rows_of(hapax, gateway, "--route", "orders") == []
    listed = hapax("audit", "list", "--store", gateway.store_url).stdout.splitlines()
    assert len(listed) == 4 and "processing -> completed  refunds  201" in listed[1]

    table = hapax("audit", "export", "--csv", "outcomes", "--store", gateway.store_url).stdout
    one, two = csv.DictReader(io.StringIO(table))
    assert table.splitlines()[0] == "key,payload_hash,status,http_code,result_id,notes"
    assert one == {"key": completed["idempotency_key"], "payload_hash": completed["payload_hash"], "status": "complete",
                   "http_code": "201", "result_id": "rf_1", "notes": "created"}
    assert two["status"] == "unknown"
    attempts = hapax("audit", "export", "--csv", "attempts", "--operation", completed["operation"], "--store",
                     gateway.store_url).stdout
    assert attempts == "attempt,delay_ms,status,code,notes\n1,0,200,201,success\n"

    eventually(lambda: verify(hapax, gateway.store_url)[1]["unlinked"] == 0, "linking of all rows")
    code, whole = verify(hapax, gateway.store_url)
    assert code == 0 and whole["whole"] and whole["changes"] == 4
    code, again = verify(hapax, gateway.store_url, "--anchor", whole["anchor"])
    assert code == 0 and again["whole"]
    if kind == "sqlite":
        views_show(tmp_path / "store.db", rows)


def test_a_changed_or_shortened_log_is_named(start_gateway, upstream, hapax, tmp_path):
    gateway = start_gateway(config=ROUTE)
    assert gateway.post("/refunds", key=fresh_key(), json={"amount": 1}).status == 201
    gateway.terminate()
    gateway.wait_exit()
    directory = gateway.store_url.removeprefix("journal:")
    before = tmp_path / "before"
    shutil.copytree(directory, before)
    gateway.start()
    assert gateway.post("/refunds", key=fresh_key(), json={"amount": 2}).status == 201
    gateway.kill()
    code, now = verify(hapax, gateway.store_url)
    assert code == 0 and now["changes"] == 4
    assert verify(hapax, gateway.store_url, "--anchor", now["anchor"])[0] == 0
    assert verify(hapax, f"journal:{before}")[0] == 0
    cut = hapax("audit", "verify", "--store", f"journal:{before}", "--anchor", now["anchor"])
    assert cut.code == 1 and "its end was cut off" in cut.stdout

    segment = before / "00000001.seg"
    data = bytearray(segment.read_bytes())
    data[128 + 100] ^= 1
    segment.write_bytes(data)
    changed = hapax("audit", "verify", "--store", f"journal:{before}")
    assert changed.code == 1 and "00000001.seg, byte 224: record 2 can't be read" in changed.stdout
    assert hapax("audit", "list", "--store", f"journal:{before}").code == 1


def test_what_is_asked_wrongly_is_refused(hapax, tmp_path):
    for words in (["verify", "--anchor", "5:xyz"], ["export", "--csv", "all"], ["list", "--anchor", "1:2"],
                  ["export", "--csv", "attempts"], ["verify", "--since", "2h"], ["list", "--since", "soon"], ["read"],
                  [], ["list", "--operation", "12"], ["export", "--csv", "inbox"], ["list", "--source", "s"]):
        assert hapax("audit", *words, "--store", f"journal:{tmp_path}").code == 2, words
    assert hapax("audit", "verify", "--store", f"journal:{tmp_path}").code == 3
    assert hapax("audit", "verify", "--store", "memory:").code == 3
