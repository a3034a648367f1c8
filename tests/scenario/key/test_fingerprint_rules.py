# SPDX-License-Identifier: Apache-2.0
"""`fingerprint:` of a route: what may differ between two requests with one key, and what more counts.

Every pair is sent with a key of its own: one that the route takes for the same request is replayed, one that it doesn't
is refused and names the part; either way the application executes once.
"""
import re

import pytest

from harness import EXIT_CONFIG, fresh_key

MISMATCH = "CONFLICT.idempotency.payload_mismatch"
JSON = {"Content-Type": "application/json"}
CONFIG = """
    routes:
      - name: ignoring
        match: POST /ignoring
        fingerprint: {ignore: [/sentAt, /meta/trace, /items/0, query:utm, "query:a b"]}
      - name: raw
        match: POST /raw
        fingerprint: {body: raw}
      - name: chosen
        match: POST /chosen
        fingerprint: {body: [/amount, /charge/id], ignore: [/charge/id/checksum]}
      - name: headers
        match: POST /headers
        fingerprint: {headers: [X-Tenant, x-version]}
      - name: all
        match: POST /all
        fingerprint: {body: [/amount], ignore: [query:utm], headers: [X-Tenant]}
    """


def form(boundary, *values):
    parts = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="f{i}"\r\n\r\n{value}\r\n'
                    for i, value in enumerate(values))
    return {"headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"},
            "body": f"{parts}--{boundary}--\r\n"}


def with_body(text, kind="application/json", **headers):
    return {"body": text, "headers": {"Content-Type": kind, **{name.replace("_", "-"): value
                                                                 for name, value in headers.items()}}}


SAME = {
    "members that are ignored": [
        ("/ignoring", with_body('{"amount":1,"sentAt":"12:00","meta":{"trace":"a","k":1}}')),
        ("/ignoring", with_body('{"meta":{"k":1.0,"trace":{"deep":[1]}},"sentAt":null,"amount":1}')),
        ("/ignoring", with_body('{"amount":1,"meta":{"k":1}}'))],
    "an item that is ignored": [("/ignoring", with_body('{"items":[1,2]}')),
                                ("/ignoring", with_body('{"items":[{"x":"y"},2]}'))],
    "ignored parameters of the query": [("/ignoring?b=1&c=2", with_body("{}")),
                                        ("/ignoring?utm=x&b=1&utm=y&c=2&a%20b=3", with_body("{}")),
                                        ("/ignoring?b=1&%75%74%6d=x&c=2", with_body("{}"))],
    "no query but ignored parameters": [("/ignoring", with_body("{}")), ("/ignoring?utm=x", with_body("{}"))],
    "raw bytes with other parameters of their type": [("/raw", with_body("{}")),
                                                      ("/raw", with_body("{}", "Application/json; v=1"))],
    "values that were not chosen": [("/chosen", with_body('{"amount":1,"charge":{"id":"c"},"note":"a"}')),
                                    ("/chosen", with_body('{"charge":{"id":"c","x":1},"amount":1e0}'))],
    "what is ignored in a chosen value": [("/chosen", with_body('{"amount":1,"charge":{"id":{"n":1,"checksum":1}}}')),
                                          ("/chosen", with_body('{"amount":1,"charge":{"id":{"n":1}}}'))],
    "multipart by its parts where pointers are chosen": [("/chosen", form("XX", "1", "2")),
                                                         ("/chosen", form("YY", "1", "2"))],
    "headers in other spelling": [
        ("/headers", with_body("{}", X_Tenant="t", X_Version="1")),
        ("/headers", with_body("{}", X_VERSION=" 1 ", x_tenant="t", X_Other="2"))],
    "all rules at once": [("/all?utm=1", with_body('{"amount":1,"note":1}', X_Tenant="t")),
                          ("/all", with_body('{"amount":1.0}', X_Tenant="t", X_Version="9"))],
}

