# SPDX-License-Identifier: Apache-2.0
"""A stream has its events in one order without gaps, the same for every reader, and nobody skips one silently."""
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import Disconnected, Following, eventually, hours_ahead, sanitized

KEPT_AN_HOUR = """
events:
  allow: [127.0.0.0/8]
  streams:
    - {match: "audit-*", retention: forever}
    - {match: "orders-*", retention: 1h}
"""


class Streams:
    """A gateway's streams, seen by a client with all rights, or by that of a tenant."""

    def __init__(self, hooks, tenant=None):
        self.hooks = hooks
        self.token = hooks.api.token("publish", "consume", "operate", "view", tenant=tenant, name=tenant or "all")

    def call(self, method, target, body=None, **headers):
        return self.hooks.call(method, target, body, self.token, **headers)

    def publish(self, stream="orders-1", **members):
        return self.hooks.publish("order.changed", token=self.token, stream=stream, **members)

    def page(self, after=0, stream="orders-1", **query):
        more = "".join(f"&{name}={value}" for name, value in query.items())
        place = "" if "consumer" in query else f"&after={after}"
        return self.call("GET", f"/v1/events?stream={stream}{place}{more}")

    def read(self, after=0, stream="orders-1", limit=1000):
        """Every event behind a position."""
        events = []
        while True:
            page = self.page(after, stream, limit=limit).json()
            events += page["events"]
            after = page["after"]
            if not page["events"]:
                return events

    def follow(self, stream="orders-1", last=None, query=""):
        return Following(self.hooks.api, f"/v1/events?stream={stream}{query}", self.token, last)

    def ack(self, consumer, position, generation=1, stream="orders-1"):
        body = {"stream": stream, "position": position, "generation": generation}
        return self.call("POST", f"/v1/consumers/{consumer}/ack", body)

    def seek(self, consumer, position, stream="orders-1"):
        return self.call("POST", f"/v1/consumers/{consumer}/seek", {"stream": stream, "position": position})


@pytest.fixture
def streams(start_hooks, store):
    return Streams(start_hooks(store=store))


@pytest.fixture
def journal(hooks):
    return Streams(hooks)


def positions(events):
    return [event["position"] for event in events]


def in_row(count):
    return list(range(1, count + 1))


def test_events_are_read_in_the_order_of_their_positions(streams):
    first = streams.publish(data={"n": 1})
    assert first.status == 202
    assert (first.json()["stream"], first.json()["position"]) == ("orders-1", 1)
    batch = [{"type": "order.changed", "data": {"n": n}, "stream": stream}
             for n, stream in [(2, "orders-1"), (1, "orders-2"), (3, "orders-1")]]
    made = streams.call("POST", "/v1/events", {"events": batch}).json()["events"]
    assert positions(made) == [2, 1, 3]
    assert [event["data"]["n"] for event in streams.read(limit=2)] == [1, 2, 3]
    assert positions(streams.read(after=1)) == [2, 3]
    page = streams.page(limit=2).json()
    assert (page["after"], page["version"], positions(page["events"])) == (2, 3, [1, 2])
    assert streams.page(after=3).json() == {"stream": "orders-1", "events": [], "after": 3, "version": 3}
    assert streams.page(stream="empty").json()["version"] == 0
    shown = streams.call("GET", f"/v1/events/{first.json()['id']}").json()
    assert (shown["stream"], shown["position"]) == ("orders-1", 1)


def test_a_delivery_carries_its_sequence(journal, upstream):
    endpoint = journal.hooks.endpoint("/hook")["id"]
    for _ in range(2):
        event = journal.publish().json()["id"]
        journal.hooks.wait_state(endpoint, event, "delivered")
    got = [(request.header("Hapax-Stream"), request.header("Hapax-Position")) for request in upstream.received("/hook")]
    assert got == [("orders-1", "1"), ("orders-1", "2")]
    assert all(set(json.loads(request.body)) == {"eventId", "eventType", "timestamp", "data"}
               for request in upstream.received("/hook"))


