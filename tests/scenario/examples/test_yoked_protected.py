# SPDX-License-Identifier: Apache-2.0
"""The "Idempotency and Retries Contract", row by row, where the gateway is what keeps it: the example's application
behind the example's configuration. Effects are rows in the application's database, and each story counts them before it
looks at anything else. test_yoked_bypassed tells every story of this file once more without a gateway, and there each
of them must fail."""
import collections
import datetime
import os
import uuid

import pytest

from harness import basic, eventually, fresh_key
from harness.yoked import on_stage, photo_form

PHOTO_BYTES = 3 * 1024 * 1024
Operation = collections.namedtuple("Operation", "target by what table")


@pytest.fixture
def yoked_soon_settled(request, tmp_path):
    """Whose application is at work for a second at most."""
    yield from on_stage(request, tmp_path, ("settle: 60s", "settle: 1s"))


def alike(responses):
    """One was executed, and everybody got its answer."""
    assert {response.status for response in responses} == {200}
    assert len({response.body for response in responses}) == 1
    assert sorted(response.idempotency for response in responses) == ["replayed"] * (len(responses) - 1) + ["stored"]


def one_and_no_ops(responses):
    """One was executed, and the others were told that there was nothing to do."""
    assert {response.status for response in responses} == {200}
    assert sorted(response.json() == {} for response in responses) == [False] + [True] * (len(responses) - 1)


def one_and_rejections(responses):
    """One was executed, and the others were refused."""
    executed = [response for response in responses if response.status == 200]
    assert len(executed) == 1
    for response in responses:
        if response not in executed:
            response.refuses(409, "CONFLICT.idempotency.duplicate_rejected")


def photo(content=None, **form):
    headers, body = photo_form(content or os.urandom(PHOTO_BYTES), **form)
    return {"headers": headers, "body": body}


def message(content="Hello!", client_message=None):
    return {"json": {"content": content, "clientMessageId": client_message or str(uuid.uuid4())}}


def report(subject, category="spam"):
    return {"json": {"subjectId": subject.id, "category": category}}


# Idempotent Endpoints (Safe to Retry)


def test_otp_send_returns_the_same_request_for_ten_minutes(yoked):
    phone = {"phone": "+15550199999"}
    first = yoked.post("/auth/otp/send", json=phone)
    again = yoked.post("/auth/otp/send", json=phone, key=fresh_key())  # the key is the phone, whatever is sent
    yoked.has(1, "otp_requests", phone=phone["phone"])
    yoked.has(1, "notifications", recipient=phone["phone"])
    yoked.later(minutes=9)
    alike([first, again, yoked.post("/auth/otp/send", json=phone)])
    yoked.has(1, "otp_requests", phone=phone["phone"])
    yoked.later(minutes=11)
    assert yoked.post("/auth/otp/send", json=phone).json()["requestId"] != first.json()["requestId"]
    yoked.has(2, "otp_requests", phone=phone["phone"])


def test_otp_is_sent_once_to_a_phone_whoever_asks(yoked, ada):
    """No credential, true or made up, makes it another operation."""
    phone = "+15550199999"
    callers = [{}, {"auth": ada.auth}, {"auth": basic("mallory", "1")}, {"auth": basic("mallory", "2")}, {}]
    answers = [yoked.front.post("/auth/otp/send", json={"phone": phone}, **caller) for caller in callers]
    yoked.has(1, "otp_requests", phone=phone)
    alike([answers[0], answers[-1]])
    assert [(answer.status, answer.idempotency) for answer in answers[1:-1]] == [(400, "released")] * 3


def test_tokens_are_shown_to_nobody_with_other_credentials(yoked):
    request = yoked.direct.post("/auth/otp/send", json={"phone": "+15550199999"}).json()["requestId"]
    right = {"requestId": request, "code": yoked.code(request)}
    first = yoked.post("/auth/otp/verify", json=right)
    other = yoked.front.post("/auth/otp/verify", json=right, auth=basic("mallory", "1"))
    again = yoked.post("/auth/otp/verify", json=right)
    yoked.has(1, "sessions", otp_request_id=request)
    assert (other.status, other.json()["error"]["code"]) == (400, "credentials_unwanted")
    alike([first, again])


