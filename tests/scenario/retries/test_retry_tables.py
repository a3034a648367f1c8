# SPDX-License-Identifier: Apache-2.0
"""Every row of the retry tables in the five source documents, and the tests that prove it: a scenario where the gateway
acts on it, a property of the pure code where it is about delays, limits or what our own clients do. Where the contract
reads a row more carefully than its document does, the scenario shows the careful reading and the knob for the other.
What the documents ask of clients is in clients/test_client_documents, with tests of our clients."""
import pytest

from harness.names import names_a_test

PLAYBOOK = "Idempotency & Retries (Contract + Playbook)"
PATTERNS = "Idempotency & Safe Retry Patterns"
REQUESTS = "Request Idempotency Patterns"
INVARIANTS = "Retries & Idempotency Invariants"
CONTRACT = "Idempotency and Retries Contract"

CLIENTS = "core/test_backoff::what_clients_repeat"
LIMITS = "core/test_backoff::the_maximum_retry_limits"
DELIVERIES = "core/test_backoff::what_deliveries_repeat"
PLAYBOOK_SCHEDULE = ["core/test_backoff::the_playbook_schedule",
                     "test_playbook_retries::test_the_playbooks_schedule_from_beginning_to_end"]
PLAYBOOK_LOG = ["test_playbook_retries::test_the_playbooks_client_log_pays_once",
                "core/test_backoff::the_playbook_client_log"]
AGENT_BACKOFF = ["core/test_backoff::the_agent_guide_backoff"]
WEBHOOK_SCHEDULE = ["core/test_backoff::the_webhook_delivery_attempts",
                    "core/test_backoff::any_delivery_keeps_the_schedule_and_is_never_early"]
NOT_EXECUTED = "test_retries::test_answer_that_says_not_executed_is_tried_again"
NEVER_AGAIN = "test_retries::test_outcome_is_never_tried_again"
ONLY_THE_CLIENT = "test_retries::test_refusal_that_only_the_client_can_cure_is_not_tried_again"
TRANSIENT = "test_guarantees::test_idempotent_application_is_asked_again_after_anything_transient"
ATOMIC = "test_guarantees::test_atomic_applications_errors_are_tried_again"
UNKNOWN_ONCE = "test_retries::test_what_may_have_happened_is_never_sent_again"
RETRY_AFTER = "test_retry_after::test_every_form_is_obeyed_and_never_early"
REFUSED = ["test_retries::test_refused_connection_is_tried_again_and_then_released",
           "test_retries::test_application_that_comes_up_between_two_attempts_is_reached"]
SAME_KEY = "test_retries::test_every_attempt_is_the_same_request_but_for_its_number"
ONE_OPERATION = "test_outcomes::test_timeout_then_retry_replays_the_late_answer"