def test_publishing_again_tells_the_first_position(streams):
    first = streams.publish(id="e-1", data={"n": 1}, expected_version=0)
    keyed = streams.hooks.publish("order.changed", token=streams.token, key="k-1", stream="orders-1")
    assert streams.publish(id="e-3").json()["position"] == 3
    again = streams.publish(id="e-1", data={"n": 1}, expected_version=0)
    assert (again.status, again.json()) == (200, first.json())
    assert streams.hooks.publish("order.changed", token=streams.token, key="k-1",
                                 stream="orders-1").json() == keyed.json()
    for other in ({"stream": "orders-2", "data": {"n": 1}}, {"data": {"n": 2}}):
        refused = streams.publish(**{"id": "e-1", **other})
        assert (refused.status, refused.json()["error_code"]) == (409, "CONFLICT.event.published_before")
    assert positions(streams.read()) == [1, 2, 3]


def test_one_of_ten_who_expect_the_same_version_wins(streams):
    assert streams.publish(expected_version=0).status == 202
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda n: streams.publish(data={"n": n}, expected_version=1), range(10)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 9
    for answer in answers:
        if answer.status == 409:
            assert answer.json()["error_code"] == "CONFLICT.stream.version" and answer.json()["version"] == 2
    assert positions(streams.read()) == [1, 2]
    batch = [{"type": "t", "data": n, "stream": "orders-1", "expected_version": 2} for n in range(3)]
    assert positions(streams.call("POST", "/v1/events", {"events": batch}).json()["events"]) == [3, 4, 5]
    assert streams.call("POST", "/v1/events", {"events": batch}).status == 409
    assert streams.publish(expected_version="5").status == 400
    assert streams.hooks.publish(token=streams.token, expected_version=5).status == 400


def test_publishers_on_two_gateways_leave_no_gap(start_hooks, database):
    """Followers and pages on both sides see every event, once, in one order."""
    sides = [Streams(start_hooks(store=database.url)) for _ in range(2)]
    followers = [side.follow() for side in sides]
    each = 25

    def publish(number):
        side = sides[number % 2]
        return [side.publish(data={"by": number, "n": n}) for n in range(each)]

    with ThreadPoolExecutor(6) as pool:
        answers = [answer for made in pool.map(publish, range(6)) for answer in made]
    assert {answer.status for answer in answers} == {202}
    assert sorted(answer.json()["position"] for answer in answers) == in_row(6 * each)
    given = {answer.json()["position"]: answer.json()["id"] for answer in answers}
    for events in [follower.take(6 * each) for follower in followers] + [side.read(limit=7) for side in sides]:
        assert [(event["position"], event["id"]) for event in events] == sorted(given.items())
    for number in range(6):  # what one client has published one after the other stays in its order
        mine = [event["data"]["n"] for event in sides[0].read() if event["data"]["by"] == number]
        assert mine == list(range(each))


@pytest.mark.slow
def test_followers_go_on_where_they_were_after_a_kill(start_hooks, store):
    streams = Streams(start_hooks(store=store))
    follower, seen, published = streams.follow(), [], 0
    for how in ("kill", "drain", "kill"):
        for _ in range(10):
            published += 1
            assert streams.publish().json()["position"] == published
        seen += follower.take(5)
        streams.hooks.restart(how)
        try:
            seen += iter(follower.next, None)  # what was on its way
        except (Disconnected, ConnectionResetError):
            pass
        follower = streams.follow(last=follower.last)
    assert streams.publish().json()["position"] == published + 1
    seen += follower.take(published + 1 - len(seen))
    assert positions(seen) == in_row(published + 1)


def test_a_follower_is_told_at_once_and_ends_with_its_token(journal, hapax):
    follower = journal.follow()
    assert follower.status == 200 and ("Content-Type", "text/event-stream") in follower.fields
    text = {"lines": "a\nb\r\n\u2028", "id: 7": []}
    body = '{"type": "note", "stream": "orders-1", "data": %s}' % json.dumps(text, indent=1).replace("\n", "\r\n")
    assert journal.call("POST", "/v1/events", body.encode()).status == 202
    event = follower.next()
    assert (event["type"], event["data"], event["stream"]) == ("note", text, "orders-1")
    other = journal.hooks.api.create("short", "consume")
    short = Following(journal.hooks.api, "/v1/events?stream=orders-1", other["token"], last=1)
    journal.publish()
    assert short.next()["position"] == 2
    assert journal.hooks.api.operator("DELETE", f"/v1/tokens/{other['id']}").status == 200
    assert short.next() is None
    journal.publish()
    assert positions(follower.take(2)) == [2, 3]