@pytest.mark.parametrize("request_of", [
    {"body": '{"phone": "+15550199999"}', "headers": {"Content-Type": "text/plain"}},
    {"body": '{"phone": "+15550188888", "phone": "+15550199999"}', "headers": {"Content-Type": "application/json"}},
], ids=["not JSON by its type", "two phones"])
def test_request_of_which_no_key_can_be_made_is_refused(yoked, request_of):
    """Though the application would take it."""
    answer = yoked.post("/auth/otp/send", **request_of)
    yoked.has(0, "otp_requests", phone="+15550199999")
    assert "{body:/phone}" in answer.refuses(400, "VALIDATION.request_malformed")["detail"]


def test_otp_verify_returns_the_same_tokens_for_five_minutes(yoked):
    request = yoked.direct.post("/auth/otp/send", json={"phone": "+15550199999"}).json()["requestId"]
    right = {"requestId": request, "code": yoked.code(request)}
    first = yoked.post("/auth/otp/verify", json=right)
    again = yoked.post("/auth/otp/verify", json=right)
    yoked.has(1, "sessions", otp_request_id=request)
    yoked.later(minutes=4)
    alike([first, again, yoked.post("/auth/otp/verify", json=right)])
    yoked.has(1, "sessions", otp_request_id=request)
    yoked.later(minutes=6)
    assert yoked.post("/auth/otp/verify", json=right).json()["accessToken"] != first.json()["accessToken"]
    yoked.has(2, "sessions", otp_request_id=request)


def test_wrong_code_is_not_kept(yoked):
    request = yoked.direct.post("/auth/otp/send", json={"phone": "+15550199999"}).json()["requestId"]
    code = yoked.code(request)
    wrong = {"requestId": request, "code": f"{(int(code) + 1) % 10**6:06}"}
    refused = [yoked.post("/auth/otp/verify", json=wrong) for _ in range(2)]
    right = [yoked.post("/auth/otp/verify", json={"requestId": request, "code": code}) for _ in range(2)]
    yoked.has(1, "sessions", otp_request_id=request)
    assert [(answer.status, answer.idempotency) for answer in refused] == [(401, "released")] * 2
    alike(right)


def test_same_photo_is_returned_and_its_duplicate_rejected(yoked, ada, ben):
    """However the form is written, whatever the file is called, and whichever key came with it."""
    content = os.urandom(PHOTO_BYTES)
    forms = [{}, {"boundary": "another-frontier"}, {"name": "copy of me.jpg"}, {}]
    answers = [yoked.post("/users/me/photos", by=ada, key=fresh_key(), **photo(content, **form)) for form in forms]
    yoked.has(1, "photos", user_id=ada.id)
    alike(answers)
    other = yoked.post("/users/me/photos", by=ada, **photo())
    assert other.json()["photoId"] != answers[0].json()["photoId"]
    yoked.has(2, "photos", user_id=ada.id)
    assert yoked.post("/users/me/photos", by=ben, **photo(content)).status == 200  # somebody else's profile
    yoked.has(1, "photos", user_id=ben.id)


def test_same_responses_overwrite(yoked, ada):
    key = fresh_key()
    first = {"responses": {"pets": "yes", "children": "later"}}
    answers = [yoked.post("/compatibility/responses", by=ada, key=key, json=first) for _ in range(3)]
    yoked.has(1, "compatibility_runs", user_id=ada.id)
    yoked.has(2, "compatibility_responses", user_id=ada.id)
    alike(answers)
    second = yoked.post("/compatibility/responses", by=ada, key=fresh_key(), json={"responses": {"pets": "no"}})
    assert second.json()["runId"] != answers[0].json()["runId"]
    yoked.has(2, "compatibility_runs", user_id=ada.id)
    yoked.has(2, "compatibility_responses", user_id=ada.id)
    yoked.has(1, "compatibility_responses", user_id=ada.id, question="pets", response='"no"')


def test_same_verification_session_is_returned_for_five_minutes(yoked, ada, ben):
    first = yoked.post("/verification/session", by=ada)
    again = yoked.post("/verification/session", by=ada)
    yoked.has(1, "verification_sessions", user_id=ada.id)
    yoked.later(minutes=4)
    alike([first, again, yoked.post("/verification/session", by=ada)])
    assert yoked.post("/verification/session", by=ben).json() != first.json()
    yoked.has(1, "verification_sessions", user_id=ada.id)
    yoked.later(minutes=6)
    assert yoked.post("/verification/session", by=ada).json() != first.json()
    yoked.has(2, "verification_sessions", user_id=ada.id)


