# SPDX-License-Identifier: Apache-2.0
"""Node, with the packages of tests/node: `./dev` installs them; where that wasn't used, the first story does."""
import concurrent.futures
import contextlib
import fcntl
import hashlib
import itertools
import json
import subprocess
import threading

from .gateway import ROOT
from .waiting import HANG_S

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


def compiled():
    """The folder with the TypeScript client and the Express example as JavaScript: compiled once for each version."""
    sources = sorted([*ROOT.glob("clients/typescript/*.ts"), *ROOT.glob("examples/express/*.ts"),
                      *FOLDER.glob("tsconfig*.json")])
    version = hashlib.sha256(b"\0".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    folder = MODULES / ".hapax" / version
    with installed():
        if not (folder / "package.json").exists():
            for config in sorted(FOLDER.glob("tsconfig*.json")):
                ran = subprocess.run([MODULES / ".bin" / "tsc", "-p", config, "--outDir", folder], cwd=FOLDER,
                                     capture_output=True, text=True, check=False)
                assert ran.returncode == 0, ran.stdout
            (folder / "package.json").write_text('{"type": "module"}')
    return folder


class Node:
    """A process that uses the TypeScript client, as tests/node/client.mjs says."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["node", FOLDER / "client.mjs", compiled() / "clients" / "typescript" / "hapax.js"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.numbers, self.lock, self.waiting = itertools.count(), threading.Lock(), {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            told = json.loads(line)
            self.waiting.pop(told["id"]).set_result(told)
        for pending in list(self.waiting.values()):
            pending.set_exception(EOFError("node has ended"))

    def begin(self, act, **question):
        with self.lock:
            number = next(self.numbers)
            pending = self.waiting[number] = concurrent.futures.Future()
            self.process.stdin.write(json.dumps({"id": number, "act": act, **question}) + "\n")
            self.process.stdin.flush()
        return pending

    def __call__(self, act, **question):
        """The answer, or {"error": its name, …}."""
        told = self.begin(act, **question).result(HANG_S)
        return told if "error" in told else told["answer"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
