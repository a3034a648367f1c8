# SPDX-License-Identifier: Apache-2.0
"""GET /v1/openapi.json: a validator takes it for OpenAPI 3.1, and a tour over every request compares what it says with
what the gateway takes and answers."""
import datetime
import json

import pytest

from harness import SCOPES, Hooks, answer, drop_after_effect, eventually, fresh_key, in_turn, node
from harness.gateway import ROOT

METHODS = {"get", "post", "patch", "delete"}
CONFIG = """
events: {allow: [127.0.0.0/8]}
inbox: {listen: 127.0.0.1:0}
sources:
  - {name: strict, scheme: standard, secret_env: STANDARD_SECRET, strict: true, deliver: "%s/app"}
"""
# Members that come only in conditions which other stories make.
RARE = {"Operation": {"tombstone_until"}, "Work": {"not_retained"}, "EndpointInFull": {"more_stopped"},
        "Waiting": {"tenant"}, "Delivery": {"tenant"}, "Attempt": {"response", "error"}, "History": {"cursor"},
        "KeyHistory": {"cursor"}, "Problem": {"oldest", "errors"}}


class Tour:
    """Calls requests by the paths of the document, and keeps what came."""

    def __init__(self, api):
        self.api = api
        self.document = api.operator("GET", "/v1/openapi.json").json()
        self.schemas = self.document["components"]["schemas"]
        self.token = api.token(*SCOPES)
        self.came = []

    def operations(self):
        return {(method, path): operation for path, item in self.document["paths"].items()
                for method, operation in item.items() if method in METHODS}

    def call(self, method, path, body=None, query="", headers=(), bearer=None, **names):
        scope = self.document["paths"][path][method]["x-hapax-scope"]
        target = path.format(**names) + query
        if scope == "socket":
            got = self.api.operator(method.upper(), target, body)
        else:
            got = self.api.call(method.upper(), target, bearer or self.token, body=body, headers=headers)
        self.came.append((method, path, got.status, got.header("Content-Type"), got.json()))
        return got.json()

    def answers(self):
        """Each answer with the pointer to its schema; one that the document doesn't have is told as such."""
        for method, path, status, media, value in self.came:
            place = ["paths", path, method, "responses", str(status), "content", media, "schema"]
            pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1").replace("{", "%7B").replace("}", "%7D")
                              for part in place)
            yield {"name": f"{method} {path}: {status}", "schema": pointer, "value": value}

    def seen(self):
        found = set()
        for method, path, status, media, value in self.came:
            response = self.document["paths"][path][method]["responses"][str(status)]
            self.walk(response["content"][media]["schema"], value, found)
        return found

    def walk(self, schema, value, found):
        for one in [*schema.get("anyOf", []), *schema.get("allOf", [])]:
            self.walk(one, value, found)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            known = self.schemas[name]
            if isinstance(value, dict) and set(known.get("required", [])) <= set(value):
                found |= {(name, member) for member in value}
                self.walk(known, value, found)
        elif isinstance(value, list):
            for item in value:
                self.walk(schema.get("items", {}), item, found)
        elif isinstance(value, dict):
            for member, one in value.items():
                self.walk(schema.get("properties", {}).get(member, {}), one, found)


@pytest.fixture
def tour(start_api, upstream, tmp_path):
    upstream.on("/app", answer(200))
    return Tour(start_api(CONFIG % upstream.url, store=f"journal:{tmp_path}/operations", env=Hooks.SECRETS))