def test_session_is_the_users_and_not_the_tokens(yoked, ada):
    """A retry with a refreshed token comes from the same person: the gateway has the secret that shows it."""
    first = yoked.post("/verification/session", by=ada)
    fresh = yoked.direct.post("/auth/refresh", json={"refreshToken": ada.refresh_token}).json()["accessToken"]
    refreshed = ada._replace(auth=f"Bearer {fresh}")
    assert refreshed.auth != ada.auth
    again = yoked.post("/verification/session", by=refreshed)
    yoked.has(1, "verification_sessions", user_id=ada.id)
    alike([first, again])
    head, claims, signature = fresh.split(".")
    forged = ada._replace(auth=f"Bearer {head}.{claims}.{signature[::-1]}")
    yoked.post("/verification/session", by=forged).refuses(401, "AUTH.token_invalid")
    yoked.has(1, "verification_sessions", user_id=ada.id)


def test_same_action_state_is_returned(yoked, ada, ben):
    key = fresh_key()
    offer = yoked.offer(ada, ben)
    target = f"/matches/offers/{offer}/action"
    first = yoked.post(target, by=ada, key=key, json={"action": "accept"})
    yoked.direct.post(f"/matches/offers/{yoked.offer(ben, ada)}/action", auth=ben.auth, json={"action": "accept"})
    again = yoked.post(target, by=ada, key=key, json={"action": "accept"})
    yoked.has(1, "offer_actions", offer_id=offer)
    yoked.has(1, "notifications", recipient=ben.id)
    alike([first, again])
    assert again.json()["status"] == "accepted"  # what it was then; by now they have matched


def test_unmatch_again_is_a_no_op(yoked, ada, ben):
    match = yoked.match(ada, ben)
    answers = [yoked.post(f"/matches/{match}/unmatch", by=ada) for _ in range(3)]
    yoked.has(1, "unmatches", match_id=match)
    yoked.has(1, "notifications", recipient=ben.id, kind="match closed")
    yoked.has(1, "matches", id=match, status="closed", closed_reason="unmatched")
    one_and_no_ops(answers)


def test_duplicate_message_is_rejected_by_its_client_message_id(yoked, ada, ben):
    match = yoked.match(ada, ben)
    hello = message()
    answers = [yoked.post(f"/matches/{match}/messages", by=ada, key=fresh_key(), **hello) for _ in range(3)]
    yoked.has(1, "messages", match_id=match)
    yoked.has(1, "notifications", recipient=ben.id, kind="new message")
    alike(answers)


def test_read_again_is_a_no_op(yoked, ada, ben):
    match = yoked.match(ada, ben)
    answers = [yoked.post(f"/matches/{match}/read", by=ada, json={"upTo": "msg_1"}) for _ in range(3)]
    yoked.has(1, "read_receipts", match_id=match)
    yoked.has(1, "notifications", recipient=ben.id, kind="messages read")
    one_and_no_ops(answers)
    assert yoked.post(f"/matches/{match}/read", by=ada, json={"upTo": "msg_2"}).json()["upTo"] == "msg_2"
    yoked.has(2, "read_receipts", match_id=match)


def test_duplicate_report_is_rejected_for_an_hour(yoked, ada, ben):
    answers = [yoked.post("/safety/report", by=ada, **report(ben)) for _ in range(3)]
    yoked.has(1, "reports", reporter_id=ada.id)
    yoked.has(1, "notifications", recipient="moderators")
    one_and_rejections(answers)
    yoked.later(minutes=59)
    yoked.post("/safety/report", by=ada, **report(ben)).refuses(409, "CONFLICT.idempotency.duplicate_rejected")
    yoked.has(1, "reports", reporter_id=ada.id)
    yoked.later(minutes=61)
    assert yoked.post("/safety/report", by=ada, **report(ben)).status == 200
    yoked.has(2, "reports", reporter_id=ada.id)