TABLE = [
    (PLAYBOOK, "When to retry: HTTP 429", [NOT_EXECUTED, CLIENTS]),
    (PLAYBOOK, "When to retry: 5xx", [TRANSIENT, ATOMIC, UNKNOWN_ONCE, CLIENTS]),
    (PLAYBOOK, "When to retry: network timeouts", [TRANSIENT, UNKNOWN_ONCE, CLIENTS]),
    (PLAYBOOK, "When to retry: connection resets", [TRANSIENT, UNKNOWN_ONCE, CLIENTS]),
    (PLAYBOOK, "When to retry: 4xx other than 429, do not retry", [NEVER_AGAIN, ONLY_THE_CLIENT, CLIENTS]),
    (PLAYBOOK, "Schedule: 1, 0 ms, initial", PLAYBOOK_SCHEDULE),
    (PLAYBOOK, "Schedule: 2, 100–200 ms", PLAYBOOK_SCHEDULE),
    (PLAYBOOK, "Schedule: 3, 200–400 ms", PLAYBOOK_SCHEDULE),
    (PLAYBOOK, "Schedule: 4, 400–800 ms", PLAYBOOK_SCHEDULE),
    (PLAYBOOK, "Schedule: 5, 800–1600 ms, cap at max_backoff=2s", PLAYBOOK_SCHEDULE),
    (PLAYBOOK, "Schedule: stop, total ≤ 10s",
     [LIMITS, "core/test_backoff::any_sequence_of_answers_stays_within_the_budget",
      "test_retries::test_total_time_ends_new_attempts"]),
    (PLAYBOOK, "Use Retry-After if provided by the server", [RETRY_AFTER]),
    (PLAYBOOK, "Headers: X-Request-Timeout (client budget)",
     ["test_client_budget::test_budget_ends_new_attempts",
      "test_client_budget::test_what_is_left_goes_upstream_on_every_attempt"]),
    (PLAYBOOK, "Webhooks, Retries: backoff on transient consumer errors", [DELIVERIES, *WEBHOOK_SCHEDULE]),
    (PLAYBOOK, "Taxonomy: VALIDATION.*, no",
     ["test_keys::test_malformed_key_is_refused_and_never_runs_unprotected", CLIENTS]),
    (PLAYBOOK, "Taxonomy: AUTH.*, no", [ONLY_THE_CLIENT, CLIENTS]),
    (PLAYBOOK, "Taxonomy: CONFLICT.idempotency.payload_mismatch, no",
     ["test_playbook::test_replay_with_another_amount_under_the_same_key_is_a_mismatch",
      "test_unknown::test_unknown_is_not_sent_again_for_another_payload"]),
    (PLAYBOOK, "Taxonomy: RATE_LIMIT.exceeded, 429, yes (respect Retry-After)", [NOT_EXECUTED, RETRY_AFTER]),
    (PLAYBOOK, "Taxonomy: DEPENDENCY.timeout, 504/timeout, yes", [TRANSIENT, UNKNOWN_ONCE, ONE_OPERATION]),
    (PLAYBOOK, "Taxonomy: DEPENDENCY.unavailable, 503, yes",
     [NOT_EXECUTED, ATOMIC, "test_retry_after::test_503_that_says_when_is_obeyed_too"]),
    (PLAYBOOK, "Taxonomy: TRANSIENT.*, yes", ["test_waiting::test_waiters_beyond_the_bound_are_shed", CLIENTS]),
    (PLAYBOOK, "Taxonomy: PROVIDER.duplicate, no (already applied)",
     ["test_probe::test_providers_duplicate_is_answered_with_what_is_there"]),
    (PLAYBOOK, "Tests: 3. Gateway timeout then retry (same key), one payout",
     ["test_playbook::test_gateway_timeout_then_retry_with_the_same_key_pays_once"]),
    (PLAYBOOK, "Anti-patterns: retrying non-retryable errors", [NEVER_AGAIN, ONLY_THE_CLIENT]),
    (PLAYBOOK, "Anti-patterns: treating retries without jitter", ["core/test_backoff::each_jitter_stays_in_its_bounds",
                                                                  "core/test_backoff::each_jitter_is_spread_evenly"]),
    (PLAYBOOK, "Client retry log: 1,0,timeout", PLAYBOOK_LOG),
    (PLAYBOOK, "Client retry log: 2,137,5xx,502", PLAYBOOK_LOG),
    (PLAYBOOK, "Client retry log: 3,281,200,201", PLAYBOOK_LOG),

    (PATTERNS, "Quick Reference: use exponential backoff for retries", ["test_retries::test_delays_double"]),
    (PATTERNS, "Quick Reference: treat timeout as unknown, not failed", [UNKNOWN_ONCE]),
    (PATTERNS, "Quick Reference: same key must be used for all attempts", [SAME_KEY]),
    (PATTERNS, "Quick Reference: never retry without idempotency key on POST/PATCH",
     ["test_retries::test_unkeyed_post_is_never_tried_again"]),
    *[(PATTERNS, f"Method Safety: {method}, safe to retry",
       ["test_retries::test_safe_method_is_sent_again_when_nobody_listened"]) for method in ("GET", "HEAD", "OPTIONS")],
    (PATTERNS, "Method Safety: PUT, safe to retry",
     ["test_unkeyed_retries::test_request_waits_for_an_application_that_is_being_started"]),
    (PATTERNS, "Method Safety: DELETE, 404 on subsequent calls is success",
     ["test_probe::test_gone_after_a_lost_answer_goes_to_the_probe",
      "test_unknown::test_gone_after_a_lost_answer_is_no_outcome"]),
    (PATTERNS, "Method Safety: POST requires idempotency key",
     ["test_retries::test_unkeyed_post_is_never_tried_again", SAME_KEY]),
    (PATTERNS, "Method Safety: PATCH requires idempotency key or ETag",
     ["test_keys::test_missing_key_is_refused_everywhere_with_require_key",
      "test_unknown::test_gone_after_a_lost_answer_is_no_outcome"]),
    (PATTERNS, "Red Flags: retry logic on a non-idempotent endpoint", [UNKNOWN_ONCE]),
    (PATTERNS, "Backoff: 1, 1s, 0.5-1.5s", AGENT_BACKOFF),
    (PATTERNS, "Backoff: 2, 2s, 1-3s", AGENT_BACKOFF),
    (PATTERNS, "Backoff: 3, 4s, 2-6s", AGENT_BACKOFF),
    (PATTERNS, "Backoff: 4, 8s, 4-12s", AGENT_BACKOFF),
    (PATTERNS, "Backoff: 5, 16s, 8-24s", AGENT_BACKOFF),
    (PATTERNS, "When to Retry: 2xx Success, No", [NEVER_AGAIN, CLIENTS]),
    (PATTERNS, "When to Retry: 4xx Client Error, No", [NEVER_AGAIN, CLIENTS]),
    (PATTERNS, "When to Retry: 400 Bad Request, No", [NEVER_AGAIN, CLIENTS]),
    (PATTERNS, "When to Retry: 401/403 Auth Error, No", [ONLY_THE_CLIENT, CLIENTS]),
    (PATTERNS, "When to Retry: 404 Not Found, No", [NEVER_AGAIN, CLIENTS]),
    (PATTERNS, "When to Retry: 409 Conflict, Maybe",
     [NEVER_AGAIN, "test_unknown::test_conflict_after_a_lost_answer_is_tried_again", CLIENTS]),
    (PATTERNS, "When to Retry: 429 Rate Limited, after Retry-After delay", [NOT_EXECUTED, RETRY_AFTER, CLIENTS]),
    (PATTERNS, "When to Retry: 5xx Server Error, with exponential backoff", [TRANSIENT, ATOMIC, CLIENTS]),
    (PATTERNS, "When to Retry: Timeout, with same idempotency key", [TRANSIENT, SAME_KEY, CLIENTS]),
    (PATTERNS, "When to Retry: Connection Error, with exponential backoff", [*REFUSED, CLIENTS]),
    (PATTERNS, "Anti-Patterns: Immediate retry",
     ["test_retries::test_delays_double",
      "test_retry_budget::test_failing_application_gets_a_fifth_more_and_the_floor"]),
    (PATTERNS, "Anti-Patterns: Infinite retries", ["test_retries::test_retries_end_and_the_key_is_released", LIMITS]),
    (PATTERNS, "Anti-Patterns: Retry on 4xx", [NEVER_AGAIN]),
    (PATTERNS, "Anti-Patterns: Timeout = failure", [UNKNOWN_ONCE]),
    (PATTERNS, "Verification: Retry after timeout, single operation, success response", [ONE_OPERATION, TRANSIENT]),

    (REQUESTS, "Client: min(1000 * 2^attempt, 5000)", ["core/test_backoff::the_request_patterns_client"]),
    (REQUESTS, "Client: maxRetries = 3", ["core/test_backoff::the_request_patterns_client"]),
    (REQUESTS, "Client: 409, operation failed previously, don't retry", [CLIENTS, NEVER_AGAIN]),
    (REQUESTS, "Transitions: FAILED → FAILED (retry, return stored error)",
     ["test_outcomes::test_answer_is_stored_and_replayed_as_it_was"]),
    (REQUESTS, "Mistake 2: TTL longer than max processing time + retry window",
     ["config/test_mistakes::wrong_routes_are_refused_with_their_place"]),

    (INVARIANTS, "INV-4: exponential backoff (1s, 2s, 4s, 8s, ...)",
     ["core/test_backoff::the_invariants_exponential_backoff", "test_retries::test_delays_double"]),
    (INVARIANTS, "INV-4: maximum retry count prevents infinite retries",
     ["core/test_backoff::the_invariants_exponential_backoff",
      "test_retries::test_retries_end_and_the_key_is_released"]),
    (INVARIANTS, "INV-4: retries without backoff cause system overload",
     ["test_retry_budget::test_failing_application_gets_a_fifth_more_and_the_floor",
      "core/test_retry_budget::a_failing_upstream_gets_a_fifth_more_and_the_floor"]),
    (INVARIANTS, "INV-4 and INV-5: only for transient errors (5xx, network errors)", [TRANSIENT, ATOMIC, *REFUSED]),
    (INVARIANTS, "INV-5: permanent errors (4xx, validation errors) not retried", [NEVER_AGAIN, CLIENTS]),
    (INVARIANTS, "INV-5: error classification determines retry behavior",
     ["core/test_outcome::every_status_means_what_the_table_says",
      "core/test_outcome::the_documents_rows_hold_where_repeating_is_safe_and_no_further"]),

    (CONTRACT, "Client Retry Strategy: min(1000 * 2^attempt + random * 1000, 30000), maxRetries = 3",
     ["core/test_backoff::the_contract_documents_code"]),
    (CONTRACT, "Retryable Errors: 408, yes, immediate retry",
     ["test_retries::test_408_is_sent_again_at_once", "core/test_backoff::a_408_is_repeated_at_once_but_is_an_attempt",
      CLIENTS]),
    (CONTRACT, "Retryable Errors: 429, yes, honor Retry-After", [NOT_EXECUTED, RETRY_AFTER, CLIENTS]),
    (CONTRACT, "Retryable Errors: 500, yes, backoff retry",
     [ATOMIC, "test_guarantees::test_idempotent_applications_500_is_tried_again_and_then_kept", CLIENTS]),
    (CONTRACT, "Retryable Errors: 502, yes, backoff retry", [TRANSIENT, UNKNOWN_ONCE, CLIENTS]),
    (CONTRACT, "Retryable Errors: 503, yes, honor Retry-After",
     ["test_retry_after::test_503_that_says_when_is_obeyed_too", ATOMIC, CLIENTS]),
    (CONTRACT, "Retryable Errors: 504, yes, backoff retry", [TRANSIENT, UNKNOWN_ONCE, CLIENTS]),
    (CONTRACT, "Retryable Errors: 400, no", [NEVER_AGAIN, CLIENTS]),
    (CONTRACT, "Retryable Errors: 401, no", [ONLY_THE_CLIENT, CLIENTS]),
    (CONTRACT, "Retryable Errors: 403, no", [ONLY_THE_CLIENT, CLIENTS]),
    (CONTRACT, "Retryable Errors: 404, no", [NEVER_AGAIN, CLIENTS]),
    (CONTRACT, "Retryable Errors: 409, no", [NEVER_AGAIN, CLIENTS]),
    (CONTRACT, "Maximum Retry Limits: User-facing API, 3, 10 seconds",
     [LIMITS, "test_retries::test_each_class_has_its_number_of_attempts"]),
    (CONTRACT, "Maximum Retry Limits: Background job, 5, 5 minutes",
     [LIMITS, "test_retries::test_each_class_has_its_number_of_attempts"]),
    (CONTRACT, "Maximum Retry Limits: Webhook delivery, 10, 24 hours", [LIMITS, *WEBHOOK_SCHEDULE]),
    (CONTRACT, "Maximum Retry Limits: Scheduled task, 3, 1 hour",
     [LIMITS, "core/test_backoff::the_delays_of_background_and_scheduled_work"]),
    *[(CONTRACT, f"Webhook Retry Policy: {row}", WEBHOOK_SCHEDULE)
      for row in ("1. Immediate", "2. 5 seconds", "3. 30 seconds", "4. 2 minutes", "5. 10 minutes", "6. 30 minutes",
                  "7. 1 hour", "8. 6 hours", "9. 12 hours", "10. 24 hours")],
    (CONTRACT, "Testing: 2. Retry After Failure Test",
     ["test_crash_points::test_kill_while_the_application_is_at_work",
      "test_unknown::test_unknown_is_sent_again_by_the_next_request_with_a_new_epoch"]),
]


@pytest.mark.parametrize("document, row, tests", TABLE, ids=[f"{document[:12]}: {row}" for document, row, _ in TABLE])
def test_row_has_the_tests_that_it_names(document, row, tests):
    assert tests
    missing = [name for name in tests if not names_a_test(name)]
    assert not missing, f"{document}, {row}: no such test: {missing}"


def test_no_row_is_listed_twice():
    rows = [(document, row) for document, row, _ in TABLE]
    assert len(rows) == len(set(rows))
    assert {document for document, _ in rows} == {PLAYBOOK, PATTERNS, REQUESTS, INVARIANTS, CONTRACT}
