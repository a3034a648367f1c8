# SPDX-License-Identifier: Apache-2.0
"""`hapax run`: a command runs once for its key, and whoever asks for it later gets what it said."""
import collections
import json
import os
import pathlib
import random
import resource
import shlex
import signal
import sqlite3
import subprocess
import time

import pytest

from harness import EXIT_CONFIG, EXIT_STORE, EXIT_UNKNOWN, HANG_S, Run, binary, eventually, sanitized

NEWS = 'import os\nfor i in range(200):\n    os.write(1 + i % 2, b"%d\\x00\\xff\\n" % i * (i % 7))\n'


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


# Once, and replayed

def test_a_command_runs_once_and_is_replayed_to_the_byte(jobs):
    """Both streams go into one pipe, so that their order shows."""
    words = ["python3", "-c", NEWS + f"open({str(jobs.log)!r}, 'a').write('ran\\n')\nos._exit(3)"]
    first, again = (jobs.start(*words, stderr=subprocess.STDOUT) for _ in range(2))
    said, waited = (process.communicate(timeout=HANG_S)[0] for process in (first, again))
    assert said.count(b"\n") == sum(i % 7 for i in range(200))
    later = jobs.start(*words, stderr=subprocess.STDOUT)
    assert said == waited == later.communicate(timeout=HANG_S)[0]
    assert (first.returncode, again.returncode, later.returncode) == (3, 3, 3)
    assert jobs.effects() == ["ran"]


def test_each_stream_is_replayed_to_its_own(jobs):
    script = f"echo ran >> {jobs.log}; echo out; echo err >&2"
    for _ in range(3):
        ran = jobs.shell(script)
        assert (ran.code, ran.stdout, ran.stderr) == (0, "out\n", "err\n")
    assert jobs.effects() == ["ran"]


def test_another_key_is_another_run(jobs):
    for key in ("a", "b", "a"):
        assert jobs.shell(f"echo $HAPAX_KEY >> {jobs.log}", key=key).code == 0
    assert jobs.effects() == ["a", "b"]


@pytest.mark.slow
def test_fifty_at_once_are_one_execution_and_fifty_equal_outputs(jobs):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    count = 10 if sanitized() else 50
    all_of_them = [jobs.start("sh", "-c", f"echo ran >> {jobs.log}; cat {gate}; echo $$; echo done >&2; exit 4")
                   for _ in range(count)]
    gate.write_text("go\n")
    ends = [(*process.communicate(timeout=HANG_S), process.returncode) for process in all_of_them]
    assert len(set(ends)) == 1 and ends[0][2] == 4 and ends[0][0].startswith(b"go\n"), set(ends)
    assert jobs.effects() == ["ran"]


def test_who_does_not_want_to_wait_is_told(jobs):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo ran >> {jobs.log}; cat {gate}"]
    first = jobs.start(*words)
    eventually(jobs.effects, "the command runs")
    ran = jobs(*words, flags=["--no-wait"])
    assert ran.code == EXIT_UNKNOWN and "elsewhere" in ran.stderr and ran.stdout == ""
    gate.write_text("go\n")
    assert first.communicate(timeout=HANG_S)[0] == b"go\n"
    assert jobs(*words, flags=["--no-wait"]).stdout == "go\n"
    assert jobs.effects() == ["ran"]


def test_the_status_of_a_key_runs_nothing_and_says_how_its_run_ended(jobs):
    def status(key="k"):
        told = jobs.folder / "told"
        ran = Run(["run", "--store", jobs.store, "--key", key, "--status", "--outcome-file", told])
        return json.loads(told.read_text())["outcome"], ran.code, ran.stdout

    assert status() == ("absent", 1, "")
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo ran >> {jobs.log}; cat {gate}; exit 4"]
    first = jobs.start(*words)
    eventually(jobs.effects, "the command runs")
    assert status() == ("running", EXIT_UNKNOWN, "")
    gate.write_text("go\n")
    first.communicate(timeout=HANG_S)
    assert status() == ("failed", 4, "go\n") and jobs.effects() == ["ran"]
    assert jobs.shell("kill -9 $$", key="killed").code == EXIT_UNKNOWN
    assert status("killed") == ("unknown", EXIT_UNKNOWN, "")