def test_block_again_is_a_no_op(yoked, ada, ben):
    answers = [yoked.post("/safety/block", by=ada, json={"subjectId": ben.id}) for _ in range(3)]
    yoked.has(1, "blocks", user_id=ada.id)
    one_and_no_ops(answers)
    yoked.later(minutes=20 * 24 * 60)  # who is blocked stays so
    assert yoked.post("/safety/block", by=ada, json={"subjectId": ben.id}).json() == {}
    yoked.has(1, "blocks", user_id=ada.id)


def test_duplicate_appeal_is_rejected_for_a_day(yoked, ada):
    appeal = {"decisionId": "dec_1", "statement": "It was not me."}
    again = {**appeal, "statement": "It really was not me."}
    answers = [yoked.post("/safety/appeal", by=ada, json=body) for body in (appeal, appeal, again)]
    yoked.has(1, "appeals", user_id=ada.id)
    one_and_rejections(answers)
    yoked.later(minutes=23 * 60)
    yoked.post("/safety/appeal", by=ada, json=appeal).refuses(409, "CONFLICT.idempotency.duplicate_rejected")
    yoked.has(1, "appeals", user_id=ada.id)
    yoked.later(minutes=25 * 60)
    assert yoked.post("/safety/appeal", by=ada, json=appeal).status == 200
    yoked.has(2, "appeals", user_id=ada.id)


# Every row of that table, ten at once


def otp_send(_yoked, _ada, _ben):
    return Operation("/auth/otp/send", None, {"json": {"phone": "+15550199999"}},
                     ("otp_requests", {"phone": "+15550199999"}))


def otp_verify(yoked, ada, _ben):
    request = yoked.direct.post("/auth/otp/send", json={"phone": ada.phone}).json()["requestId"]
    return Operation("/auth/otp/verify", None, {"json": {"requestId": request, "code": yoked.code(request)}},
                     ("sessions", {"otp_request_id": request}))


def upload(_yoked, ada, _ben):
    return Operation("/users/me/photos", ada, photo(), ("photos", {}))


def responses_sent(_yoked, ada, _ben):
    return Operation("/compatibility/responses", ada, {"key": fresh_key(), "json": {"responses": {"pets": "yes"}}},
                     ("compatibility_runs", {}))


def verification(_yoked, ada, _ben):
    return Operation("/verification/session", ada, {}, ("verification_sessions", {}))


def accepting(yoked, ada, ben):
    return Operation(f"/matches/offers/{yoked.offer(ada, ben)}/action", ada,
                     {"key": fresh_key(), "json": {"action": "accept"}}, ("offer_actions", {}))


def unmatching(yoked, ada, ben):
    return Operation(f"/matches/{yoked.match(ada, ben)}/unmatch", ada, {}, ("unmatches", {}))


def writing(yoked, ada, ben):
    return Operation(f"/matches/{yoked.match(ada, ben)}/messages", ada, message(), ("messages", {}))


def reading(yoked, ada, ben):
    return Operation(f"/matches/{yoked.match(ada, ben)}/read", ada, {"json": {"upTo": "msg_1"}}, ("read_receipts", {}))


def reporting(_yoked, ada, ben):
    return Operation("/safety/report", ada, report(ben), ("reports", {}))


def blocking(_yoked, ada, ben):
    return Operation("/safety/block", ada, {"json": {"subjectId": ben.id}}, ("blocks", {}))


def appealing(_yoked, ada, _ben):
    return Operation("/safety/appeal", ada, {"json": {"decisionId": "dec_1", "statement": "No."}}, ("appeals", {}))


@pytest.mark.parametrize("row, everyone_gets", [
    (otp_send, alike), (otp_verify, alike), (upload, alike), (responses_sent, alike), (verification, alike),
    (accepting, alike), (unmatching, one_and_no_ops), (writing, alike), (reading, one_and_no_ops),
    (reporting, one_and_rejections), (blocking, one_and_no_ops), (appealing, one_and_rejections)])
def test_ten_at_once_happen_once(yoked, ada, ben, row, everyone_gets):
    operation = row(yoked, ada, ben)
    table, where = operation.table
    everyone = [pending.response for pending in yoked.ten_together(operation.target, by=operation.by,
                                                                   **operation.what)]
    yoked.has(1, table, **where)
    everyone_gets(everyone)


# Offer State Transitions


