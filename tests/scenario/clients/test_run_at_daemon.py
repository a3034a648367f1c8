# SPDX-License-Identifier: Apache-2.0
"""`hapax run` with a daemon as its store: the same stories, told to the daemon's socket or to its API with a token; and
nothing runs while the daemon that was configured can't be reached."""
import os

import pytest

from harness import EXIT_CONFIG, EXIT_STORE, HANG_S, Run, eventually
from test_run import test_a_lost_claim_kills_the_command as a_lost_claim_kills_the_command
from test_run import (test_a_command_runs_once_and_is_replayed_to_the_byte,
                      test_a_command_that_can_not_be_started_may_be_started_later,
                      test_a_run_that_was_done_before_costs_little, test_a_scheduled_job_may_keep_its_failures,
                      test_a_scheduled_job_that_fails_is_tried_by_the_next_call, test_another_key_is_another_run,
                      test_death_by_a_signal_is_unknown_and_names_the_way_out,
                      test_each_stream_is_replayed_to_its_own, test_every_exit_code_is_replayed_and_told_from_ours,
                      test_fifty_at_once_are_one_execution_and_fifty_equal_outputs,
                      test_killed_at_random_the_line_is_there_once_or_it_says_unknown,
                      test_listed_codes_are_retried_by_class_and_then_released,
                      test_nothing_outlives_whoever_is_killed, test_one_key_for_two_command_lines_is_refused,
                      test_only_the_unknown_can_be_resolved, test_output_is_kept_in_memory_and_beyond,
                      test_output_that_is_not_kept_leaves_the_exit_code,
                      test_the_command_knows_its_operation_and_its_epoch_grows,
                      test_who_does_not_want_to_wait_is_told, test_who_has_found_out_says_how_it_ended)

__all__ = [name for name in dir() if name.startswith("test_")]


def socket_of(api):
    return f"unix:{api.gateway.store}/admin.sock"


@pytest.fixture
def daemon(start_api, tmp_path):
    return start_api(store=f"sqlite:{tmp_path}/run.sqlite")


@pytest.fixture
def jobs(jobs, daemon):
    """The same fixture, whose store is the daemon's."""
    jobs.store = socket_of(daemon)
    return jobs


@pytest.mark.slow
def test_a_claim_that_is_lost_at_the_daemon_kills_the_command(jobs):
    a_lost_claim_kills_the_command(jobs)


def test_over_http_it_is_the_same_and_the_command_does_not_get_the_token(jobs, daemon):
    jobs.store = f"http://{daemon.address}"
    secret = {"HAPAX_TOKEN": daemon.token("publish")}
    script = f"echo ran >> {jobs.log}; echo \"[$HAPAX_TOKEN]\""
    assert [jobs.shell(script, env=secret).stdout for _ in range(2)] == ["[]\n"] * 2
    file = jobs.folder / "token"
    file.write_text(secret["HAPAX_TOKEN"] + "\n")
    assert jobs.shell(script, flags=["--token-file", file]).stdout == "[]\n"
    assert jobs.effects() == ["ran"]
    other = {"HAPAX_TOKEN": daemon.token("publish", name="another")}
    assert jobs.shell(script, env=other).code == 0
    assert jobs.effects() == ["ran", "ran"], "a key belongs to the name of its token"


@pytest.mark.parametrize("token, says", [(None, "token"), ("hapax_wrong", "token")])
def test_who_may_not_use_the_daemon_is_told_at_once_and_runs_nothing(jobs, daemon, token, says):
    jobs.store = f"http://{daemon.address}"
    ran = jobs.shell(f"echo ran >> {jobs.log}", flags=["--wait", "1h"], env={"HAPAX_TOKEN": token} if token else None)
    assert ran.code == EXIT_STORE and says in ran.stderr and "not run" in ran.stderr
    assert jobs.effects() == []


def test_while_the_daemon_is_down_nothing_runs(jobs, daemon):
    """Another store that could be opened makes no difference."""
    daemon.gateway.kill()
    own = {"STATE_DIRECTORY": str(jobs.folder / "own")}
    ran = jobs.shell(f"echo ran >> {jobs.log}", flags=["--wait", "300ms"], env=own)
    assert ran.code == EXIT_STORE and "can't be reached" in ran.stderr and "not run" in ran.stderr
    assert jobs.effects() == [] and not (jobs.folder / "own").exists()