def test_one_key_for_two_command_lines_is_refused(jobs):
    assert jobs.shell(f"echo ran >> {jobs.log}").code == 0
    for words in (["sh", "-c", f"echo RAN >> {jobs.log}"], ["sh", f"-c echo ran >> {jobs.log}"]):
        ran = jobs(*words)
        assert ran.code == EXIT_CONFIG and ran.stderr.count("fingerprint") == 1 and ", now " in ran.stderr
    assert jobs.effects() == ["ran"]


def test_an_outcome_is_kept_as_long_as_it_is_told_to_be(jobs):
    words = ["sh", "-c", f"echo ran >> {jobs.log}"]
    assert jobs(*words, flags=["--lifetime", "1s"]).code == 0
    eventually(lambda: jobs(*words).code == 0 and len(jobs.effects()) == 2, "the outcome has expired")


def test_a_natural_key_is_the_same_until_midnight(jobs):
    script = f"echo $HAPAX_KEY >> {jobs.log}"
    for at in ("2026-03-08T05:30:00Z", "2026-03-09T03:59:59Z", "2026-03-09T04:00:00Z"):
        assert jobs.shell(script, key="daily:{date:America/New_York}:user-123", flags=["--at", at]).code == 0
    assert jobs.effects() == ["daily:2026-03-08:user-123", "daily:2026-03-09:user-123"]


def test_the_command_knows_its_operation_and_its_epoch_grows(jobs):
    script = f"echo $HAPAX_OPERATION $HAPAX_ATTEMPT >> {jobs.log}; exit 1"
    for _ in range(2):
        assert jobs.shell(script, flags=["--on-failure", "release"]).code == 1
    (first, one), (second, two) = (line.split() for line in jobs.effects())
    assert first.split(".")[0] == second.split(".")[0] and int(first.split(".")[1]) < int(second.split(".")[1])
    assert (one, two) == ("1", "2")


def test_on_postgresql_it_is_the_same(jobs, database):
    jobs.store = database.url
    script = f"echo ran >> {jobs.log}; echo out; exit 5"
    several = [jobs.start("sh", "-c", script) for _ in range(4)]
    assert {(*process.communicate(timeout=HANG_S), process.returncode) for process in several} == {(b"out\n", b"", 5)}
    assert jobs.effects() == ["ran"]
    for attempt in ("1", "2"):
        ran = jobs.shell("echo $HAPAX_ATTEMPT; exit 1", key="s", flags=["--class", "scheduled"])
        assert ran.stdout == attempt + "\n"


# Outcomes

@pytest.mark.parametrize("code", [0, 1, 2, 75, 128, 166, 255])
def test_every_exit_code_is_replayed_and_told_from_ours(jobs, code):
    script, outcome = f"echo ran >> {jobs.log}; exit {code}", "failed" if code else "completed"
    for replayed in (False, True):
        seen, told = jobs.told(script)
        assert seen == code
        assert {name: told[name] for name in ("outcome", "exit_code", "replayed", "attempt", "key")} == {
            "outcome": outcome, "exit_code": code, "replayed": replayed, "attempt": 1, "key": "k"}
    assert jobs.effects() == ["ran"]


@pytest.mark.parametrize("script, says", [("kill -9 $$", "signal 9"), ("kill -TERM $$", "signal 15"),
                                          ("exit 137", "137"), ("sh -c 'kill -9 $$'", "137")])
def test_death_by_a_signal_is_unknown_and_names_the_way_out(jobs, script, says):
    script = f"echo ran >> {jobs.log}; {script}"
    code, told = jobs.told(script)
    assert (code, told["outcome"], told["exit_code"]) == (EXIT_UNKNOWN, "unknown", None)
    ran = jobs.shell(script)
    assert ran.code == EXIT_UNKNOWN and "--resolve done|failed|release --key 'k'" in ran.stderr
    assert says in jobs.shell(script, key="other").stderr
    assert jobs.effects() == ["ran", "ran"]