@pytest.mark.parametrize("action, result", [("accept", "accepted"), ("pass", "passed"), ("not_now", "not_now")])
def test_offered_becomes_what_was_decided(yoked, ada, ben, action, result):
    """The same state whoever asks again, with the same key or another one; with the same key nothing happens at all."""
    offer, key = yoked.offer(ada, ben), fresh_key()
    target = f"/matches/offers/{offer}/action"
    answers = [yoked.post(target, by=ada, key=key, json={"action": action}) for _ in range(3)]
    yoked.has(1, "offer_actions", offer_id=offer)
    alike(answers)
    decided = yoked.app.ask("SELECT status, decided_at FROM match_offers WHERE id = ?", offer)
    another = yoked.post(target, by=ada, key=fresh_key(), json={"action": action})
    assert answers[0].json() == another.json() == {"offerId": offer, "status": result}
    assert yoked.app.ask("SELECT status, decided_at FROM match_offers WHERE id = ?", offer) == decided


def test_accepted_becomes_matched_by_the_counterparts_accept(yoked, ada, ben):
    yoked.post(f"/matches/offers/{yoked.offer(ada, ben)}/action", by=ada, key=fresh_key(), json={"action": "accept"})
    offer, key = yoked.offer(ben, ada), fresh_key()
    answers = [yoked.post(f"/matches/offers/{offer}/action", by=ben, key=key, json={"action": "accept"})
               for _ in range(3)]
    yoked.has(1, "offer_actions", offer_id=offer)
    yoked.has(1, "notifications", recipient=ada.id, kind="offer matched")
    yoked.has(1, "matches", status="open")
    yoked.has(2, "match_offers", status="matched")
    alike(answers)
    assert answers[0].json()["status"] == "matched"


def test_matched_becomes_closed_by_unmatch(yoked, ada, ben):
    match = yoked.match(ada, ben)
    first = yoked.post(f"/matches/{match}/unmatch", by=ada)
    closed = yoked.app.ask("SELECT status, closed_reason, closed_at FROM matches")
    yoked.post(f"/matches/{match}/unmatch", by=ada)
    yoked.has(1, "unmatches", match_id=match)
    assert first.json() == {"matchId": match, "status": "closed", "reason": "unmatched"}
    theirs = yoked.post(f"/matches/{match}/unmatch", by=ben)  # an operation of their own, with the same result
    assert theirs.json() == first.json()
    assert yoked.app.ask("SELECT status, closed_reason, closed_at FROM matches") == closed
    assert closed[0][:2] == ("closed", "unmatched")


# Message Deduplication: Server Behavior


def test_message_1_its_id_is_looked_up_in_a_window_of_a_day(yoked, ada, ben):
    target, hello = f"/matches/{yoked.match(ada, ben)}/messages", message()
    first = yoked.post(target, by=ada, **hello)
    yoked.post(target, by=ada, **hello)
    yoked.has(1, "messages")
    yoked.later(minutes=23 * 60)
    assert yoked.post(target, by=ada, **hello).body == first.body
    yoked.has(1, "messages")
    yoked.later(minutes=25 * 60)
    assert yoked.post(target, by=ada, **hello).json()["messageId"] != first.json()["messageId"]
    yoked.has(2, "messages")


def test_message_2_that_exists_is_returned(yoked, ada, ben):
    target, hello = f"/matches/{yoked.match(ada, ben)}/messages", message()
    first = yoked.post(target, by=ada, **hello)
    again = yoked.post(target, by=ada, **hello)
    yoked.has(1, "messages", id=first.json()["messageId"])
    yoked.has(1, "messages")
    alike([first, again])
    other_words = message("Good bye!", hello["json"]["clientMessageId"])
    yoked.post(target, by=ada, **other_words).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    yoked.has(1, "messages")


def test_message_3_that_does_not_exist_is_created(yoked, ada, ben):
    """Another id is another message, though it says the same; and so is one id in another match or of another
    sender."""
    cleo = yoked.sign_in()
    one, other = (f"/matches/{yoked.match(ada, whom)}/messages" for whom in (ben, cleo))
    hello, hello_again = message(), message()
    sent = [(one, ada, hello), (one, ada, hello_again), (one, ben, hello), (other, ada, hello)]
    answers = [yoked.post(target, by=by, **what) for target, by, what in sent + sent]
    yoked.has(4, "messages")
    assert len({answer.json()["messageId"] for answer in answers}) == 4


