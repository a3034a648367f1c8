# SPDX-License-Identifier: Apache-2.0
"""The sixteen endpoints of the contract, and the few that only look. Each runs inside one transaction.

Where the contract puts idempotency into SQL (upserts, conditional updates) it is here as the contract writes it. Where
it asks for deduplication (one text message in ten minutes, one photo, one report in an hour) there is none: that is the
gateway's work. What goes with a change, such as a notification, goes with every call."""
import datetime
import hashlib
import json
import re
import secrets
import uuid

import tokens

OTP_LIFETIME = datetime.timedelta(minutes=10)
RESULT_OF = {"accept": "accepted", "pass": "passed", "not_now": "not_now"}
ENDPOINTS = []


class Refused(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status = status
        self.code = code


def endpoint(method, path, signed_in=True, may_sign_in=False, for_nobody=False, revoked_too=False,
             can_be_asked_about=True):
    """`signed_in`: only for users; `may_sign_in`: for them and others; `for_nobody`: credentials are refused.
    `revoked_too`: a session that was ended may still call it. `can_be_asked_about`: GET /requests tells its answer."""
    pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path))

    def add(handler):
        handler.signed_in = signed_in
        handler.may_sign_in = may_sign_in
        handler.for_nobody = for_nobody
        handler.revoked_too = revoked_too
        handler.can_be_asked_about = can_be_asked_about and method != "GET"
        ENDPOINTS.append((method, pattern, handler))
        return handler
    return add


def find(method, path):
    """The handler of a request, and what stands in the braces of its path."""
    for known, pattern, handler in ENDPOINTS:
        found = pattern.fullmatch(path)
        if found and known == method:
            return handler, found.groupdict()
    raise Refused(404, "no_such_endpoint", f"there is no {method} {path}")


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def new_id(kind):
    return f"{kind}_{uuid.uuid4().hex}"


class Call:
    """One request, and the transaction that it runs in."""

    def __init__(self, parameters, query, body, form, secret, token_lifetime_s):
        self.parameters = parameters
        self.query = query
        self.form = form
        self.secret = secret
        self.token_lifetime_s = token_lifetime_s
        self.body = body
        self.db = None
        self.user = None
        self.session = None

    def json(self, *names):
        """The body's members of these names, which must be strings; without names the body itself."""
        try:
            body = json.loads(self.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise Refused(400, "json_wanted", "the body is a JSON object")
        for name in names:
            if not isinstance(body.get(name), str) or not body[name]:
                raise Refused(400, "member_missing", f"{name} is missing")
        return [body[name] for name in names] if names else body

    def sign_in(self, authorization, revoked_too):
        scheme, _, token = authorization.partition(" ")
        try:
            claims = tokens.claims_of(self.secret, token.strip())
        except tokens.Invalid:
            claims = {}
        session = self.one("SELECT * FROM sessions WHERE id = ?", claims.get("sid"))
        if scheme.lower() != "bearer" or not session or (session["revoked_at"] and not revoked_too):
            raise Refused(401, "signed_out", "sign in, and send Authorization: Bearer TOKEN")
        self.user = session["user_id"]
        self.session = session["id"]

    def one(self, sql, *values):
        return self.db.execute(sql, values).fetchone()

    def add(self, table, **columns):
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))

    def change(self, sql, *values):
        """How many rows it changed."""
        return self.db.execute(sql, values).rowcount

    def notify(self, recipient, kind):
        self.add("notifications", recipient=recipient, kind=kind, at=now())

    def remember(self, key, answer):
        self.add("requests", idempotency_key=key.strip('"'), user_id=self.user, answer=json.dumps(answer), at=now())

    def match(self, status=None):
        """The match in the path, which must be one of the caller's."""
        match = self.one("SELECT * FROM matches WHERE id = ? AND ? IN (user_a, user_b)", self.parameters["id"],
                         self.user)
        if not match:
            raise Refused(404, "no_such_match", "you have no match of this id")
        if status and match["status"] != status:
            raise Refused(409, "match_is_closed", "this match is closed")
        return match

    def counterpart(self, match):
        return match["user_b"] if match["user_a"] == self.user else match["user_a"]

    def issue_tokens(self, user, session):
        refresh = secrets.token_urlsafe(32)
        self.add("refresh_tokens", sha256=hashlib.sha256(refresh.encode()).hexdigest(), session_id=session,
                 issued_at=now())
        access = tokens.issue(self.secret, user, session, self.token_lifetime_s)
        return {"accessToken": access, "refreshToken": refresh, "userId": user}


