# SPDX-License-Identifier: Apache-2.0
"""Node, with the packages of tests/node: `./dev` installs them; where that wasn't used, the first story does."""
import contextlib
import fcntl
import json
import subprocess

from .gateway import ROOT

FOLDER = ROOT / "tests" / "node"
MODULES = FOLDER / "node_modules"


@contextlib.contextmanager
def installed():
    """Only one process at a time, of those that share the stories, installs or compiles."""
    with open(FOLDER / "package-lock.json", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (MODULES / "typescript").exists():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=FOLDER, check=True)
        yield


def ask(script, question):
    """Runs a script of tests/node; it reads JSON and prints JSON."""
    with installed():
        pass
    ran = subprocess.run(["node", FOLDER / script], input=json.dumps(question), capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