def test_codes_of_signals_may_be_plain(jobs):
    for _ in range(2):
        assert jobs.shell(f"echo ran >> {jobs.log}; exit 137", flags=["--plain-codes"]).code == 137
    assert jobs.effects() == ["ran"]


@pytest.mark.parametrize("word, code, runs", [("done", 0, 1), ("failed", 1, 1), ("release", EXIT_UNKNOWN, 2)])
def test_who_has_found_out_says_how_it_ended(jobs, word, code, runs):
    script = f"echo $HAPAX_ATTEMPT >> {jobs.log}; kill -9 $$"
    assert jobs.shell(script).code == EXIT_UNKNOWN
    assert jobs.resolve(word).code == 0
    assert jobs.shell(script).code == code
    assert jobs.effects() == ["1", "2"][:runs]


@pytest.mark.parametrize("script, state", [("exit 0", "completed"), (None, "absent")])
def test_only_the_unknown_can_be_resolved(jobs, script, state):
    if script:
        assert jobs.shell(script).code == 0
    ran = jobs.resolve("release")
    assert ran.code == EXIT_CONFIG and state in ran.stderr


def test_a_command_that_can_not_be_started_may_be_started_later(jobs):
    program = jobs.folder / "program"
    assert jobs(program).code == 127
    program.write_text(f"#!/bin/sh\necho ran >> {jobs.log}\n")
    assert jobs(program).code == 126
    program.chmod(0o755)
    assert jobs(program).code == 0
    assert jobs.effects() == ["ran"]


def test_listed_codes_are_retried_by_class_and_then_released(jobs):
    script = f"echo $HAPAX_ATTEMPT >> {jobs.log}; echo out; exit 75"
    ran = jobs.shell(script, flags=["--retry-on", "75,100-110"])
    assert (ran.code, ran.stdout) == (75, "out\n" * 4)
    assert jobs.effects() == ["1", "2", "3", "4"]
    code, told = jobs.told(f"echo $HAPAX_ATTEMPT >> {jobs.log}; test $HAPAX_ATTEMPT -ge 6 || exit 100",
                           flags=["--retry-on", "75,100-110"])
    assert (code, told["outcome"], told["attempt"]) == (0, "completed", 6)
    assert jobs.effects() == ["1", "2", "3", "4", "5", "6"]


def test_a_retry_that_succeeds_is_replayed_with_all_of_its_output(jobs):
    script = "echo attempt $HAPAX_ATTEMPT; test $HAPAX_ATTEMPT = 2 || exit 75"
    first, again = (jobs.shell(script, flags=["--retry-on", "75"]) for _ in range(2))
    assert (first.code, first.stdout) == (again.code, again.stdout) == (0, "attempt 1\nattempt 2\n")


def test_a_scheduled_job_that_fails_is_tried_by_the_next_call(jobs):
    script = f"echo $HAPAX_ATTEMPT >> {jobs.log}; test $HAPAX_ATTEMPT = 3 || exit 9"
    assert [jobs.shell(script, flags=["--class", "scheduled"]).code for _ in range(5)] == [9, 9, 0, 0, 0]
    assert jobs.effects() == ["1", "2", "3"]


def test_a_scheduled_job_may_keep_its_failures(jobs):
    flags = ["--class", "scheduled", "--on-failure", "store"]
    for _ in range(2):
        assert jobs.shell(f"echo ran >> {jobs.log}; exit 9", flags=flags).code == 9
    assert jobs.effects() == ["ran"]


# Output

@pytest.mark.parametrize("bytes_written", [100, 300_000, 1_000_000])
def test_output_is_kept_in_memory_and_beyond(jobs, bytes_written):
    script = f"echo ran >> {jobs.log}; head -c {bytes_written} /dev/zero | tr '\\0' x"
    assert jobs.shell(script).stdout == jobs.shell(script).stdout == "x" * bytes_written
    assert jobs.effects() == ["ran"]


