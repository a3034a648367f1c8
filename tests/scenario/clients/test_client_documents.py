# SPDX-License-Identifier: Apache-2.0
"""Every row and checklist line of the five source documents that is about a client, and the tests of our clients that
show it. A test of the gateway shows nothing of a client, so only tests of clients are named here."""
import pytest

from harness.names import names_a_test

PLAYBOOK = "Idempotency & Retries (Contract + Playbook)"
PATTERNS = "Idempotency & Safe Retry Patterns"
REQUESTS = "Request Idempotency Patterns"
INVARIANTS = "Retries & Idempotency Invariants"
CONTRACT = "Idempotency and Retries Contract"

ALL = "test_careful_clients::"  # hapax send, the Python and the TypeScript client
KEY_FIRST = ALL + "test_the_key_is_written_down_before_the_first_attempt"
SYNCED = "test_send::test_the_intent_is_durable_before_anything_is_sent"
SAME_KEY = ALL + "test_every_attempt_has_the_same_key_and_body"
FOUND_AGAIN = ALL + "test_a_later_call_finds_the_key_and_the_response"
NO_4XX = ALL + "test_no_client_error_is_retried"
TRANSIENT = ALL + "test_what_is_transient_is_retried"
AT_ONCE = ALL + "test_a_408_is_retried_at_once"
TIMEOUT = ALL + "test_a_timeout_is_unknown_and_is_retried_with_the_same_key"
REFUSED = ALL + "test_nothing_listens_and_nothing_was_done"
CAPPED = ALL + "test_attempts_are_capped_and_then_it_is_escalated"
CLASSES = ALL + "test_each_class_has_its_retries"
RETRY_AFTER = ALL + "test_retry_after_is_obeyed_and_never_early"
TOO_LATE = ALL + "test_retry_after_beyond_the_time_there_is_ends_it"
ACTIONS = ALL + "test_each_error_of_hapax_has_its_action"
IN_DOUBT = ALL + "test_a_refusal_says_nothing_of_an_earlier_attempt"
GONE = ALL + "test_a_deleted_thing_that_is_gone_was_deleted"
REPLAY = ALL + "test_a_stored_error_is_final_and_a_replay_says_so"
KEY_ENDS = ALL + "test_past_the_life_of_the_key_nothing_is_sent"
LOGIN = ALL + "test_after_a_login_the_same_operation_goes_on"
AT_THE_GATEWAY = ALL + "test_through_a_gateway_what_it_can_not_know_is_unknown_and_never_done_twice"
UNKEYED = "test_send::test_without_a_key_what_may_have_arrived_is_not_repeated"
NATURAL = "test_send::test_a_natural_key_is_the_same_all_day"
CSV = "test_send::test_attempts_are_exported_as_the_playbook_has_them"
KILLED = ["test_send::test_killed_anywhere_and_run_again_it_is_done_once",
          "test_python_client::test_killed_while_it_waits_for_the_answer_it_goes_on_with_the_same_key",
          "test_typescript_client::test_another_process_waits_for_its_turn_and_a_dead_ones_lock_holds_nobody"]
ONCE = ["test_python_client::test_a_function_runs_once_and_everybody_gets_its_result",
        "test_typescript_client::test_a_function_runs_once_and_everybody_gets_its_result"]
STORES = "test_typescript_client::test_each_store_keeps_the_key_and_the_response"
BUDGET = "test_typescript_client::test_the_server_is_told_how_much_time_is_left"
EXPRESS = "test_express_example::"
DOUBLE_CLICK = EXPRESS + "test_a_double_click_is_one_payment"
RELOAD = EXPRESS + "test_a_reload_while_it_is_being_paid_is_one_payment"
SECOND_TAB = EXPRESS + "test_a_second_tab_is_one_payment"
ANSWERS = EXPRESS + "test_the_server_answers_as_the_document_has_it"
FILES = {"test_careful_clients", "test_send", "test_run", "test_python_client", "test_typescript_client",
         "test_express_example"}

