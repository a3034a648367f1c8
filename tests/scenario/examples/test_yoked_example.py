# SPDX-License-Identifier: Apache-2.0
"""The Yoked example as a whole: every row of the "Idempotency and Retries Contract" that is about endpoints, offers,
keys and duplicates has a route, a line in the README and the stories that prove it; the configuration is one that
`hapax check --strict` takes; and the script that shows it all does. (The contract's retry tables are in
test_retry_tables.)"""
import os
import pathlib
import re
import subprocess
import sys

import pytest

from harness import HANG_S, binary
from harness.names import names_a_test
from harness.yoked import BYPASSED, CONFIG, EXAMPLE, App

PROTECTED = "test_yoked_protected::"
APPLICATION = "test_yoked_application::"
TEN = PROTECTED + "test_ten_at_once_happen_once"

# Method, path, behaviour as the document words it, the route's name, the stories.
ENDPOINTS = [
    ("POST", "/auth/otp/send", "Same requestId returned for 10 min", "otp-send",
     [PROTECTED + "test_otp_send_returns_the_same_request_for_ten_minutes",
      PROTECTED + "test_otp_is_sent_once_to_a_phone_whoever_asks",
      PROTECTED + "test_request_of_which_no_key_can_be_made_is_refused", TEN]),
    ("POST", "/auth/otp/verify", "Same tokens returned for 5 min", "otp-verify",
     [PROTECTED + "test_otp_verify_returns_the_same_tokens_for_five_minutes",
      PROTECTED + "test_tokens_are_shown_to_nobody_with_other_credentials",
      PROTECTED + "test_wrong_code_is_not_kept", TEN]),
    ("PATCH", "/users/me", "Last write wins (no key needed)", "profile",
     [APPLICATION + "test_last_write_to_a_user_wins_without_a_key",
      APPLICATION + "test_last_write_to_a_user_wins_whatever_its_key"]),
    ("POST", "/users/me/photos", "Same photo returned, duplicate rejected", "photo",
     [PROTECTED + "test_same_photo_is_returned_and_its_duplicate_rejected", TEN]),
    ("POST", "/compatibility/responses", "Same responses overwrite", "compatibility",
     [PROTECTED + "test_same_responses_overwrite", APPLICATION + "test_responses_are_upserted", TEN]),
    ("POST", "/verification/session", "Same session returned for 5 min", "verification",
     [PROTECTED + "test_same_verification_session_is_returned_for_five_minutes",
      PROTECTED + "test_session_is_the_users_and_not_the_tokens", TEN]),
    ("POST", "/matches/offers/{id}/action", "Same action state returned", "offer-action",
     [PROTECTED + "test_same_action_state_is_returned", TEN]),
    ("POST", "/matches/{id}/unmatch", "Idempotent (no-op if already unmatched)", "unmatch",
     [PROTECTED + "test_unmatch_again_is_a_no_op", TEN]),
    ("POST", "/matches/{id}/messages", "Duplicate rejected via clientMessageId", "message",
     [PROTECTED + "test_duplicate_message_is_rejected_by_its_client_message_id", TEN]),
    ("POST", "/matches/{id}/read", "Idempotent (no-op)", "read", [PROTECTED + "test_read_again_is_a_no_op", TEN]),
    ("POST", "/safety/report", "Duplicate rejected for 1 hour", "report",
     [PROTECTED + "test_duplicate_report_is_rejected_for_an_hour", TEN]),
    ("POST", "/safety/block", "Idempotent (no-op if already blocked)", "block",
     [PROTECTED + "test_block_again_is_a_no_op", TEN]),
    ("POST", "/safety/appeal", "Duplicate rejected for 24 hours", "appeal",
     [PROTECTED + "test_duplicate_appeal_is_rejected_for_a_day", TEN]),
    ("POST", "/auth/refresh", "Always issues new tokens", "refresh",
     [APPLICATION + "test_refresh_always_issues_new_tokens"]),
    ("POST", "/auth/logout", "Always revokes session", "logout",
     [APPLICATION + "test_logout_always_revokes_the_session"]),
    ("DELETE", "/users/me/photos/{id}", "One-time deletion", "photo-deletion",
     [APPLICATION + "test_photo_is_deleted_once"]),
]
DECIDED = [PROTECTED + "test_offered_becomes_what_was_decided", APPLICATION + "test_offer_is_updated_only_from_offered"]
FAILURES = [PROTECTED + "test_case_2_retry_after_failure_that_left_nothing",
            PROTECTED + "test_case_2_retry_after_failure_that_left_its_effect",
            PROTECTED + "test_case_2_retry_after_failure_of_which_nobody_knows",
            PROTECTED + "test_case_2_retry_after_the_gateway_died",
            PROTECTED + "test_case_2_retry_of_what_has_no_key_of_its_own",
            PROTECTED + "test_case_2_retry_is_not_answered_with_what_became_of_another"]