@pytest.mark.slow
def test_a_follower_hears_that_the_connection_lives(journal):
    follower = journal.follow()
    assert [follower.block(), follower.block()] == [[":"], [":"]]  # the second one when nothing else has come


def test_followers_are_limited_and_a_slow_one_is_bounded(start_hooks, tmp_path):
    config = "api: {readers_max: 2}\nevents: {allow: [127.0.0.0/8]}"
    streams = Streams(start_hooks(config, store=f"journal:{tmp_path}/events"))
    slow, quick = streams.follow(), streams.follow()
    refused = streams.follow()
    assert refused.status == 503 and "Retry-After" in dict(refused.fields)
    quick.connection.reset()
    eventually(lambda: streams.follow().status == 200, "the place of one who left is free")
    data = "x" * 200_000
    assert streams.publish(data=data).status == 202
    before = streams.hooks.gateway.rss_bytes()
    for _ in range(150):
        assert streams.publish(data=data).status == 202
    grown = streams.hooks.gateway.rss_bytes() - before
    assert sanitized() or grown < 15_000_000, grown  # what was published is twice as much
    assert slow.next()["position"] == 1


def test_what_is_not_kept_any_more_is_said(start_hooks, tmp_path):
    streams = Streams(start_hooks(KEPT_AN_HOUR, store=f"journal:{tmp_path}/events"))
    for stream in ("orders-1", "audit-1"):
        for _ in range(3):
            streams.publish(stream)
    streams.hooks.gateway.env = {**streams.hooks.gateway.env, **hours_ahead(3)}
    streams.hooks.restart()
    gone = streams.page(after=0)
    assert (gone.status, gone.json()["error_code"], gone.json()["oldest"]) == (410, "STREAM.gone", 4)
    assert streams.page(after=3).json()["events"] == []
    assert streams.publish().json()["position"] == 4
    gone = streams.page(after=1)
    assert (gone.status, gone.json()["oldest"]) == (410, 4)
    assert streams.follow(last=1).status == 410
    assert streams.page(consumer="c").status == 410
    assert streams.seek("c", "oldest").json()["position"] == 3
    assert positions(streams.page(consumer="c").json()["events"]) == [4]
    beyond = streams.page(after=9)
    assert (beyond.status, beyond.json()["oldest"]) == (410, 4)
    assert (streams.page(after=9, stream="none").status, streams.page(after=0, stream="none").status) == (410, 200)
    assert positions(streams.read(stream="audit-1")) == [1, 2, 3]


def test_a_consumer_moves_forward_only(streams):
    for _ in range(4):
        streams.publish()
    first = streams.page(consumer="billing", limit=2).json()
    assert (positions(first["events"]), first["generation"]) == ([1, 2], 1)
    assert streams.ack("billing", 2).json() == {"consumer": "billing", "stream": "orders-1", "position": 2,
                                                "generation": 1, "version": 4}
    assert streams.ack("billing", 2).status == 200
    for position, what in ((1, "back"), (5, "no such position")):
        refused = streams.ack("billing", position)
        assert (refused.status, refused.json()["error_code"]) == (409, "CONFLICT.consumer.position")
        assert refused.json()["position"] == 2 and what in refused.json()["detail"]
    assert positions(streams.page(consumer="billing").json()["events"]) == [3, 4]
    assert streams.seek("billing", 1).json()["generation"] == 2
    late = streams.ack("billing", 4, generation=1)
    assert (late.status, late.json()["error_code"]) == (409, "CONFLICT.consumer.generation")
    assert (late.json()["position"], late.json()["generation"]) == (1, 2)
    assert streams.ack("billing", 3, generation=2).status == 200
    streams.hooks.restart("kill")
    assert positions(streams.page(consumer="billing").json()["events"]) == [4]
    assert streams.seek("billing", "newest").json()["position"] == 4
    assert streams.seek("billing", 5).status == 409
    assert streams.seek("billing", "oldest").json()["position"] == 0
    listed = streams.call("GET", "/v1/consumers?stream=orders-1").json()["consumers"]
    assert [(one["consumer"], one["stream"], one["position"], one["generation"]) for one in listed] == [
        ("billing", "orders-1", 0, 4)]
    assert streams.call("DELETE", "/v1/consumers/billing?stream=orders-1").status == 200
    assert streams.call("DELETE", "/v1/consumers/billing?stream=orders-1").status == 404
    assert streams.call("GET", "/v1/consumers").json()["consumers"] == []
    assert streams.page(consumer="billing").json()["generation"] == 1


