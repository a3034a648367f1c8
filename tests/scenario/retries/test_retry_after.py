# SPDX-License-Identifier: Apache-2.0
"""Retry-After is obeyed in all its forms and never early; past the budget it is the client's to obey. Nonsense, in it
and in the other headers that steer, is ignored and counted."""
import math
import time

import pytest

from harness import answer, fresh_key, hours_ahead, in_turn, numbered, quick_retries

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
DATES = {
    "IMF-fixdate": "%a, %d %b %Y %H:%M:%S GMT",
    "RFC 850": "%A, %d-%b-%y %H:%M:%S GMT",
    "asctime": "%a %b %e %H:%M:%S %Y",
}


class Later:
    """Says 429 and when to come back, once for each path, and remembers that moment on the monotonic clock."""

    def __init__(self, form):
        self.form = form
        self.due = None

    def __call__(self, exchange):
        exchange.read_body()
        if self.due is not None:
            numbered(exchange)
            return
        if self.form == "seconds":
            value = "1"
            self.due = time.monotonic() + 1
        else:
            now = time.time()
            moment = math.ceil(now) + 1
            self.due = time.monotonic() + moment - now
            value = time.strftime(DATES[self.form], time.gmtime(moment))
        exchange.answer(429, "later", [("Retry-After", value)])


def test_every_form_is_obeyed_and_never_early(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 1ms, jitter: none}"))
    forms = ["seconds", *DATES]
    services = [upstream.on(f"/{number}", Later(form)) for number, form in enumerate(forms)]
    pendings = [gateway.post_later(f"/{number}", key=key, json=REFUND) for number in range(len(forms))]
    for number, (form, service, pending) in enumerate(zip(forms, services, pendings)):
        assert (pending.status, pending.idempotency) == (201, "stored"), form
        first, second = upstream.received(f"/{number}")
        assert second.at >= service.due, f"{form}: {1000 * (service.due - second.at):.1f} ms early"
        assert upstream.effects(f"/{number}") == 1


