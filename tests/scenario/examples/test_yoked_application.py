# SPDX-License-Identifier: Apache-2.0
"""The rows of the "Idempotency and Retries Contract" that the application keeps by itself, and those that are not to be
idempotent: through the gateway they are as they are without it."""
import json

from harness import fresh_key
from harness.yoked import photo_form


def patch(yoked, who, body, **what):
    return yoked.front.request("PATCH", "/users/me", auth=who.auth, json=body, **what)


def untouched(response):
    """The gateway streamed it through."""
    return response.idempotency is None and response.header("Idempotency-Expires") is None


def test_last_write_to_a_user_wins_without_a_key(yoked, ada):
    for name in ("Ada", "Ada", "Lovelace"):
        answer = patch(yoked, ada, {"displayName": name})
        assert (answer.status, answer.json()["displayName"]) == (200, name)
        assert untouched(answer)
    yoked.has(1, "users", id=ada.id, display_name="Lovelace")


def test_last_write_to_a_user_wins_whatever_its_key(yoked, ada):
    """A key is not needed, and one that is sent anyway doesn't bring back what was written before."""
    key = fresh_key()
    for name in ("Ada", "Lovelace", "Ada"):
        assert patch(yoked, ada, {"displayName": name}, key=key).json()["displayName"] == name
    yoked.has(1, "users", id=ada.id, display_name="Ada")


def test_refresh_always_issues_new_tokens(yoked, ada):
    key = fresh_key()
    answers = [yoked.post("/auth/refresh", key=key, json={"refreshToken": ada.refresh_token}) for _ in range(3)]
    yoked.has(3, "token_refreshes")
    assert len({answer.json()["accessToken"] for answer in answers}) == 3
    assert all(untouched(answer) for answer in answers)


def test_logout_always_revokes_the_session(yoked, ada):
    key = fresh_key()
    answers = [yoked.post("/auth/logout", by=ada, key=key) for _ in range(2)]
    yoked.has(2, "logouts")
    assert [answer.status for answer in answers] == [204, 204]
    assert all(untouched(answer) for answer in answers)
    assert yoked.front.get("/users/me", auth=ada.auth).status == 401


def test_photo_is_deleted_once(yoked, ada):
    headers, body = photo_form(b"a photo")
    photo = yoked.post("/users/me/photos", by=ada, headers=headers, body=body).json()["photoId"]
    key = fresh_key()
    answers = [yoked.front.request("DELETE", f"/users/me/photos/{photo}", auth=ada.auth, key=key) for _ in range(2)]
    yoked.has(1, "photo_deletions", photo_id=photo)
    yoked.has(0, "photos")
    assert [answer.status for answer in answers] == [204, 404]
    assert all(untouched(answer) for answer in answers)


def test_preferences_are_upserted(yoked, ada, ben):
    for value in (True, False, True, False):
        patch(yoked, ada, {"preferences": {"notifications": value}})
    patch(yoked, ben, {"preferences": {"notifications": True}})
    yoked.has(1, "user_preferences", user_id=ada.id, preference="notifications", value=json.dumps(False))
    yoked.has(2, "user_preferences")


def test_responses_are_upserted(yoked, ada):
    for pets in ("yes", "no", "yes"):
        yoked.post("/compatibility/responses", by=ada, key=fresh_key(), json={"responses": {"pets": pets}})
    yoked.has(1, "compatibility_responses", user_id=ada.id, question="pets", response='"yes"')
    yoked.has(1, "compatibility_responses")


def test_offer_is_updated_only_from_offered(yoked, ada, ben):
    """Keys that differ are operations of their own: the condition in the statement is what holds the state then."""
    offer = yoked.offer(ada, ben)
    target = f"/matches/offers/{offer}/action"
    assert yoked.post(target, by=ada, key=fresh_key(), json={"action": "accept"}).json()["status"] == "accepted"
    decided = yoked.app.ask("SELECT status, decided_at FROM match_offers WHERE id = ?", offer)
    again = yoked.post(target, by=ada, key=fresh_key(), json={"action": "accept"})
    other = yoked.post(target, by=ada, key=fresh_key(), json={"action": "pass"})
    assert (again.status, again.json()["status"]) == (200, "accepted")
    assert (other.status, other.json()["error"]["code"]) == (409, "offer_is_decided")
    assert yoked.app.ask("SELECT status, decided_at FROM match_offers WHERE id = ?", offer) == decided


def test_ten_keys_at_once_match_two_people_once(yoked, ada, ben):
    yoked.direct.post(f"/matches/offers/{yoked.offer(ada, ben)}/action", auth=ada.auth, json={"action": "accept"})
    target = f"/matches/offers/{yoked.offer(ben, ada)}/action"
    with yoked.app.held():
        everyone = yoked.front.wait_inside([yoked.front.send("POST", target, auth=ben.auth, key=fresh_key(),
                                                             json={"action": "accept"}) for _ in range(10)])
    answers = [pending.response for pending in everyone]
    yoked.has(1, "matches")
    assert {answer.json()["status"] for answer in answers} == {"matched"}
    assert len({answer.json()["matchId"] for answer in answers}) == 1


def test_error_of_the_application_leaves_nothing(yoked, ada, ben):
    """What `guarantee: atomic` declares in the example's configuration is true of its application."""
    offer = yoked.offer(ada, ben)
    failed = yoked.direct.post(f"/matches/offers/{offer}/action", auth=ada.auth, json={"action": "accept"},
                               headers={"Demo-Fault": "fail-before-commit"})
    assert failed.status == 500
    yoked.has(0, "offer_actions")
    yoked.has(0, "notifications", recipient=ben.id)
    yoked.has(0, "match_offers", status="accepted")