RULES = [
    ("Key Requirements: UUID v4 format", [PROTECTED + "test_key_is_a_uuid_of_version_4"]),
    ("Key Requirements: clients must provide an idempotency key", [PROTECTED + "test_client_must_provide_a_key"]),
    ("Key Requirements: unique per operation attempt", [PROTECTED + "test_key_is_unique_per_operation_of_a_user"]),
    ("Key Requirements: reused only when retrying the same operation",
     [PROTECTED + "test_key_reused_with_another_payload_is_a_conflict",
      PROTECTED + "test_key_reused_on_another_endpoint_is_a_conflict"]),
    ("Key Requirements: expires after 24 hours", [PROTECTED + "test_key_expires_after_a_day"]),
    ("Server Behavior: same endpoint, same payload: cached response", [PROTECTED + "test_case_1_duplicate_request"]),
    ("Server Behavior: else 409 Conflict", [PROTECTED + "test_key_reused_with_another_payload_is_a_conflict",
                                            PROTECTED + "test_key_reused_on_another_endpoint_is_a_conflict"]),
    ("Server Behavior: execute, store for 24h, return", [PROTECTED + "test_key_expires_after_a_day"]),
    ("Offer State Transitions: offered, accept, accepted", DECIDED),
    ("Offer State Transitions: offered, pass, passed", DECIDED),
    ("Offer State Transitions: offered, not_now, not_now", DECIDED),
    ("Offer State Transitions: accepted, mutual accept by counterpart, matched",
     [PROTECTED + "test_accepted_becomes_matched_by_the_counterparts_accept",
      APPLICATION + "test_ten_keys_at_once_match_two_people_once"]),
    ("Offer State Transitions: matched, unmatch, closed with reason unmatched",
     [PROTECTED + "test_matched_becomes_closed_by_unmatch"]),
    ("Upsert Patterns: user preferences, last write wins", [APPLICATION + "test_preferences_are_upserted"]),
    ("Conditional Updates: only if not already in target state",
     [APPLICATION + "test_offer_is_updated_only_from_offered"]),
    ("Message Deduplication: 1. check if clientMessageId exists (24h window)",
     [PROTECTED + "test_message_1_its_id_is_looked_up_in_a_window_of_a_day"]),
    ("Message Deduplication: 2. if exists, return existing message",
     [PROTECTED + "test_message_2_that_exists_is_returned"]),
    ("Message Deduplication: 3. if not, create new message",
     [PROTECTED + "test_message_3_that_does_not_exist_is_created"]),
    ("Message Deduplication: 4. store clientMessageId -> messageId mapping",
     [PROTECTED + "test_message_4_its_id_leads_to_the_message_from_then_on"]),
    ("Report Key Generation: {reporterId}:{subjectId}:{category}:{timeWindow}, 1 hour buckets",
     [PROTECTED + "test_same_report_is_rejected_though_the_clocks_hour_is_another"]),
    ("Report: same reporter cannot report same subject for same category within 1 hour",
     [PROTECTED + "test_same_reporter_subject_and_category_is_one_report",
      PROTECTED + "test_duplicate_report_is_rejected_for_an_hour"]),
    ("Report: different categories allowed", [PROTECTED + "test_different_categories_are_different_reports"]),
    ("Report: different reporters always allowed", [PROTECTED + "test_different_reporters_are_always_allowed"]),
    ("Test Cases: 1. Duplicate Request Test", [PROTECTED + "test_case_1_duplicate_request"]),
    ("Test Cases: 2. Retry After Failure Test", FAILURES),
    ("Test Cases: 3. Concurrent Request Test", [PROTECTED + "test_case_3_ten_concurrent_requests", TEN]),
]
TABLE = [(f"{method} {path}: {behaviour}", stories) for method, path, behaviour, _, stories in ENDPOINTS] + RULES


@pytest.mark.parametrize("row, stories", TABLE, ids=[row for row, _ in TABLE])
def test_row_has_the_stories_that_it_names(row, stories):
    assert stories
    missing = [name for name in stories if not names_a_test(name)]
    assert not missing, f"{row}: no such test: {missing}"