# Signing in


@endpoint("POST", "/auth/otp/send", signed_in=False, for_nobody=True)
def send_otp(call):
    phone, = call.json("phone")
    if not re.fullmatch(r"\+\d{7,15}", phone):
        raise Refused(400, "bad_phone", "a phone number is like +15550100001")
    request = new_id("otp")
    call.add("otp_requests", id=request, phone=phone, code=f"{secrets.randbelow(10**6):06}", created_at=now())
    call.notify(phone, "text message with a code")
    return 200, {"requestId": request}


@endpoint("POST", "/auth/otp/verify", signed_in=False, for_nobody=True, can_be_asked_about=False)
def verify_otp(call):
    request_id, code = call.json("requestId", "code")
    request = call.one("SELECT * FROM otp_requests WHERE id = ?", request_id)
    if not request or not secrets.compare_digest(request["code"].encode(), code.encode()):
        raise Refused(401, "wrong_code", "this is not the code that was sent")
    sent_at = datetime.datetime.fromisoformat(request["created_at"])
    if datetime.datetime.now(datetime.timezone.utc) - sent_at > OTP_LIFETIME:
        raise Refused(401, "code_expired", "this code is too old; ask for another one")
    session = new_id("ses")
    user = user_of(call, request["phone"])
    call.add("sessions", id=session, user_id=user, otp_request_id=request_id, created_at=now())
    return 200, call.issue_tokens(user, session)


def user_of(call, phone):
    """The user with that phone; somebody new is offered to everyone who is here, and everyone to them."""
    known = call.one("SELECT id FROM users WHERE phone = ?", phone)
    if known:
        return known["id"]
    user = new_id("usr")
    others = call.db.execute("SELECT id FROM users ORDER BY rowid").fetchall()
    call.add("users", id=user, phone=phone, updated_at=now())
    for other in others:
        pair = new_id("pair")
        call.add("match_offers", id=new_id("off"), pair_id=pair, user_id=user, counterpart_id=other["id"])
        call.add("match_offers", id=new_id("off"), pair_id=pair, user_id=other["id"], counterpart_id=user)
    return user


@endpoint("POST", "/auth/refresh", signed_in=False, can_be_asked_about=False)
def refresh(call):
    token, = call.json("refreshToken")
    session = call.one("SELECT s.* FROM sessions s JOIN refresh_tokens t ON t.session_id = s.id"
                       " WHERE t.sha256 = ? AND s.revoked_at IS NULL", hashlib.sha256(token.encode()).hexdigest())
    if not session:
        raise Refused(401, "signed_out", "this refresh token is not valid")
    call.add("token_refreshes", session_id=session["id"], at=now())
    return 200, call.issue_tokens(session["user_id"], session["id"])


@endpoint("POST", "/auth/logout", revoked_too=True)
def logout(call):
    call.change("UPDATE sessions SET revoked_at = ? WHERE id = ?", now(), call.session)
    call.add("logouts", session_id=call.session, at=now())
    return 204, None


# Profiles


def profile(call):
    user = call.one("SELECT * FROM users WHERE id = ?", call.user)
    preferences = call.db.execute("SELECT preference, value FROM user_preferences WHERE user_id = ?", (call.user,))
    return {"userId": user["id"], "displayName": user["display_name"], "bio": user["bio"],
            "preferences": {row["preference"]: json.loads(row["value"]) for row in preferences}}