@pytest.mark.parametrize("flags", [["--output-max", "64KiB"], ["--no-store-output"]])
def test_output_that_is_not_kept_leaves_the_exit_code(jobs, flags):
    script = f"echo ran >> {jobs.log}; head -c 100000 /dev/zero | tr '\\0' x; exit 3"
    first, again = (jobs.shell(script, flags=flags) for _ in range(2))
    assert (first.code, len(first.stdout), first.stderr) == (3, 100000, "")
    assert (again.code, again.stdout) == (3, "") and "not kept" in again.stderr
    assert jobs.effects() == ["ran"]


def test_output_without_end_is_passed_on_in_bounded_memory(jobs):
    process = jobs.start("sh", "-c", f"echo ran >> {jobs.log}; exec cat /dev/zero")
    read = 0
    while read < 100_000_000:
        read += len(process.stdout.read(1_000_000))
    resident = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize()
    assert resident < (300 if sanitized() else 40) << 20
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=HANG_S)[1].count(b"signal 15") == 1
    assert process.returncode == EXIT_UNKNOWN


def test_a_reader_who_leaves_does_not_end_the_command(jobs):
    """As in `hapax run … | head -1`."""
    script = f"echo first; head -c 300000 /dev/zero; echo ran >> {jobs.log}; echo last"
    process = jobs.start("sh", "-c", script)
    assert process.stdout.readline() == b"first\n"
    process.stdout.close()
    assert process.wait(HANG_S) == 0
    assert jobs.shell(script).stdout.endswith("last\n")
    assert jobs.effects() == ["ran"]


# Processes

def test_signals_go_to_the_command(jobs):
    script = f"trap 'echo told; exit 7' USR1; echo ran >> {jobs.log}; while :; do sleep 0.01; done"
    process = jobs.start("sh", "-c", script)
    eventually(jobs.effects, "the command runs")
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=HANG_S)[0] == b"told\n" and process.returncode == 7


def test_what_leaves_the_session_is_killed_and_named_and_unknown(jobs):
    leaving = ("import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
               f"open({str(jobs.log)!r}, 'w').write(str(os.getpid()))\nos.execvp('sleep', ['sleep', '1000'])")
    script = f"python3 -c \"{leaving}\"; while ! test -s {jobs.log}; do :; done"
    ran = jobs.shell(script)
    daemon = int(jobs.effects()[0])
    assert ran.code == EXIT_UNKNOWN and f"({daemon})" in ran.stderr and "session" in ran.stderr
    assert not is_alive(daemon)
    assert jobs.shell(script).code == EXIT_UNKNOWN


def test_what_leaves_the_session_after_the_command_has_ended_is_killed_too(jobs):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    leaving = (f"import os\nopen({str(gate)!r}).read()\nos.setsid()\n"
               f"open({str(jobs.log)!r}, 'w').write(str(os.getpid()))\nos.execvp('sleep', ['sleep', '1000'])")
    process = jobs.start("sh", "-c", f"python3 -c \"{leaving}\" & echo $$")
    command = int(process.stdout.readline())
    eventually(lambda: not is_alive(command), "the command has ended")
    gate.write_text("")
    said = process.communicate(timeout=HANG_S)[1].decode()
    assert process.returncode == EXIT_UNKNOWN and f"({jobs.effects()[0]})" in said
    assert not is_alive(int(jobs.effects()[0]))


def test_what_stays_in_the_session_is_waited_for(jobs):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    process = jobs.start("sh", "-c", f"(cat {gate}; echo late >> {jobs.log}; echo late) & echo early")
    assert process.stdout.readline() == b"early\n"
    gate.write_text("")
    assert process.communicate(timeout=HANG_S)[0] == b"late\n" and process.returncode == 0
    assert jobs.effects() == ["late"]