def tour_operations(call, api, upstream):
    upstream.on("/refunds", in_turn(answer(201, b"{}"), *[drop_after_effect()] * 4))
    kept = fresh_key()
    api.gateway.post("/refunds", key=kept)
    for _ in range(4):
        api.gateway.post("/refunds", key=fresh_key())
    first = call("get", "/v1/operations", query="?state=unknown&limit=1")
    unknown = [one["id"] for one in call("get", "/v1/operations", query="?state=unknown")["operations"]]
    assert len(unknown) == 4 and first["cursor"]
    call("get", "/v1/operations/{id}", id=unknown[0])
    call("get", "/v1/operations/{id}", id="0" * 32)
    call("get", "/v1/operations/{id}/history", id=unknown[0])
    call("get", "/v1/history", query=f"?key={kept}")
    call("get", "/v1/history")
    wrong = {"outcome": "completed", "why": "in the ledger", "epoch": 999}
    call("post", "/v1/operations/{id}/resolve", wrong, id=unknown[0])
    call("post", "/v1/operations/{id}/resolve", {**wrong, "epoch": None}, id=unknown[0])
    done = {"outcome": "completed", "why": "in the ledger", "status": 201, "headers": ["Location: /1"], "body": "{}"}
    call("post", "/v1/operations/{id}/resolve", done, id=unknown[0])
    call("post", "/v1/operations/{id}/resolve", done, id=unknown[0])
    call("post", "/v1/operations/{id}/forget", {"why": "never sent"}, id=unknown[1])
    many = {"filter": {"state": "unknown"}, "why": "an outage"}
    call("post", "/v1/operations/resolve", {**many, "outcome": "released", "preview": True})
    call("post", "/v1/operations/resolve", {**many, "outcome": "released"})
    call("post", "/v1/operations/forget", {"filter": {"key": kept}, "why": "a test"})
    call("get", "/v1/counts")


def tour_work(call):
    def claim(key, **more):
        return call("post", "/v1/operations/claim", {"key": key, "claimant": "me", **more})

    def end(verb, claimed, **more):
        name = {} if verb == "find" else {"id": claimed["id"], "epoch": claimed["epoch"]}
        return call("post", f"/v1/operations/{verb}", {**name, **more})

    first = claim("a", input=1, deadline="1h", lease="60s", name="refund", correlation_id="c")
    claim("a", input=2, name="refund")
    call("post", "/v1/operations/claim", {"key": "a", "claimant": "other", "name": "refund", "input": 1})
    end("renew", first, progress="half", lease="30s")
    end("checkpoint", first, name="page", value=3)
    call("post", "/v1/operations/cancel", {"id": first["id"], "reason": "enough"})
    end("renew", first)
    call("post", "/v1/operations/renew", {"id": first["id"], "epoch": 999})
    end("complete", first, result={"refund": 1}, lifetime="1h")
    end("fail", first, error="no")
    claim("a", input=1, name="refund")
    end("find", first, key="a", name="refund", wait="1s")
    end("find", first, key="nothing")
    second = claim("b")
    end("release", second, reason="not now")
    end("fail", claim("b"), error={"code": "declined"})
    claim("b")
    end("abandon", claim("c"), reason="killed")
    claim("c")


def tour_events(call, upstream):
    upstream.on("/hook", in_turn(answer(422), answer(200)))
    url = {"url": upstream.url + "/hook"}
    made = call("post", "/v1/endpoints", {**url, "types": ["a.*"], "ordered": True, "on_client_error": "dead"})
    call("post", "/v1/endpoints", {})
    endpoint = {"endpoint": made["id"]}
    event = {"type": "a.b", "data": {"n": 1}, "id": "ev-1", "stream": "s", "source": "shop", "correlation_id": "c"}
    call("post", "/v1/events", event)
    call("post", "/v1/events", event)
    call("post", "/v1/events", {**event, "data": 2})
    call("post", "/v1/events", {**event, "id": "ev-2", "expected_version": 9})
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    later = {"type": "b", "data": 1, "deliver_at": tomorrow.isoformat(timespec="seconds")}
    batch = call("post", "/v1/events", {"events": [later, {**event, "id": "ev-3"}]})["events"]
    path = "/v1/deliveries/{endpoint}/{event}"
    eventually(lambda: call("get", path, **endpoint, event="ev-1")["state"] == "dead", "a dead letter")
    call("get", "/v1/endpoints/{endpoint}", **endpoint)
    call("get", "/v1/events", query="?limit=1")
    call("get", "/v1/events", query="?stream=s&consumer=c")
    call("get", "/v1/events/{event}", event="ev-1")
    call("get", "/v1/events/{event}", event="none")
    call("delete", "/v1/events/{event}", event=batch[0]["id"])
    call("get", "/v1/deliveries", query="?state=dead")
    call("get", "/v1/deliveries", query=f"?endpoint={made['id']}&limit=1")
    call("post", path + "/redrive", **endpoint, event="ev-1")
    eventually(lambda: call("get", path, **endpoint, event="ev-1")["state"] == "delivered", "it is delivered")
    call("post", path + "/skip", **endpoint, event="ev-1")
    return endpoint


