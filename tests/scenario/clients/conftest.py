# SPDX-License-Identifier: Apache-2.0
import json
import os
import sqlite3
import subprocess

import pytest

from harness import Run, binary
from harness.gateway import environment


class Sender:
    """Runs `hapax send` with a folder of intents of its own."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, env=None):
        return Run(["send", *words, "--intents", self.folder, "--quiet"], env=env)

    def json(self, *words, env=None):
        ran = self(*words, "--json", env=env)
        return ran.code, json.loads(ran.stdout) if ran.stdout else None

    def files(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".intent"))


@pytest.fixture
def send(tmp_path):
    return Sender(tmp_path / "intents")


class Jobs:
    """Runs commands by `hapax run`, with a store of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "run.sqlite"
        self.store = f"sqlite:{self.file}"
        self.log = folder / "effects"

    def words(self, *command, key="k", flags=()):
        return ["run", "--store", self.store, "--key", key, *flags, "--", *command]

    def __call__(self, *command, key="k", flags=(), env=None):
        return Run(self.words(*command, key=key, flags=flags), env=env)

    def shell(self, script, key="k", flags=(), env=None):
        return self("sh", "-c", script, key=key, flags=flags, env=env)

    def start(self, *command, key="k", flags=(), **popen):
        words = [str(word) for word in (binary(), *self.words(*command, key=key, flags=flags))]
        popen = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        return subprocess.Popen(words, env=environment(), **popen)

    def told(self, script, key="k", flags=()):
        """The exit code, and what --outcome-file says."""
        file = self.folder / "outcome"
        ran = self.shell(script, key=key, flags=[*flags, "--outcome-file", file])
        return ran.code, json.loads(file.read_text())

    def resolve(self, word, key="k"):
        return Run(["run", "--store", self.store, "--key", key, "--resolve", word])

    def effects(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def change(self, sql):
        """Changes the store behind everybody's back; returns how many rows."""
        database = sqlite3.connect(self.file, timeout=30)
        with database:
            count = database.execute(sql).rowcount
        database.close()
        return count

    def end_leases(self):
        """As if half a minute had passed since the claims that are in flight were renewed."""
        if self.file.exists():
            self.change("UPDATE hapax_operations SET lease_until = 1, due = 1 WHERE state = 1")


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)