@pytest.mark.parametrize("victim", ["parent", "supervisor", "command"])
def test_nothing_outlives_whoever_is_killed(jobs, victim):
    script = f"sleep 1000 & setsid sleep 1000 & echo $$ >> {jobs.log}; wait"
    process = jobs.start("sh", "-c", script)
    command = int(eventually(jobs.effects, "the command runs")[0])
    supervisor = eventually(lambda: children(process.pid), "the supervisor runs")[0]
    sleepers = eventually(lambda: len(children(command)) == 2 and children(command), "both children run")
    kill({"parent": process.pid, "supervisor": supervisor, "command": command}[victim])
    if victim == "command":
        for child in sleepers[:1]:
            kill(child)
    said = process.communicate(timeout=HANG_S)[1].decode()
    eventually(lambda: not any(map(is_alive, [supervisor, command, *sleepers])), "all are dead")
    if victim != "parent":
        assert process.returncode == EXIT_UNKNOWN and "--resolve" in said, said
    jobs.end_leases()
    ran = jobs.shell(script)
    assert ran.code == EXIT_UNKNOWN and "--resolve" in ran.stderr
    assert len(jobs.effects()) == 1


def test_children_that_are_not_the_commands_are_left_alone(jobs):
    """As of a shell that starts something and then becomes `hapax run`."""
    words = shlex.join(map(str, [binary(), *jobs.words("sh", "-c", f"echo ran >> {jobs.log}; exec sleep 1000")]))
    process = subprocess.Popen(["sh", "-c", f"sleep 1000 & exec {words}"], stderr=subprocess.PIPE)
    eventually(jobs.effects, "the command runs")
    other, supervisor = children(process.pid)
    kill(supervisor)
    assert process.wait(HANG_S) == EXIT_UNKNOWN
    assert is_alive(other)
    kill(other)
    process.stderr.close()


def test_closed_streams_are_no_obstacle(jobs):
    words = shlex.join(map(str, [binary(), *jobs.words("sh", "-c", f"echo ran >> {jobs.log}; echo out")]))
    assert subprocess.run(["sh", "-c", f"exec {words} 0<&- 1>&- 2>&-"], check=False).returncode == 0
    assert jobs.shell(f"echo ran >> {jobs.log}; echo out").stdout == "out\n"
    assert jobs.effects() == ["ran"]


@pytest.mark.slow
def test_a_lost_claim_kills_the_command(jobs):
    process = jobs.start("sh", "-c", f"echo $$ >> {jobs.log}; sleep 1000")
    command = int(eventually(jobs.effects, "the command runs")[0])
    assert jobs.change("UPDATE hapax_operations SET epoch = epoch + 1") == 1
    said = process.communicate(timeout=HANG_S)[1].decode()
    assert process.returncode == EXIT_UNKNOWN and "claim was lost" in said
    assert not is_alive(command)


def appending(jobs, line):
    """A command that takes a while before and after it appends the line."""
    work = "i=0; while test $i -lt 10000; do i=$((i+1)); done"
    return ["sh", "-c", f"{work}; echo '{line}' >> {jobs.log}; {work}"]


def killed_at_random(jobs, number, victim, after_s):
    """Kills somebody at some time, and runs the same again. Returns what that said, and whether the line is there."""
    line = f"line-{number}"
    words = appending(jobs, line)
    process = jobs.start(*words, key=line)
    time.sleep(after_s)  # a random moment is the point
    supervisors = children(process.pid)
    commands = [child for pid in supervisors for child in children(pid)]
    victims = {"parent": [process.pid], "supervisor": supervisors, "command": commands,
               "all": [process.pid, *supervisors, *commands]}[victim]
    for pid in victims:
        kill(pid)
    process.communicate(timeout=HANG_S)
    eventually(lambda: not any(map(is_alive, [*supervisors, *commands])), "all are dead")
    jobs.end_leases()
    ran = jobs(*words, key=line)
    assert ran.code in (0, EXIT_UNKNOWN), ran
    if ran.code == EXIT_UNKNOWN:
        assert "--resolve" in ran.stderr
    return ran.code, jobs.effects().count(line)