TABLE = [
    (PLAYBOOK, "Users double-click", [DOUBLE_CLICK]),
    (PLAYBOOK, "Idempotency key: client-supplied unique token for a logical operation", [KEY_FIRST, FOUND_AGAIN]),
    (PLAYBOOK, "When to retry: HTTP 429, 5xx, network timeouts, connection resets", [TRANSIENT, TIMEOUT]),
    (PLAYBOOK, "When to retry: HTTP 4xx other than 429, do not retry", [NO_4XX]),
    (PLAYBOOK, "Schedule: 100-200, 200-400, 400-800 ms, with jitter", [CAPPED]),
    (PLAYBOOK, "Schedule: stop, total within 10 s", [TOO_LATE, CAPPED]),
    (PLAYBOOK, "Use Retry-After if provided by the server", [RETRY_AFTER]),
    (PLAYBOOK, "Headers: X-Request-Timeout (client budget)", [BUDGET]),
    (PLAYBOOK, "Headers: Idempotency-Status: replayed", [REPLAY]),
    (PLAYBOOK, "Tests: 2. different key, same payload: a new refund", [FOUND_AGAIN]),
    (PLAYBOOK, "Tests: 3. gateway timeout then retry (same key): one payout", [TIMEOUT, AT_THE_GATEWAY]),
    (PLAYBOOK, "Taxonomy: what a caller does after each code", [ACTIONS]),
    (PLAYBOOK, "Taxonomy: PROVIDER.duplicate: surface existing result", [ACTIONS]),
    (PLAYBOOK, "Anti-patterns: retrying non-retryable errors", [NO_4XX]),
    (PLAYBOOK, "Anti-patterns: treating retries without jitter", [CAPPED, CLASSES]),
    (PLAYBOOK, "Checklist: retry only on 429/5xx/timeouts; exponential backoff + jitter; honor Retry-After",
     [TRANSIENT, NO_4XX, CAPPED, RETRY_AFTER]),
    (PLAYBOOK, "CSV seeds: client retry log", [CSV]),
    (PATTERNS, "Always: generate idempotency keys before first attempt", [KEY_FIRST, SYNCED]),
    (PATTERNS, "Always: persist idempotency key across retries", [SAME_KEY, FOUND_AGAIN, *KILLED]),
    (PATTERNS, "Always: use exponential backoff for retries", [CAPPED, CLASSES]),
    (PATTERNS, "Always: treat timeout as unknown, not failed", [TIMEOUT]),
    (PATTERNS, "Never: retry without idempotency key on POST/PATCH", [UNKEYED]),
    (PATTERNS, "Never: generate new idempotency key on retry", [SAME_KEY]),
    (PATTERNS, "Timeout is not failure: unknown state requires same handling as success", [TIMEOUT, IN_DOUBT]),
    (PATTERNS, "Deterministic recovery: retry logic should be mechanical", [FOUND_AGAIN, *KILLED]),
    (PATTERNS, "DELETE: 404 on subsequent calls is success", [GONE]),
    (PATTERNS, "Pattern 1: 1. generate UUID v4", [SAME_KEY]),
    (PATTERNS, "Pattern 1: 2. store key with request context; survives process crashes", [KEY_FIRST, SYNCED, *KILLED]),
    (PATTERNS, "Pattern 1: 3. include in request header", [SAME_KEY]),
    (PATTERNS, "Pattern 1: 4. reuse same key on retry", [SAME_KEY]),
    (PATTERNS, "Pattern 2: natural keys", [NATURAL]),
    (PATTERNS, "When to Retry: 2xx, no", [FOUND_AGAIN]),
    (PATTERNS, "When to Retry: 4xx, 400, 404, no", [NO_4XX]),
    (PATTERNS, "When to Retry: 401/403, no: retry with new credentials", [NO_4XX, LOGIN]),
    (PATTERNS, "When to Retry: 409, maybe", [NO_4XX, ACTIONS]),
    (PATTERNS, "When to Retry: 429, after Retry-After delay", [RETRY_AFTER]),
    (PATTERNS, "When to Retry: 5xx, with exponential backoff", [TRANSIENT, CAPPED]),
    (PATTERNS, "When to Retry: timeout, with same idempotency key", [TIMEOUT]),
    (PATTERNS, "When to Retry: connection error, with exponential backoff", [TRANSIENT, REFUSED]),
    (PATTERNS, "Anti-Patterns: new key per retry", [SAME_KEY]),
    (PATTERNS, "Anti-Patterns: immediate retry", [CAPPED]),
    (PATTERNS, "Anti-Patterns: infinite retries: cap at 3-5 attempts, then escalate", [CAPPED]),
    (PATTERNS, "Anti-Patterns: retry on 4xx", [NO_4XX]),
    (PATTERNS, "Anti-Patterns: timeout = failure", [TIMEOUT]),
    (PATTERNS, "Anti-Patterns: client-side dedup only", [RELOAD, SECOND_TAB, AT_THE_GATEWAY]),
    (PATTERNS, "Verification: retry after timeout: single operation", [TIMEOUT]),
    (PATTERNS, "Red Flags: idempotency key stored only in memory", [KEY_FIRST, SYNCED, STORES]),
    (REQUESTS, "Approach #2: doesn't work across page refreshes", [RELOAD, STORES]),
    (REQUESTS, "Approach #2: doesn't work if user opens multiple tabs", [SECOND_TAB]),
    (REQUESTS, "Approach #2: fails if client crashes and restarts", KILLED),
    (REQUESTS, "User double-click: two charges", [DOUBLE_CLICK]),
    (REQUESTS, "execute: {result, isRetry, originalTimestamp}", ONCE),
    (REQUESTS, "Express: Idempotent-Replayed and Original-Request-Time", [ANSWERS, REPLAY]),
    (REQUESTS, "Express: 400 without a key, or with one that is not 16 to 255 characters", [ANSWERS]),
    (REQUESTS, "Express: 409, operation failed previously, with originalTimestamp", [ANSWERS]),
    (REQUESTS, "Client: the key is stable across retries within the same logical operation", [SAME_KEY, FOUND_AGAIN]),
    (REQUESTS, "Client: backoff between attempts, maxRetries", [CAPPED]),
    (REQUESTS, "Client: 409, operation failed previously, don't retry", [ACTIONS]),
    (REQUESTS, "Mistake 4: client generates new key on retry", [SAME_KEY]),
    (REQUESTS, "Checklist: client generates stable idempotency keys", [KEY_FIRST, FOUND_AGAIN]),
    (REQUESTS, "Checklist: client reuses keys on retry", [SAME_KEY]),
    (REQUESTS, "Checklist: client handles 409 (operation failed previously)", [ACTIONS, ANSWERS]),
    (INVARIANTS, "INV-1: all state-changing operations must use idempotency keys", [SAME_KEY, UNKEYED]),
    (INVARIANTS, "INV-3: same key, same result", [FOUND_AGAIN, *ONCE]),
    (INVARIANTS, "INV-4: exponential backoff, and a maximum count", [CAPPED, CLASSES]),
    (INVARIANTS, "INV-5: only for transient errors", [TRANSIENT, NO_4XX]),
    (INVARIANTS, "INV-6: expired keys are not used", [KEY_ENDS]),
    (CONTRACT, "Key: UUID, unique per operation, reused only when retrying it", [SAME_KEY, FOUND_AGAIN]),
    (CONTRACT, "Key: expires after 24 hours", [KEY_ENDS]),
    (CONTRACT, "Client Retry Strategy: exponential backoff with jitter", [CAPPED, CLASSES]),
    (CONTRACT, "Retryable Errors: 408, immediate retry", [AT_ONCE]),
    (CONTRACT, "Retryable Errors: 429 and 503, honor Retry-After", [RETRY_AFTER, TOO_LATE]),
    (CONTRACT, "Retryable Errors: 500, 502, 504, backoff retry", [TRANSIENT, CAPPED]),
    (CONTRACT, "Retryable Errors: 400, 401, 403, 404, 409: no", [NO_4XX]),
    (CONTRACT, "Maximum Retry Limits: user-facing API, 3, 10 seconds", [CAPPED, TOO_LATE]),
    (CONTRACT, "Maximum Retry Limits: background job, 5; scheduled task, 3", [CLASSES]),
    (CONTRACT, "Checklist: exponential backoff with jitter; Retry-After header support", [CAPPED, RETRY_AFTER]),
]


@pytest.mark.parametrize("document, row, tests", TABLE, ids=[f"{document[:12]}: {row}" for document, row, _ in TABLE])
def test_row_has_the_clients_tests_that_it_names(document, row, tests):
    assert tests and {name.partition("::")[0] for name in tests} <= FILES, f"{document}, {row}"
    missing = [name for name in tests if not names_a_test(name)]
    assert not missing, f"{document}, {row}: no such test: {missing}"


def test_no_row_is_listed_twice():
    rows = [(document, row) for document, row, _ in TABLE]
    assert len(rows) == len(set(rows))
    assert {document for document, _ in rows} == {PLAYBOOK, PATTERNS, REQUESTS, INVARIANTS, CONTRACT}
