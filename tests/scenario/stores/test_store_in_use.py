# SPDX-License-Identifier: Apache-2.0
"""A store has one owner, whatever is done to its files while it is in use. Two gateways that each believe to have a
store would each execute what the other has executed."""
import os
import re

import pytest

from harness import EXIT_STORE, eventually, fresh_key


def remove_the_lock(store, tmp_path):
    (store / "lock").unlink()
    return store


def replace_the_lock(store, tmp_path):
    (store / "other").write_text("process 1\n", encoding="utf-8")
    (store / "other").rename(store / "lock")
    return store


def come_by_another_path(store, tmp_path):
    (store / "lock").unlink()
    (tmp_path / "alias").symlink_to(store)
    return tmp_path / "alias"


def link_the_files_elsewhere(store, tmp_path):
    """The same segments, in a directory and with a lock of their own."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ["FORMAT", "secret", "segments", *(file.name for file in store.glob("*.seg"))]:
        os.link(store / name, elsewhere / name)
    return elsewhere


def move_the_directory(store, tmp_path):
    (store / "lock").unlink()
    return store.rename(tmp_path / "moved")


@pytest.mark.parametrize("trick", [remove_the_lock, replace_the_lock, come_by_another_path, link_the_files_elsewhere,
                                   move_the_directory])
def test_second_gateway_is_kept_out(start_gateway, hapax, upstream, tmp_path, key, trick):
    first = start_gateway(store=f"journal:{tmp_path}/store")
    stored = first.post("/refunds", key=key, json={})
    store = trick(tmp_path / "store", tmp_path)
    second = hapax("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--store", f"journal:{store}")
    assert second.code == EXIT_STORE, second
    assert re.search(r"is in use by another process", second.stderr), second
    again = first.post("/refunds", key=key, json={})
    assert (again.status, again.body) == (stored.status, stored.body)
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_gateway_whose_store_was_moved_begins_nothing_new(start_gateway, upstream, tmp_path, key, kind):
    """Whoever starts at that path next makes a new store, which knows nothing of what this one begins."""
    place = tmp_path / "store"
    gateway = start_gateway(store=f"{kind}:{place}")
    assert gateway.post("/refunds", key=key, json={}).status == 201
    place.rename(tmp_path / "moved")

    def refused():
        effects = upstream.effects("/refunds")
        response = gateway.post("/refunds", key=fresh_key(), json={})
        return response.status == 503 and upstream.effects("/refunds") == effects

    eventually(refused, "a refusal of new operations")
    assert refused()
    eventually(lambda: re.search("was moved, (replaced|removed)", gateway.shown_output()), "a line in the log")
    (tmp_path / "moved").rename(place)
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json={}).status == 201, "new operations")
    effects = upstream.effects("/refunds")
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == effects