@pytest.mark.slow
def test_killed_at_random_the_line_is_there_once_or_it_says_unknown(jobs):
    if sanitized():
        pytest.skip("the process that checks for leaks would be killed, and waited for")
    count, seen = int(os.environ.get("HAPAX_RUN_KILLS", "20")), collections.Counter()
    began = time.monotonic()
    assert jobs(*appending(jobs, "how-long-it-takes"), key="how-long-it-takes").code == 0
    span = time.monotonic() - began
    for number in range(count):
        victim = ("parent", "supervisor", "command", "all")[number % 4]
        code, lines = killed_at_random(jobs, number, victim, random.uniform(0, span))
        assert lines == 1 or (code == EXIT_UNKNOWN and lines == 0), (victim, code, lines)
        seen[victim, code, lines] += 1
    print(dict(seen))
    if count >= 200:
        assert {code for _, code, _ in seen} == {0, EXIT_UNKNOWN}, seen


# The store

def test_a_store_that_can_not_be_opened_runs_nothing(jobs):
    jobs.store = f"sqlite:{jobs.folder}/nowhere/run.sqlite"
    code, told = jobs.told(f"echo ran >> {jobs.log}", flags=["--wait", "100ms"])
    assert (code, told["outcome"]) == (EXIT_STORE, "not_run")
    assert jobs.effects() == []


@pytest.mark.slow
def test_a_store_that_is_held_runs_nothing(jobs):
    assert jobs("true", key="first").code == 0
    holder = sqlite3.connect(jobs.file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    ran = jobs.shell(f"echo ran >> {jobs.log}", flags=["--wait", "0s"])
    assert ran.code == EXIT_STORE and "not run" in ran.stderr
    holder.execute("ROLLBACK")
    holder.close()
    assert jobs.effects() == []
    assert jobs.shell(f"echo ran >> {jobs.log}").code == 0


def test_the_store_is_the_configured_one_and_by_default_a_private_file_of_the_user(jobs):
    home = {"XDG_STATE_HOME": str(jobs.folder / "state"), "STATE_DIRECTORY": str(jobs.folder / "unit")}
    words = ["run", "--key", "k", "--", "sh", "-c", f"echo ran >> {jobs.log}"]
    assert Run(words, env=home).code == Run(words, env=home).code == 0
    file = jobs.folder / "unit" / "run.sqlite"
    assert file.exists() and file.stat().st_mode & 0o077 == 0
    assert jobs.effects() == ["ran"]
    assert Run(words, env={**home, "HAPAX_STORE": jobs.store}).code == 0
    assert jobs.effects() == ["ran", "ran"] and jobs.file.exists()


def test_a_run_that_was_done_before_costs_little(jobs):
    jobs.shell("echo done")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(20):
        jobs.shell("echo done")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    each = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 20
    assert sanitized() or each <= 0.010, each


@pytest.mark.parametrize("words, says", [
    (["--", "true"], "--key"), (["--key", "k"], "no command"), (["--key", "k", "true"], "after --"),
    (["--key", "a b", "--", "true"], "--key"), (["--key", "{date:Nowhere/Land}", "--", "true"], "--key"),
    (["--key", "k", "--store", "journal:/tmp/x", "--", "true"], "belongs to its daemon"),
    (["--key", "k", "--store", "memory:", "--", "true"], "memory:"),
    (["--key", "k", "--retry-on", "0", "--", "true"], "--retry-on"),
    (["--key", "k", "--retry-on", "137", "--", "true"], "--plain-codes"),
    (["--key", "k", "--class", "webhook", "--", "true"], "--class"),
    (["--key", "k", "--on-failure", "cry", "--", "true"], "--on-failure"),
    (["--key", "k", "--output-max", "1GiB", "--", "true"], "--output-max"),
    (["--key", "k", "--lifetime", "soon", "--", "true"], "--lifetime"),
    (["--key", "k", "--at", "noon", "--", "true"], "--at"),
    (["--key", "k", "--resolve", "done", "--", "true"], "no command"),
    (["--key", "k", "--resolve", "maybe"], "--resolve"), (["--key", "k", "--status", "--", "true"], "no command"),
    (["--key", "k", "--status", "--resolve", "done"], "exclude"),
])
def test_bad_usage_runs_nothing_and_says_what_is_wrong(jobs, words, says):
    ran = Run(["run", *words], env={"HAPAX_STORE": jobs.store})
    assert ran.code == EXIT_CONFIG and says in ran.stderr, ran
