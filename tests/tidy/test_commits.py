# SPDX-License-Identifier: Apache-2.0
"""tools/commits, shown rule by rule, and on repositories as CI and developers have them."""
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_loader = importlib.machinery.SourceFileLoader("commits", str(ROOT / "tools" / "commits"))
commits = importlib.util.module_from_spec(importlib.util.spec_from_loader("commits", _loader))
_loader.exec_module(commits)

WHY = "\n\nA waiter was woken twice when its lease ran out.\n"
GOOD = "gateway: a waiter is woken once" + WHY


@pytest.mark.parametrize("message", [
    GOOD,
    "x: " + "y" * 33 + " " + "z" * 35 + WHY,
    "Revert \"gateway: a waiter is woken once\"\n\nThis reverts commit 18c4d79, which woke none at all.\n",
    "store/journal: segments are synced first" + WHY + "\nSigned-off-by: Ada <ada@example.org>\n",
])
def test_message_that_says_what_and_why_passes(message):
    assert not list(commits.findings(message))


@pytest.mark.parametrize("message, finding", [
    ("x", "is not `subsystem: what changed`"),
    ("gateway: fix" + WHY, "is not `subsystem: what changed`"),
    ("a waiter is woken once" + WHY, "is not `subsystem: what changed`"),
    ("x: " + "y" * 33 + " " + "z" * 36 + WHY, "the subject has 73 columns"),
    ("gateway: a waiter is woken once", "does not say why"),
    ("gateway: a waiter is woken once\n\nsee the tests\n", "does not say why"),
    ("gateway: a waiter is woken once\n\nSigned-off-by: Ada Lovelace, London <a@b.org>\n", "does not say why"),
    ("gateway: a waiter is woken once\nwhen its lease ran out twice\n", "an empty line separates"),
    ("fixup! gateway: a waiter is woken once" + WHY, "folded into another"),
])
def test_message_is_refused(message, finding):
    assert any(finding in one for one in commits.findings(message))


class Repository:
    """A repository whose past breaks the rule, and where the rule then came."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        self.commit("x")
        (path / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "commits", path / "tools" / "commits")
        self.commit("y")

    def git(self, *words, days=0):
        date = f"{1700000000 + 86400 * days} +0000"
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_DATE": date,
                       "GIT_COMMITTER_DATE": date}
        for role in ("AUTHOR", "COMMITTER"):
            environment.update({f"GIT_{role}_NAME": "Ada", f"GIT_{role}_EMAIL": "ada@example.org"})
        subprocess.run(["git", *words], cwd=self.path, env=environment, check=True, capture_output=True)

    def commit(self, message, days=0):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, days=days)

    def clone(self, *options):
        copy = Repository.__new__(Repository)
        copy.path = self.path.parent / "clone"
        subprocess.run(["git", "clone", "-q", *options, f"file://{self.path}", str(copy.path)], check=True)
        return copy

    def check(self, *words):
        run = subprocess.run([sys.executable, "tools/commits", *words], cwd=self.path, capture_output=True, text=True,
                             check=False)
        assert not run.stderr
        return run.returncode, run.stdout


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "origin")


def test_past_before_the_rule_is_left_alone(repository):
    assert repository.check() == (0, "0 commits checked, 0 findings\n")


def test_branch_answers_for_its_own_commits_only(repository):
    repository.commit("z")
    repository.git("checkout", "-q", "-b", "change")
    repository.commit(GOOD)
    assert repository.check() == (0, "1 commits checked, 0 findings\n")
    repository.commit("gateway: another waiter is woken")
    code, output = repository.check()
    assert code == 1 and "another waiter is woken\": the body does not say why" in output and "\"z\"" not in output


def test_clone_answers_for_what_the_remote_has_not(repository):
    repository.commit("z")
    clone = repository.clone()
    clone.commit("gateway: a waiter is woken once")
    code, output = clone.check()
    assert code == 1 and "2 findings" not in output and "\"z\"" not in output


def test_fresh_clone_of_main_answers_for_the_last_day(repository):
    repository.commit("z")
    repository.commit("store: a bare subject of today", days=3)
    code, output = repository.clone().check()
    assert code == 1 and "a bare subject of today" in output and "\"z\"" not in output


def test_base_can_be_named(repository):
    repository.commit("z")
    repository.commit(GOOD)
    assert repository.check("HEAD~1") == (0, "1 commits checked, 0 findings\n")
    assert repository.check("HEAD~2")[0] == 1


def test_shallow_clone_says_that_nothing_was_checked(repository):
    repository.commit("z")
    code, output = repository.clone("--depth", "1").check()
    assert code == 0 and "no commit was checked: the clone is shallow" in output


def test_folder_without_history_says_that_nothing_was_checked(repository):
    shutil.rmtree(repository.path / ".git")
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(repository.path.parent)}
    run = subprocess.run([sys.executable, "tools/commits"], cwd=repository.path, env=environment, capture_output=True,
                         text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "no commit was checked: there is no history here\n")


def test_merge_is_not_looked_at(repository):
    repository.git("checkout", "-q", "-b", "change")
    repository.commit(GOOD)
    repository.git("checkout", "-q", "main")
    repository.commit("z")
    repository.git("checkout", "-q", "change")
    repository.git("merge", "-q", "-m", "Merge", "main")
    assert repository.check() == (0, "1 commits checked, 0 findings\n")