def test_message_4_its_id_leads_to_the_message_from_then_on(yoked, ada, ben):
    """Whatever becomes of the gateway."""
    target, hello = f"/matches/{yoked.match(ada, ben)}/messages", message()
    first = yoked.post(target, by=ada, **hello)
    yoked.front.restart("kill")
    again = yoked.post(target, by=ada, **hello)
    yoked.has(1, "messages", client_message_id=hello["json"]["clientMessageId"], id=first.json()["messageId"])
    yoked.has(1, "messages")
    alike([first, again])


# Safety Report Deduplication


def test_same_reporter_subject_and_category_is_one_report(yoked, ada, ben):
    answers = [yoked.post("/safety/report", by=ada, json={"subjectId": ben.id, "category": "spam", "details": details})
               for details in ("He sells things.", "He sells things!", "Again.")]
    yoked.has(1, "reports")
    one_and_rejections(answers)


def test_same_report_is_rejected_though_the_clocks_hour_is_another(yoked, ada, ben):
    """Buckets of an hour, and yet an hour: what was reported two minutes before the hour counts in the next one."""
    minute = datetime.datetime.now(datetime.timezone.utc).minute
    two_to = (58 - minute) % 60
    yoked.later(minutes=two_to)
    first = yoked.post("/safety/report", by=ada, **report(ben))
    yoked.later(minutes=two_to + 15)
    again = yoked.post("/safety/report", by=ada, **report(ben))
    yoked.has(1, "reports")
    one_and_rejections([first, again])
    yoked.later(minutes=two_to + 61)
    assert yoked.post("/safety/report", by=ada, **report(ben)).status == 200
    yoked.has(2, "reports")


def test_different_categories_are_different_reports(yoked, ada, ben):
    answers = [yoked.post("/safety/report", by=ada, **report(ben, category))
               for category in ("spam", "harassment", "spam", "harassment")]
    yoked.has(2, "reports")
    yoked.has(1, "reports", category="harassment")
    assert [answer.status for answer in answers] == [200, 200, 409, 409]


def test_different_reporters_are_always_allowed(yoked, ada, ben):
    cleo = yoked.sign_in()
    answers = [yoked.post("/safety/report", by=reporter, **report(ben)) for reporter in (ada, cleo, ada, cleo)]
    yoked.has(2, "reports")
    yoked.has(1, "reports", reporter_id=cleo.id)
    assert [answer.status for answer in answers] == [200, 200, 409, 409]


# Idempotency Key: requirements and server behaviour


@pytest.mark.parametrize("bad", ["c232ab00-9414-11ec-b3c8-9f6bdeced846", "not-a-uuid-but-long-enough",
                                 "8e03978e-40d5-43dd-bc93", "8e03978e40d543ddbc936894a57f9324"],
                         ids=["version 1", "text", "cut off", "without hyphens"])
def test_key_is_a_uuid_of_version_4(yoked, ada, bad):
    answer = yoked.post("/compatibility/responses", by=ada, key=bad, json={"responses": {"pets": "yes"}})
    yoked.has(0, "compatibility_runs")
    answer.refuses(400, "VALIDATION.idempotency_key_invalid")


def test_client_must_provide_a_key(yoked, ada, ben):
    answers = [yoked.post("/compatibility/responses", by=ada, json={"responses": {"pets": "yes"}}),
               yoked.post(f"/matches/offers/{yoked.offer(ada, ben)}/action", by=ada, json={"action": "accept"})]
    yoked.has(0, "compatibility_runs")
    yoked.has(0, "offer_actions")
    for answer in answers:
        answer.refuses(400, "VALIDATION.idempotency_key_missing")


def test_key_is_unique_per_operation_of_a_user(yoked, ada, ben):
    """One operation for one key; and another user's key is another key, though it is spelled the same."""
    key = fresh_key()
    pets = {"responses": {"pets": "yes"}}
    answers = [yoked.post("/compatibility/responses", by=by, key=key, json=pets) for by in (ada, ben, ada, ben)]
    yoked.has(1, "compatibility_runs", user_id=ada.id)
    yoked.has(1, "compatibility_runs", user_id=ben.id)
    alike(answers[::2])
    alike(answers[1::2])


