# SPDX-License-Identifier: Apache-2.0
import json
import os

import pytest

from harness import Run


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