def test_dates_are_the_applications_own(start_gateway, upstream, key):
    """Its clock is an hour behind, and so are both the date that it names and the one it says it is."""
    def date(ahead):
        return time.strftime(DATES["IMF-fixdate"], time.gmtime(time.time() - 3600 + ahead))

    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 1ms, jitter: none}"))
    upstream.on("/refunds", in_turn(
        lambda exchange: answer(429, "later", [("Date", date(0)), ("Retry-After", date(1))], effect=False)(exchange),
        numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    first, second = upstream.received("/refunds")
    assert second.at - first.answered_at >= 1


def test_dates_are_read_by_the_wall_clock_of_today(start_gateway, upstream, key):
    """A store that was written while the clock was ahead keeps the gateway's time ahead; dates of others are not."""
    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 1ms, jitter: none}"))
    gateway.restart(env=hours_ahead(48))
    assert gateway.post("/other", key=fresh_key(), json=REFUND).status == 201
    gateway.restart()
    service = upstream.on("/refunds", Later("IMF-fixdate"))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    assert upstream.received("/refunds")[1].at >= service.due


def test_of_several_moments_the_latest_is_obeyed(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 1ms, jitter: none}"))
    upstream.on("/refunds", in_turn(
        answer(429, "later", [("Retry-After", "0"), ("Retry-After", "1")], effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    first, second = upstream.received("/refunds")
    assert second.at - first.answered_at >= 1


def test_503_that_says_when_is_obeyed_too(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 1ms, jitter: none}"))
    upstream.on("/refunds", in_turn(answer(503, "busy", [("Retry-After", "1")], effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    first, second = upstream.received("/refunds")
    assert second.at - first.answered_at >= 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee, status", [("atomic", 500), ("idempotent", 502), ("idempotent", 504)])
def test_any_answer_that_is_tried_again_may_say_when(start_gateway, upstream, key, guarantee, status):
    gateway = start_gateway(quick_retries(guarantee=guarantee, retry="{base: 1ms, cap: 1ms, jitter: none}"))
    upstream.on("/refunds", in_turn(answer(status, "later", [("Retry-After", "1")], effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    first, second = upstream.received("/refunds")
    assert second.at - first.answered_at >= 1
    assert upstream.effects("/refunds") == 1


def test_moment_that_has_passed_is_no_delay_of_its_own(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    past = [("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")]
    upstream.on("/refunds", in_turn(answer(503, "busy", past, effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [429, 503])
def test_more_than_the_total_time_is_handed_to_the_client(start_gateway, upstream, status):
    gateway = start_gateway(quick_retries())
    for number, value in enumerate(["11", "3600", "99999999999999999999", "Fri, 31 Dec 2299 23:59:59 GMT"]):
        path, key = f"/{number}", fresh_key()
        upstream.on(path, answer(status, "later", [("Retry-After", value)], effect=False))
        first = gateway.post(path, key=key, json=REFUND)
        assert (first.status, first.idempotency, first.body) == (status, "released", b"later"), value
        assert first.header("Retry-After") == value
        assert len(upstream.received(path)) == 1, value

        upstream.on(path, numbered)
        assert gateway.post(path, key=key, json=REFUND).idempotency == "stored", value
        assert upstream.effects(path) == 1, value


def test_more_than_the_clients_budget_is_handed_to_the_client(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", answer(429, "later", [("Retry-After", "5")], effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "3s"})
    assert (first.status, first.idempotency, first.header("Retry-After")) == (429, "released", "5")
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


TWICE = "{attempts: 2, base: 1ms, cap: 1ms}"


def test_nonsense_in_retry_after_is_ignored_and_counted(start_gateway, upstream):
    gateway = start_gateway(quick_retries(retry=TWICE))
    values = ["soon", "-1", "1.5", "1s", "", "Thu, 32 Foo 2026 99:99:99 GMT", "0x10", "1, 2", "\xff\xfe"]
    for number, value in enumerate(values):
        path = f"/{number}"
        upstream.on(path, answer(429, "later", [("Retry-After", value)], effect=False))
        first = gateway.post(path, key=fresh_key(), json=REFUND)
        assert (first.status, first.idempotency) == (429, "released"), value
        assert len(upstream.received(path)) == 2, value
        assert gateway.counts()["bad_retry_after"] == 2 * (number + 1), value
    assert upstream.effects() == 0


def test_nonsense_does_not_make_a_503_safe_to_send_again(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", answer(503, "busy", [("Retry-After", "soon")]))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_nonsense_in_the_clients_budget_is_ignored_and_counted(start_gateway, upstream):
    gateway = start_gateway(quick_retries(retry=TWICE))
    for number, value in enumerate(["soon", "0", "-5", "10 s", "1h", "1.5s", "ms", "1e3"]):
        path = f"/{number}"
        upstream.on(path, in_turn(answer(429, effect=False), numbered))
        first = gateway.post(path, key=fresh_key(), json=REFUND, headers={"X-Request-Timeout": value})
        assert (first.status, first.idempotency) == (201, "stored"), value
        assert [request.header("X-Request-Timeout") for request in upstream.received(path)] == [None, None], value
        assert gateway.counts()["bad_request_timeout"] == number + 1, value
        assert upstream.effects(path) == 1, value


def test_two_budgets_that_contradict_each_other_are_none(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry=TWICE))
    upstream.on("/refunds", in_turn(answer(429, effect=False), numbered))
    both = [("X-Request-Timeout", "1ms"), ("X-Request-Timeout", "10s")]
    assert gateway.post("/refunds", key=key, json=REFUND, headers=both).idempotency == "stored"
    assert [request.header("X-Request-Timeout") for request in upstream.received("/refunds")] == [None, None]
    assert gateway.counts()["bad_request_timeout"] == 1
    assert upstream.effects("/refunds") == 1


def test_nonsense_in_hapax_outcome_is_ignored_and_counted(start_gateway, upstream):
    gateway = start_gateway(quick_retries())
    for number, value in enumerate(["maybe", "", "STORE!", "store, release", "not_executed", "\xff"]):
        path, key = f"/{number}", fresh_key()
        upstream.on(path, answer(422, "no", [("Hapax-Outcome", value)]))
        first = gateway.post(path, key=key, json=REFUND)
        assert (first.status, first.idempotency, first.header("Hapax-Outcome")) == (422, "stored", None), value
        assert gateway.post(path, key=key, json=REFUND).idempotency == "replayed", value
        assert gateway.counts()["bad_hapax_outcome"] == number + 1, value
        assert upstream.effects(path) == 1, value


def test_two_words_that_contradict_each_other_are_none(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", answer(500, "no", [("Hapax-Outcome", "release"), ("Hapax-Outcome", "unknown")]))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert gateway.counts()["bad_hapax_outcome"] == 1
    assert upstream.effects("/refunds") == 1


def test_release_of_a_success_is_ignored_and_counted(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", answer(201, "done", [("Hapax-Outcome", "release")]))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert gateway.counts()["ignored_release"] == 1
    assert upstream.effects("/refunds") == 1


def test_applications_word_is_heeded_on_every_attempt(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent"))
    upstream.on("/refunds", in_turn(answer(502), answer(502, "it is done", [("Hapax-Outcome", "store")])))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.body) == (502, "stored", b"it is done")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert len(upstream.received("/refunds")) == 2