def test_key_reused_with_another_payload_is_a_conflict(yoked, ada):
    key = fresh_key()
    yoked.post("/compatibility/responses", by=ada, key=key, json={"responses": {"pets": "yes"}})
    other = yoked.post("/compatibility/responses", by=ada, key=key, json={"responses": {"pets": "no"}})
    yoked.has(1, "compatibility_runs")
    yoked.has(1, "compatibility_responses", response='"yes"')
    other.refuses(409, "CONFLICT.idempotency.payload_mismatch")


def test_key_reused_on_another_endpoint_is_a_conflict(yoked, ada, ben):
    cleo, key = yoked.sign_in(), fresh_key()
    accept = {"action": "accept"}
    yoked.post(f"/matches/offers/{yoked.offer(ada, ben)}/action", by=ada, key=key, json=accept)
    others = [yoked.post(f"/matches/offers/{yoked.offer(ada, cleo)}/action", by=ada, key=key, json=accept),
              yoked.post("/compatibility/responses", by=ada, key=key, json={"responses": {"pets": "yes"}})]
    yoked.has(1, "offer_actions")
    yoked.has(0, "compatibility_runs")
    for other in others:
        other.refuses(409, "CONFLICT.idempotency.payload_mismatch")


def test_key_expires_after_a_day(yoked, ada):
    key, pets = fresh_key(), {"responses": {"pets": "yes"}}
    first = yoked.post("/compatibility/responses", by=ada, key=key, json=pets)
    again = yoked.post("/compatibility/responses", by=ada, key=key, json=pets)
    yoked.has(1, "compatibility_runs")
    yoked.later(minutes=23 * 60)
    alike([first, again, yoked.post("/compatibility/responses", by=ada, key=key, json=pets)])
    yoked.has(1, "compatibility_runs")
    yoked.later(minutes=25 * 60)
    assert yoked.post("/compatibility/responses", by=ada, key=key, json=pets).idempotency == "stored"
    yoked.has(2, "compatibility_runs")


# Test Cases


def test_case_1_duplicate_request(yoked, ada, ben):
    key, offer = fresh_key(), yoked.offer(ada, ben)
    target, accept = f"/matches/offers/{offer}/action", {"action": "accept"}
    first = yoked.post(target, by=ada, key=key, json=accept)
    before = dump(yoked)
    again = yoked.post(target, by=ada, key=key, json=accept)
    yoked.has(1, "offer_actions")
    assert (again.status, again.body) == (first.status, first.body)
    assert dump(yoked) == before