DIFFERENT = {
    "another member": ("/ignoring", with_body('{"amount":1,"sentAt":1}'),
                       "/ignoring", with_body('{"amount":2,"sentAt":1}'), "body"),
    "the same name elsewhere": ("/ignoring", with_body('{"meta":{"sentAt":1}}'),
                                "/ignoring", with_body('{"meta":{"sentAt":2}}'), "body"),
    "an array's length": ("/ignoring", with_body('{"items":[1]}'), "/ignoring", with_body('{"items":[]}'), "body"),
    "an array's next item": ("/ignoring", with_body('{"items":[1,2]}'),
                             "/ignoring", with_body('{"items":[1,3]}'), "body"),
    "what is ignored in JSON that is not clean": (
        "/ignoring", with_body('{"sentAt":1,"sentAt":1}'), "/ignoring", with_body('{"sentAt":1,"sentAt":2}'), "body"),
    "what is ignored in another type": ("/ignoring", with_body('{"sentAt":1}', "text/plain"),
                                        "/ignoring", with_body('{"sentAt":2}', "text/plain"), "body"),
    "another parameter": ("/ignoring?b=1&utm=1", with_body("{}"), "/ignoring?b=2&utm=1", with_body("{}"), "query"),
    "the order of parameters": ("/ignoring?b=1&c=2", with_body("{}"), "/ignoring?c=2&b=1", with_body("{}"), "query"),
    "a longer name": ("/ignoring", with_body("{}"), "/ignoring?utm2=1", with_body("{}"), "query"),
    "raw bytes": ("/raw", with_body('{"a":1}'), "/raw", with_body('{"a": 1}'), "body"),
    "the boundary of raw multipart": ("/raw", form("XX", "1"), "/raw", form("YY", "1"), "media type, body"),
    "a chosen value": ("/chosen", with_body('{"amount":1}'), "/chosen", with_body('{"amount":2}'), "body"),
    "missing and null": ("/chosen", with_body('{"amount":1}'),
                         "/chosen", with_body('{"amount":1,"charge":{"id":null}}'), "body"),
    "a value that moved": ("/chosen", with_body('{"amount":1}'), "/chosen", with_body('{"charge":{"id":1}}'), "body"),
    "JSON that is not clean where pointers are chosen": (
        "/chosen", with_body('{"amount":1,"x":1,"x":1}'), "/chosen", with_body('{"amount":1,"x":1,"x":2}'), "body"),
    "parts where pointers are chosen": ("/chosen", form("XX", "1"), "/chosen", form("XX", "2"), "body"),
    "a chosen header": ("/headers", with_body("{}", X_Tenant="t"),
                        "/headers", with_body("{}", X_Tenant="u"), "headers"),
    "a chosen header that is missing": ("/headers", with_body("{}", X_Tenant="t"), "/headers", with_body("{}"),
                                        "headers"),
    "a value in another header": ("/headers", with_body("{}", X_Tenant="t"),
                                  "/headers", with_body("{}", X_Version="t"), "headers"),
    "the body beside chosen headers": ("/headers", with_body("{}", X_Tenant="t"),
                                       "/headers", with_body("[]", X_Tenant="t"), "body"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_the_rules_do_not_count_is_no_mismatch(start_gateway, upstream, key, what):
    gateway = start_gateway(CONFIG)
    answers = [gateway.post(target, key=key, **request) for target, request in SAME[what]]
    assert [answer.idempotency for answer in answers] == ["stored"] + ["replayed"] * (len(answers) - 1)
    assert len({answer.body for answer in answers}) == 1
    assert upstream.effects() == 1


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_the_rules_count_is_a_mismatch_and_named(start_gateway, upstream, key, what):
    gateway = start_gateway(CONFIG)
    target, request, other_target, other, part = DIFFERENT[what]
    first = gateway.post(target, key=key, **request)
    assert first.idempotency == "stored"

    problem = gateway.post(other_target, key=key, **other).refuses(409, MISMATCH)

    assert re.search(rf"another (set of )?{part}\.", problem["detail"]), problem
    assert gateway.post(target, key=key, **request).body == first.body
    assert upstream.effects() == 1


def test_routes_without_rules_count_everything(start_gateway, upstream):
    """The rules of one route are no other's."""
    gateway = start_gateway(CONFIG)
    for target, other_target, body, other in [("/elsewhere", "/elsewhere?utm=1", "{}", "{}"),
                                              ("/elsewhere", "/elsewhere", '{"sentAt":1}', '{"sentAt":2}')]:
        key = fresh_key()
        assert gateway.post(target, key=key, body=body, headers=JSON).idempotency == "stored"
        gateway.post(other_target, key=key, body=other, headers=JSON).refuses(409, MISMATCH)
    assert gateway.post("/elsewhere", key=key, body='{"sentAt":1}', headers={**JSON, "X-Tenant": "t"}).idempotency == \
        "replayed"
    assert upstream.effects() == 2


def test_ten_requests_that_differ_in_what_is_ignored_execute_once(start_gateway, upstream, key):
    gateway = start_gateway(CONFIG, workers=2)
    with upstream.hold("/ignoring") as held:
        pending = [gateway.send("POST", f"/ignoring?utm={i}", key=key, headers=JSON,
                                body=f'{{"amount":1,"sentAt":{i}}}') for i in range(10)]
        held.wait_arrived()
        gateway.wait_inside(pending)
        held.release()
    assert len({answer.body for answer in pending}) == 1
    assert sorted(answer.idempotency for answer in pending) == ["replayed"] * 9 + ["stored"]
    assert upstream.effects("/ignoring") == 1


def test_rules_hold_across_a_restart(start_gateway, upstream, key):
    gateway = start_gateway(CONFIG)
    request = with_body('{"amount":1,"note":"a"}', X_Tenant="t")
    first = gateway.post("/all?utm=1", key=key, **request)
    gateway.restart()
    again = gateway.post("/all", key=key, **with_body('{"note":"b","amount":1}', X_Tenant="t"))
    assert again.idempotency == "replayed" and again.body == first.body
    problem = gateway.post("/all", key=key, **with_body('{"amount":1}', X_Tenant="u")).refuses(409, MISMATCH)
    assert "another set of headers." in problem["detail"], problem
    assert upstream.effects("/all") == 1


def test_the_application_gets_the_request_as_it_came(start_gateway, upstream, key):
    """What doesn't count is not taken away."""
    gateway = start_gateway(CONFIG)
    body = '{"sentAt":1, "amount":1.0}'
    gateway.post("/ignoring?utm=x&b=1", key=key, body=body, headers=JSON)
    assert upstream.last().target == "/ignoring?utm=x&b=1"
    assert upstream.last().body == body.encode()


NATURAL = """
    routes:
      - name: reports
        match: POST /reports
        key: {from: "{body:/reporter}:{body:/subject}", shared: true}
      - name: strict
        match: POST /strict
        key: {from: "{body:/reporter}", shared: true}
        fingerprint: {body: canonical}
      - name: either
        match: POST /either
        key: {from: "{body:/reporter}", shared: true, prefer: header}
      - name: uploads
        match: POST /uploads
        key: {from: "{sha256:body}", shared: true}
    """


def test_a_natural_key_says_what_is_the_same_request(start_gateway, upstream):
    gateway = start_gateway(NATURAL)
    first = gateway.post("/reports", json={"reporter": 1, "subject": 2, "text": "a"})
    second = gateway.post("/reports?x=1", json={"reporter": 1, "subject": 2, "text": "b"}, headers={"If-Match": '"v"'})
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert second.body == first.body
    assert gateway.post("/reports", json={"reporter": 1, "subject": 3, "text": "a"}).idempotency == "stored"
    assert upstream.effects("/reports") == 2


def test_a_natural_key_counts_the_body_where_the_route_says_so(start_gateway, upstream):
    gateway = start_gateway(NATURAL)
    assert gateway.post("/strict", json={"reporter": 1, "text": "a"}).idempotency == "stored"
    gateway.post("/strict", json={"reporter": 1, "text": "b"}).refuses(409, MISMATCH)
    assert gateway.post("/strict", body='{"text":"a", "reporter":1}', headers=JSON).idempotency == "replayed"
    assert upstream.effects("/strict") == 1


def test_a_header_that_is_preferred_to_a_natural_key_is_held_to_its_request(start_gateway, upstream, key):
    """The natural key's parts say nothing of a request whose key came in a header."""
    gateway = start_gateway(NATURAL)
    assert gateway.post("/either", key=key, json={"reporter": 1, "text": "a"}).idempotency == "stored"
    gateway.post("/either", key=key, json={"reporter": 1, "text": "b"}).refuses(409, MISMATCH)
    assert gateway.post("/either", key=key, json={"text": "a", "reporter": 1}).idempotency == "replayed"
    assert gateway.post("/either", json={"reporter": 1, "text": "a"}).idempotency == "stored"
    assert gateway.post("/either", json={"reporter": 1, "text": "b"}).idempotency == "replayed"
    assert upstream.effects("/either") == 2


def test_the_same_upload_with_another_boundary_is_the_same_upload(start_gateway, upstream):
    gateway = start_gateway(NATURAL)
    one, again, other = (gateway.post("/uploads", **form(boundary, "photo", value))
                         for boundary, value in [("XX", "1"), ("a-fresh-one", "1"), ("XX", "2")])
    assert (one.idempotency, again.idempotency, other.idempotency) == ("stored", "replayed", "stored")
    assert one.body == again.body != other.body
    assert upstream.effects("/uploads") == 2


@pytest.mark.parametrize("rule, named", [
    ('{ignore: [""]}', "whole body"),
    ("{ignore: [sentAt]}", "sentAt"),
    ('{ignore: ["/a~2"]}', "/a~2"),
    ("{body: {}}", "body"),
    ("{body: []}", "body"),
    ("{body: exact}", "exact"),
    ("{body: raw, ignore: [/a]}", "ignore"),
    ('{headers: ["no header"]}', "no header"),
    ("{header: [a]}", "header"),
])
def test_rules_that_mean_nothing_stop_the_start(start_gateway, upstream, hapax, rule, named):
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            fingerprint: {rule}
        """, started=False)
    for command in (["check", gateway.config, "--upstream", upstream.url], gateway.command()[1:]):
        run = hapax(*command)
        assert run.code == EXIT_CONFIG, run
        assert re.search(r"hapax\.yaml:\d+:\d+: ", run.stderr) and named in run.stderr, run
    assert upstream.effects() == 0