@endpoint("GET", "/users/me")
def show_user(call):
    return 200, profile(call)


@endpoint("PATCH", "/users/me")
def change_user(call):
    wanted = call.json()
    for member, column in (("displayName", "display_name"), ("bio", "bio")):
        if member in wanted:
            text, = call.json(member)
            call.change(f"UPDATE users SET {column} = ?, updated_at = ? WHERE id = ?", text, now(), call.user)
    preferences = wanted.get("preferences", {})
    if not isinstance(preferences, dict):
        raise Refused(400, "bad_member", "preferences is an object of names and values")
    for preference, value in preferences.items():
        call.change("INSERT INTO user_preferences (user_id, preference, value, updated_at) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (user_id, preference) DO UPDATE"
                    " SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at",
                    call.user, preference, json.dumps(value), now())
    return 200, profile(call)


@endpoint("POST", "/users/me/photos")
def add_photo(call):
    content = call.form().get("photo")
    if not content:
        raise Refused(400, "photo_missing", "the form has no part of the name photo")
    photo = new_id("pho")
    digest = hashlib.sha256(content).hexdigest()
    call.add("photos", id=photo, user_id=call.user, sha256=digest, content=content, created_at=now())
    return 200, {"photoId": photo, "sha256": digest, "bytes": len(content)}


@endpoint("DELETE", "/users/me/photos/{id}")
def delete_photo(call):
    photo = call.parameters["id"]
    if not call.change("DELETE FROM photos WHERE id = ? AND user_id = ?", photo, call.user):
        raise Refused(404, "no_such_photo", "you have no photo of this id")
    call.add("photo_deletions", photo_id=photo, user_id=call.user, at=now())
    return 204, None


@endpoint("POST", "/compatibility/responses")
def respond(call):
    responses = call.json().get("responses")
    if not isinstance(responses, dict) or not responses:
        raise Refused(400, "member_missing", "responses is an object of questions and responses")
    for question, response in responses.items():
        call.change("INSERT INTO compatibility_responses (user_id, question, response, updated_at) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (user_id, question) DO UPDATE"
                    " SET response = EXCLUDED.response, updated_at = EXCLUDED.updated_at",
                    call.user, question, json.dumps(response), now())
    run = new_id("run")
    call.add("compatibility_runs", id=run, user_id=call.user, at=now())
    return 200, {"runId": run, "responses": len(responses)}


@endpoint("POST", "/verification/session")
def begin_verification(call):
    session = new_id("ver")
    call.add("verification_sessions", id=session, user_id=call.user, at=now())
    return 200, {"sessionId": session, "url": f"https://verify.example/{session}"}


# Matches


@endpoint("GET", "/matches/offers")
def show_offers(call):
    offers = call.db.execute("SELECT * FROM match_offers WHERE user_id = ? ORDER BY rowid", (call.user,))
    return 200, {"data": [{"offerId": offer["id"], "counterpartId": offer["counterpart_id"],
                           "status": offer["status"]} for offer in offers]}


@endpoint("POST", "/matches/offers/{id}/action")
def act_on_offer(call):
    action, = call.json("action")
    if action not in RESULT_OF:
        raise Refused(400, "bad_action", f"an action is one of {', '.join(RESULT_OF)}")
    offer = call.one("SELECT * FROM match_offers WHERE id = ? AND user_id = ?", call.parameters["id"], call.user)
    if not offer:
        raise Refused(404, "no_such_offer", "you have no offer of this id")
    changed = call.change("UPDATE match_offers SET status = ?, decided_at = ? WHERE id = ? AND status = 'offered'",
                          RESULT_OF[action], now(), offer["id"])  # the condition prevents re-execution
    if not changed and offer["status"] not in (RESULT_OF[action], "matched" if action == "accept" else None):
        raise Refused(409, "offer_is_decided", f"this offer is {offer['status']}")
    match = become_match(call, offer["pair_id"]) if action == "accept" else None
    status = call.one("SELECT status FROM match_offers WHERE id = ?", offer["id"])["status"]
    call.add("offer_actions", offer_id=offer["id"], action=action, status=status, at=now())
    if action == "accept":
        call.notify(offer["counterpart_id"], f"offer {status}")
    return 200, {"offerId": offer["id"], "status": status, **({"matchId": match} if match else {})}