def tour_endpoints(call, upstream, endpoint):
    one = "/v1/endpoints/{endpoint}"
    call("patch", one, {"description": "ours"}, **endpoint)
    call("post", one + "/disable", {"why": "a test"}, **endpoint)
    call("post", one + "/test", **endpoint)
    waiting = call("post", "/v1/events", {"type": "a.b", "data": 1, "id": "ev-4", "stream": "s"})["id"]
    call("post", "/v1/deliveries/{endpoint}/{event}/skip", **endpoint, event=waiting)
    call("get", "/v1/deliveries/paused")
    call("post", one + "/enable", **endpoint)
    call("post", one + "/rotate", {"overlap": "1h"}, **endpoint)
    call("post", one + "/test", **endpoint)
    call("post", one + "/recover", {"since": "1h", "preview": True}, **endpoint)
    call("post", one + "/recover", {"since": "1h"}, **endpoint)
    upstream.on("/other", answer(200))
    other = call("post", "/v1/endpoints", {"url": upstream.url + "/other", "types": ["none"]})["id"]
    call("get", "/v1/endpoints", query="?limit=1")
    call("delete", one, endpoint=other)
    call("get", one, endpoint=other)
    call("post", "/v1/deliveries/pause", {"why": "a test"})
    call("post", "/v1/events", {"type": "a.b", "data": 1, "id": "ev-5"})
    call("get", "/v1/deliveries/paused")
    call("post", "/v1/deliveries/resume")
    call("post", "/v1/redrives", {"state": "dead", "preview": True})
    job = call("post", "/v1/redrives", {"state": "dead", "why": "a test"})["id"]
    call("get", "/v1/redrives", query="?limit=1")
    call("get", "/v1/redrives/{redrive}", redrive=job)
    call("post", "/v1/redrives/{redrive}/stop", {"why": "enough"}, redrive=job)
    call("post", "/v1/redrives/{redrive}/stop", redrive="none")


def tour_the_rest(call):
    place = {"stream": "s", "generation": 1}
    call("post", "/v1/consumers/{consumer}/ack", {**place, "position": 1}, consumer="c")
    call("post", "/v1/consumers/{consumer}/ack", {**place, "position": 0}, consumer="c")
    call("post", "/v1/consumers/{consumer}/seek", {"stream": "s", "position": "newest"}, consumer="c")
    call("post", "/v1/consumers/{consumer}/ack", {**place, "position": 1}, consumer="c")
    call("post", "/v1/consumers/{consumer}/seek", {"stream": "t", "position": 0}, consumer="d")
    call("get", "/v1/consumers", query="?limit=1")
    call("delete", "/v1/consumers/{consumer}", query="?stream=t", consumer="d")
    call("delete", "/v1/consumers/{consumer}", query="?stream=t", consumer="d")
    made = call("post", "/v1/tokens", {"name": "one", "scopes": ["view"], "tenant": "acme"})
    call("get", "/v1/tokens", query="?limit=1")
    call("get", "/v1/counts", bearer=made["token"])
    call("get", "/v1/counts", bearer="nonsense")
    call("get", "/v1/openapi.json", bearer=made["token"])
    call("delete", "/v1/tokens/{token}", token="one")
    call("delete", "/v1/tokens/{token}", token="one")
    call("post", "/v1/reload")