def test_every_story_belongs_to_a_row():
    told = {name.partition("::")[2] for _, stories in TABLE for name in stories}
    for file in ("test_yoked_protected.py", "test_yoked_application.py"):
        text = pathlib.Path(__file__).with_name(file).read_text(encoding="utf-8")
        stories = set(re.findall(r"^def (test_\w+)", text, re.M))
        assert stories - told <= {"test_error_of_the_application_leaves_nothing"}, file


def test_configuration_has_one_route_for_each_row_and_says_which():
    routes = re.findall(r"\n  # (.+)\n  - name: (\S+)\n    match: (\S+) (\S+)\n", CONFIG.read_text(encoding="utf-8"))
    assert [(method, path, behaviour, name) for behaviour, name, method, path in routes] == \
        [row[:4] for row in ENDPOINTS]
    assert len(routes) == 13 + 3


def test_readme_has_one_line_for_each_row():
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `(/\S+)` \| (\w+) \| ([^|]+) \| `([\w-]+)` \|", text, re.M)
    assert [(method, path, behaviour, name) for path, method, behaviour, name in lines] == \
        [row[:4] for row in ENDPOINTS]


def test_readme_explains_every_option_of_the_configuration():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    config = CONFIG.read_text(encoding="utf-8")
    options = set(re.findall(r"^ +(?:- )?(\w+):", config[config.index("\ndefaults:"):], re.M))
    options -= {"name", "match", "group", "keyed", "request", "found", "answer"}
    assert len(options) > 12
    unexplained = {option for option in options if f"`{option}" not in readme and f" {option}:" not in readme}
    assert not unexplained


def test_configuration_is_one_that_a_strict_check_takes(hapax):
    checked = hapax("check", "--strict", CONFIG)
    assert checked.code == 0, checked


def test_strict_check_wants_a_reason_for_what_passes(hapax, tmp_path):
    text = re.sub(r"\n    because: every call issues new tokens", "", CONFIG.read_text(encoding="utf-8"))
    (tmp_path / "hapax.yaml").write_text(text, encoding="utf-8")
    checked = hapax("check", "--strict", tmp_path / "hapax.yaml")
    assert checked.code == 2, checked
    assert "because" in checked.stdout + checked.stderr, checked


def test_a_lifetime_shorter_than_its_retries_is_refused(hapax, tmp_path):
    """The five minutes of a verification session are enough; a minute is not."""
    text = CONFIG.read_text(encoding="utf-8")
    shorter, changed = re.subn(r'("{principal}"}\n    lifetime): 5m', r"\1: 1m", text)
    assert changed == 1
    (tmp_path / "hapax.yaml").write_text(shorter, encoding="utf-8")
    checked = hapax("check", tmp_path / "hapax.yaml")
    assert checked.code == 2, checked
    assert "lifetime" in checked.stdout + checked.stderr, checked


def test_script_shows_what_happens_without_and_with_the_gateway():
    run = subprocess.run([sys.executable, str(EXAMPLE / "try")], capture_output=True, text=True, timeout=5 * HANG_S,
                         env={**os.environ, "HAPAX": str(binary())}, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    shown = re.findall(r"^(\w+ /\S+) +\w+ +(\d+) +(\d+)  (.+)$", run.stdout, re.M)
    assert len(shown) == len(ENDPOINTS), run.stdout
    by_name = {name: (int(without), int(through), got) for name, without, through, got in shown}
    for method, path, _, route, stories in ENDPOINTS:
        without, through, got = by_name[f"{method} {path}"]
        if TEN in stories:
            assert (without, through) == (3, 1), (route, run.stdout)
        else:
            assert without == through, (route, run.stdout)
    assert by_name["POST /auth/otp/send"][2] == "200, the same answer, replayed"
    assert by_name["POST /safety/block"][2].startswith("200, {}")
    assert by_name["POST /safety/report"][2] == "409 CONFLICT.idempotency.duplicate_rejected"


def test_application_starts_again_with_what_it_has(tmp_path):
    """Tokens that were given out stay valid, and the database is not made anew."""
    secrets = []
    for _ in range(2):
        app = App(tmp_path)
        secrets.append((tmp_path / "jwt.secret").read_bytes())
        app.ask("INSERT INTO blocks SELECT 'nobody', 'nobody', 'now' WHERE NOT EXISTS (SELECT * FROM blocks)")
        assert app.ask("SELECT count(*) FROM blocks") == [(1,)]
        app.close()
    assert secrets[0] == secrets[1]
    assert (tmp_path / "jwt.secret").stat().st_mode & 0o777 == 0o600


def test_nothing_is_bypassed_unless_asked():
    assert not BYPASSED, "HAPAX_BYPASS is set: the stories about the gateway are told without it"