def become_match(call, pair):
    """The match of two who have both accepted; None while one has not."""
    both = call.one("SELECT count(*) AS n FROM match_offers WHERE pair_id = ? AND status = 'accepted'", pair)["n"] == 2
    if both:
        call.change("UPDATE match_offers SET status = 'matched' WHERE pair_id = ? AND status = 'accepted'", pair)
        one, other = call.db.execute("SELECT user_id FROM match_offers WHERE pair_id = ?", (pair,))
        call.add("matches", id=new_id("mat"), pair_id=pair, user_a=one["user_id"], user_b=other["user_id"])
    match = call.one("SELECT id FROM matches WHERE pair_id = ?", pair)
    return match["id"] if match else None


@endpoint("POST", "/matches/{id}/unmatch")
def unmatch(call):
    match = call.match()
    call.change("UPDATE matches SET status = 'closed', closed_reason = 'unmatched', closed_at = ?"
                " WHERE id = ? AND status = 'open'", now(), match["id"])
    call.add("unmatches", match_id=match["id"], user_id=call.user, at=now())
    call.notify(call.counterpart(match), "match closed")
    return 200, {"matchId": match["id"], "status": "closed", "reason": "unmatched"}


@endpoint("POST", "/matches/{id}/messages")
def send_message(call):
    match = call.match(status="open")
    content, client_message = call.json("content", "clientMessageId")
    message = new_id("msg")
    call.add("messages", id=message, match_id=match["id"], sender_id=call.user, content=content,
             client_message_id=client_message, created_at=now())
    call.notify(call.counterpart(match), "new message")
    return 200, {"messageId": message, "clientMessageId": client_message, "content": content}


@endpoint("POST", "/matches/{id}/read")
def mark_read(call):
    match = call.match()
    up_to, = call.json("upTo")
    call.add("read_receipts", match_id=match["id"], user_id=call.user, up_to=up_to, at=now())
    call.notify(call.counterpart(match), "messages read")
    return 200, {"matchId": match["id"], "upTo": up_to}


# Safety


@endpoint("POST", "/safety/report")
def report(call):
    subject, category = call.json("subjectId", "category")
    report_id = new_id("rep")
    call.add("reports", id=report_id, reporter_id=call.user, subject_id=subject, category=category,
             details=call.json().get("details"), at=now())
    call.notify("moderators", f"report of {category}")
    return 200, {"reportId": report_id}


@endpoint("POST", "/safety/block")
def block(call):
    subject, = call.json("subjectId")
    call.add("blocks", user_id=call.user, subject_id=subject, at=now())
    return 200, {"blocked": subject}


@endpoint("POST", "/safety/appeal")
def appeal(call):
    decision, statement = call.json("decisionId", "statement")
    appeal_id = new_id("app")
    call.add("appeals", id=appeal_id, user_id=call.user, decision_id=decision, statement=statement, at=now())
    call.notify("moderators", "appeal")
    return 200, {"appealId": appeal_id}


# For the gateway


@endpoint("GET", "/requests", signed_in=False, may_sign_in=True)
def what_became_of(call):
    """The answers of the caller's requests with that key: none or one, unless one happened twice."""
    key = call.query.get("idempotency_key", "")
    found = call.db.execute("SELECT answer FROM requests WHERE idempotency_key = ? AND user_id IS ? ORDER BY rowid",
                            (key, call.user))
    return 200, {"data": [json.loads(row["answer"]) for row in found]}