def test_acknowledgements_at_once_leave_the_furthest(streams):
    for _ in range(10):
        streams.publish()
    assert streams.ack("d", 7).status == 200
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda position: streams.ack("c", position), in_row(10)))
    assert {answer.status for answer in answers} <= {200, 409}
    assert streams.page(consumer="c").json()["after"] == 10
    listed = streams.call("GET", "/v1/consumers").json()["consumers"]
    assert [(one["consumer"], one["position"], one["version"]) for one in listed] == [("c", 10, 10), ("d", 7, 10)]


def test_a_follower_with_a_consumer_begins_behind_it(journal):
    for _ in range(3):
        journal.publish()
    assert journal.ack("c", 1).status == 200
    follower = journal.follow(query="&consumer=c")
    assert ("Hapax-Generation", "1") in follower.fields
    assert positions(follower.take(2)) == [2, 3]


def test_tenants_see_no_stream_and_no_consumer_of_each_other(hooks):
    acme, rival = Streams(hooks, "acme"), Streams(hooks, "rival")
    for _ in range(2):
        acme.publish()
    assert acme.ack("c", 2).status == 200
    assert rival.page().json() == {"stream": "orders-1", "events": [], "after": 0, "version": 0}
    assert rival.page(consumer="c").json()["after"] == 0
    assert rival.ack("c", 1).status == 409
    assert rival.seek("c", 1).status == 409
    assert rival.call("GET", "/v1/consumers").json()["consumers"] == []
    assert rival.call("DELETE", "/v1/consumers/c?stream=orders-1").status == 404
    body = {"stream": "orders-1", "tenant": "acme", "position": 1}
    for method, target, given in [
            ("GET", "/v1/events?stream=orders-1&tenant=acme", None), ("GET", "/v1/consumers?tenant=acme", None),
            ("POST", "/v1/consumers/c/ack", {**body, "generation": 1}), ("POST", "/v1/consumers/c/seek", body),
            ("DELETE", "/v1/consumers/c?stream=orders-1&tenant=acme", None)]:
        assert rival.call(method, target, given).status == 403, (method, target)
    follower = rival.follow()
    assert rival.publish(data={"of": "rival"}).json()["position"] == 1
    assert follower.next()["data"] == {"of": "rival"}
    assert positions(acme.read()) == [1, 2]


@pytest.mark.parametrize("query, what", [
    ("stream=", "stream"), ("stream=a/b", "stream"), ("stream=s&after=-1", "after"), ("stream=s&after=x", "after"),
    ("stream=s&consumer=a%20b", "consumer"), ("stream=s&consumer=c&after=1", "after"), ("stream=s&limit=0", "limit"),
    ("stream=s&colour=red", "colour")])
def test_a_malformed_reading_is_refused_and_named(journal, query, what):
    refused = journal.call("GET", f"/v1/events?{query}")
    assert refused.status == 400 and what in refused.json()["detail"], refused


@pytest.mark.parametrize("verb, body, what", [
    ("ack", {}, "stream"), ("ack", {"stream": "s"}, "position"), ("ack", {"stream": "s", "position": 1}, "generation"),
    ("ack", {"stream": "s", "position": "oldest", "generation": 1}, "position"),
    ("seek", {"stream": "s", "position": "first"}, "position"), ("seek", {"stream": "s", "at": 1}, "at"),
    ("seek", {"stream": "s", "position": 0, "generation": 1}, "generation")])
def test_a_malformed_move_is_refused_and_named(journal, verb, body, what):
    refused = journal.call("POST", f"/v1/consumers/c/{verb}", body)
    assert refused.status == 400 and what in refused.json()["detail"], refused