@pytest.mark.slow  # needs packages from npm
def test_every_answer_is_as_the_document_says(tour, upstream):
    hooks = Hooks(tour.api, upstream)
    assert hooks.standard("strict", "wh-1").status == 200
    hooks.wait_state("in_strict", "wh-1", "delivered")
    tour.call("get", "/v1/events/{event}", query="?source=strict", event="wh-1")
    tour_operations(tour.call, tour.api, upstream)
    tour_work(tour.call)
    tour_endpoints(tour.call, upstream, tour_events(tour.call, upstream))
    tour_the_rest(tour.call)

    assert {(method, path) for method, path, *_ in tour.came} == set(tour.operations())
    assert node.ask("openapi.mjs", {"document": tour.document, "answers": list(tour.answers())}) == []
    answered = {name for name in tour.schemas if any(name == one for one, _ in tour.seen())}
    told = {(name, member) for name in answered for member in tour.schemas[name].get("properties", {})}
    missing = {(name, member) for name, member in told - tour.seen() if member not in RARE.get(name, ())}
    assert not missing, "documented, and never seen: " + str(sorted(missing))


def documented_names(tour, operation):
    """The members that its body may have, and the names of its parameters in the query."""
    members = set()
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for one in schema.get("anyOf", [schema]):
        members |= set(tour.schemas.get(one.get("$ref", "").rpartition("/")[2], {}).get("properties", {}))
    return members, {one["name"] for one in operation["parameters"] if one["in"] == "query"}


def test_requests_take_what_is_documented_and_nothing_else(tour):
    """A member or a parameter that any request takes is tried on all of them. A name that none has comes last, so that
    nothing is ever done."""
    told = {place: documented_names(tour, operation) for place, operation in tour.operations().items()}
    members = set().union(*[names for names, _ in told.values()])
    parameters = set().union(*[names for _, names in told.values()])
    endpoint = tour.call("post", "/v1/endpoints", {"url": "http://127.0.0.1:9"})["id"]
    names = {**dict.fromkeys(("event", "redrive", "consumer", "token"), "none"), "endpoint": endpoint, "id": "0" * 32}
    wrong = []
    for (method, path), (body, query) in told.items():
        for name in members if body else ():
            given = {name: [] if name == "events" else None, "none_has_this": None}
            is_taken = f'no member "{name}"' not in tour.call(method, path, given, **names)["detail"]
            wrong += [(method, path, name)] * (is_taken != (name in body))
        if path.endswith("history"):
            continue  # lists and histories have one reader, which refuses the other parameters only afterwards
        for name in parameters if query else ():
            before = ["", "stream=s&"] if path == "/v1/events" and name != "stream" else [""]
            details = [tour.call(method, path, query=f"?{more}{name}=1&none_has_this=1", **names)["detail"]
                       for more in before]
            is_taken = any(f'"{name}"' not in detail.partition(":")[0] for detail in details)
            wrong += [(method, path, name)] * (is_taken != (name in query))
    assert not wrong


def test_the_document_says_which_scope_each_request_needs(tour):
    """By the gateway itself: without its scope a token is refused, and told the one that it lacks."""
    names = dict.fromkeys(("event", "endpoint", "redrive", "consumer", "token"), "none")
    tokens = {scope: tour.api.token(*set(SCOPES) - {scope}) for scope in SCOPES}
    for (method, path), operation in tour.operations().items():
        scope, target = operation["x-hapax-scope"], path.format(id="0" * 32, **names)
        assert tour.api.call(method.upper(), target).status == 401
        if scope == "any":
            assert operation["security"] == [{"token": []}]
            continue
        if path == "/v1/events" and method == "get":
            target, scope = target + "?stream=s", "consume"
            assert operation["security"] == [{"token": ["consume"]}, {"token": ["view"]}]
        elif scope != "socket":
            assert operation["security"] == [{"token": [scope]}]
        refused = tour.api.call(method.upper(), target, tokens.get(scope, tour.token))
        wanted = "AUTH.socket_only" if scope == "socket" else "AUTH.scope_missing"
        assert (refused.status, refused.json()["error_code"]) == (403, wanted), target
        assert scope == "socket" or f'"{scope}"' in refused.json()["detail"]


def test_both_ways_serve_the_page_of_the_reference(api):
    page = (ROOT / "docs" / "reference" / "openapi.json").read_bytes()
    assert api.operator("GET", "/v1/openapi.json").body == page
    assert api.call("GET", "/v1/openapi.json", api.token("view", tenant="acme")).body == page
    assert json.loads(page)["openapi"] == "3.1.0"