def dump(yoked):
    """All that the application has."""
    tables = yoked.app.ask("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return {table: yoked.app.ask(f"SELECT * FROM {table}") for table, in tables}


def test_case_2_retry_after_failure_that_left_nothing(yoked, ada, ben):
    """The application fails before it commits. It is asked again by the gateway, and then by the client."""
    key, offer = fresh_key(), yoked.offer(ada, ben)
    target, accept = f"/matches/offers/{offer}/action", {"action": "accept"}
    failed = yoked.post(target, by=ada, key=key, json=accept, headers={"Demo-Fault": "fail-before-commit"})
    yoked.has(0, "offer_actions")
    retried = [yoked.post(target, by=ada, key=key, json=accept) for _ in range(2)]
    yoked.has(1, "offer_actions")
    assert (failed.status, failed.idempotency) == (500, "released")
    alike(retried)


def test_case_2_retry_after_failure_that_left_its_effect(yoked, ada, ben):
    """The connection breaks after the commit: the application is asked what became of it, and that is the answer."""
    key, offer = fresh_key(), yoked.offer(ada, ben)
    target, accept = f"/matches/offers/{offer}/action", {"action": "accept"}
    lost = yoked.front.send("POST", target, auth=ada.auth, key=key, json=accept,
                            headers={"Demo-Fault": "drop-after-commit"})
    eventually(lambda: yoked.count("offer_actions"), "the effect")
    answer_of(lost)
    retried = [yoked.post(target, by=ada, key=key, json=accept) for _ in range(2)]
    yoked.has(1, "offer_actions")
    assert (lost.status, lost.idempotency) == (502, "unknown")
    assert [(answer.status, answer.idempotency) for answer in retried] == [(200, "replayed")] * 2
    assert retried[0].json() == retried[1].json() == {"offerId": offer, "status": "accepted"}


def answer_of(pending):
    """None when the connection ended without one."""
    try:
        return pending.response
    except AssertionError:
        return None


def test_case_2_retry_after_the_gateway_died(yoked, ada, ben):
    key, offer = fresh_key(), yoked.offer(ada, ben)
    target, accept = f"/matches/offers/{offer}/action", {"action": "accept"}
    yoked.front.send("POST", target, auth=ada.auth, key=key, json=accept, headers={"Demo-Fault": "hang-after-commit"})
    eventually(lambda: yoked.count("offer_actions"), "the effect")
    yoked.front.restart("kill")
    retried = [yoked.post(target, by=ada, key=key, json=accept) for _ in range(2)]
    yoked.has(1, "offer_actions")
    assert [answer.json()["status"] for answer in retried] == ["accepted"] * 2


def test_case_2_retry_after_failure_of_which_nobody_knows(yoked_soon_settled):
    """The connection breaks before the commit. The application knows nothing of it, and can't be at work on it any
    more: it is sent again."""
    yoked = yoked_soon_settled
    ada, ben = yoked.sign_in(), yoked.sign_in()
    key, target = fresh_key(), f"/matches/offers/{yoked.offer(ada, ben)}/action"
    accept = {"action": "accept"}
    lost = yoked.front.send("POST", target, auth=ada.auth, key=key, json=accept,
                            headers={"Demo-Fault": "drop-before-commit"})
    answer_of(lost)
    yoked.has(0, "offer_actions")
    retried = eventually(lambda: executed(yoked.post(target, by=ada, key=key, json=accept)), "the retry's execution")
    again = yoked.post(target, by=ada, key=key, json=accept)
    yoked.has(1, "offer_actions")
    assert (lost.status, lost.idempotency) == (502, "unknown")
    alike([retried, again])


def executed(response):
    if response.status == 200:
        return response
    response.refuses(409, "CONFLICT.idempotency.outcome_unknown")
    return None


def test_case_2_retry_of_what_has_no_key_of_its_own(yoked, ada, ben):
    """A natural key is asked about as any other: what the application got is what it is asked for."""
    match, hello = yoked.match(ada, ben), message()
    lost = yoked.front.send("POST", f"/matches/{match}/messages", auth=ada.auth,
                            **{**hello, "headers": {"Demo-Fault": "drop-after-commit"}})
    eventually(lambda: yoked.count("messages"), "the effect")
    answer_of(lost)
    retried = [yoked.post(f"/matches/{match}/messages", by=ada, **hello) for _ in range(2)]
    yoked.has(1, "messages")
    assert lost.idempotency == "unknown"
    assert [answer.status for answer in retried] == [200, 200]
    assert retried[0].json() == retried[1].json()


def test_case_2_retry_is_not_answered_with_what_became_of_another(yoked_soon_settled):
    """Two operations whose keys are made of the same words have keys of their own at the application."""
    yoked = yoked_soon_settled
    ada, ben = yoked.sign_in(), yoked.sign_in()
    for who in (ada, ben):
        yoked.post("/safety/block", by=who, json={"subjectId": "x_1"})
    yoked.post("/safety/appeal", by=ben, json={"decisionId": "x_1", "statement": "It was not me."})
    appeal = {"decisionId": "x_1", "statement": "It was not me."}
    answer_of(yoked.front.send("POST", "/safety/appeal", auth=ada.auth, json=appeal,
                               headers={"Demo-Fault": "drop-before-commit"}))
    yoked.has(0, "appeals", user_id=ada.id)
    retried = eventually(lambda: executed(yoked.post("/safety/appeal", by=ada, json=appeal)), "the retry's execution")
    again = yoked.post("/safety/appeal", by=ada, json=appeal)
    yoked.has(1, "appeals", user_id=ada.id)
    yoked.has(1, "appeals", id=retried.json()["appealId"])
    one_and_rejections([retried, again])


def test_case_3_ten_concurrent_requests(yoked, ada, ben):
    key, offer = fresh_key(), yoked.offer(ada, ben)
    everyone = [pending.response for pending in
                yoked.ten_together(f"/matches/offers/{offer}/action", by=ada, key=key, json={"action": "accept"})]
    yoked.has(1, "offer_actions")
    yoked.has(1, "notifications", recipient=ben.id)
    alike(everyone)