def test_a_daemon_that_comes_back_in_time_is_waited_for(jobs, daemon):
    daemon.gateway.kill()
    job = jobs.start("sh", "-c", f"echo ran >> {jobs.log}", flags=["--wait", "1h"])
    daemon.gateway.start()
    assert job.wait(HANG_S) == 0
    assert jobs.effects() == ["ran"]


@pytest.mark.parametrize("store", ["journal", "sqlite"])
@pytest.mark.slow
def test_a_daemon_that_is_killed_under_a_command_records_its_outcome_all_the_same(jobs, start_api, store):
    """A journal makes the operation unknown at its next start, and still takes the outcome of the same epoch."""
    api = start_api(store=f"{store}:{jobs.folder}/other")
    jobs.store = socket_of(api)
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo ran >> {jobs.log}; cat {gate}"]
    first = jobs.start(*words)
    eventually(jobs.effects, "the command runs")
    api.gateway.kill()
    gate.write_text("go\n")
    api.gateway.start()
    assert first.communicate(timeout=HANG_S)[0] == b"go\n" and first.returncode == 0
    assert jobs(*words).stdout == "go\n"
    assert jobs.effects() == ["ran"]


def test_a_waiting_call_is_woken_by_the_outcome(jobs, daemon):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo ran >> {jobs.log}; cat {gate}"]
    calls = [jobs.start(*words) for _ in range(3)]
    daemon.gateway.wait_waiting(2)
    gate.write_text("go\n")
    assert [call.communicate(timeout=HANG_S)[0] for call in calls] == [b"go\n"] * 3
    assert jobs.effects() == ["ran"]


@pytest.mark.slow
def test_a_lease_is_renewed_while_the_command_runs(jobs, daemon):
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    job = jobs.start("sh", "-c", f"echo ran >> {jobs.log}; cat {gate}")
    eventually(jobs.effects, "the command runs")
    shown = daemon.operator("GET", "/v1/operations?state=processing").json()["operations"]
    first = shown[0]["lease_until"]

    def renewed():
        return daemon.operator("GET", "/v1/operations?state=processing").json()["operations"][0]["lease_until"] > first

    eventually(renewed, "the lease was renewed")
    gate.write_text("go\n")
    assert job.wait(HANG_S) == 0


def test_the_store_of_a_file_is_used_and_a_journal_by_its_daemon(jobs, start_api):
    for store in ("journal", "sqlite"):
        folder = jobs.folder / store
        api = start_api(store=f"{store}:{folder}")
        config = jobs.folder / f"{store}.yaml"
        config.write_text(f"upstream: http://127.0.0.1:1\nstore: {store}:{folder}\n"
                          f"admin:\n  listen: {socket_of(api)}\n")
        words = ["run", "--config", config, "--key", "k", "--", "sh", "-c", f"echo {store} >> {jobs.log}"]
        assert [Run(words).code for _ in range(2)] == [0, 0]
        api.gateway.kill()
        assert Run([*words[:5], "--wait", "0s", *words[5:]]).code == (EXIT_STORE if store == "journal" else 0)
    assert jobs.effects() == ["journal", "sqlite"]


def test_a_journal_names_the_socket_of_its_daemon(jobs):
    jobs.store = "journal:/var/lib/hapax"
    ran = jobs("true")
    assert ran.code == EXIT_CONFIG and "--store unix:/var/lib/hapax/admin.sock" in ran.stderr
    jobs.store = "unix:admin.sock"
    assert jobs("true").code == EXIT_CONFIG


@pytest.mark.slow
def test_a_daemon_that_hangs_runs_nothing(jobs, daemon):
    daemon.gateway.pause()
    job = jobs.start("sh", "-c", f"echo ran >> {jobs.log}", flags=["--wait", "0s"])
    assert job.wait(HANG_S) == EXIT_STORE
    daemon.gateway.resume()
    assert jobs.effects() == []
