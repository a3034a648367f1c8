# SPDX-License-Identifier: Apache-2.0
"""Tokens of the API: who has one may do what its scopes say, in its tenant, until it is revoked; others get nothing."""
import json
import os
import pwd
import re
import secrets

import pytest

from harness import EXIT_CONFIG, SCOPES, Api, bearer, drop_after_effect, eventually, fresh_key, request_bytes

TOKEN = "hpx_" + "A" * 43
ME = f"{pwd.getpwuid(os.geteuid()).pw_name} (uid {os.geteuid()})"


@pytest.fixture
def tokens(hapax):
    """tokens(api, "list", ...): a command of an operator's."""
    return lambda api, *words: hapax("tokens", *words, "--admin", f"unix:{api.gateway.store}/admin.sock")


def refused(answer, status, code):
    assert answer.status == status, answer
    assert answer.header("Content-Type") == "application/problem+json", answer
    assert (answer.json()["error_code"], answer.header("Error-Code")) == (code, code), answer
    return answer.json()


def rows(hapax):
    """Every request of the reference: method, path, scope and what it is about. The reference is the table itself."""
    found = re.findall(r"^\| `([A-Z]+) (/v1/[^`]*)` \| (\w+) \| (\w+) \|", hapax("reference", "admin").stdout, re.M)
    assert len(found) > 10
    return [(method, path.replace("{id}", "0" * 32), scope, about) for method, path, scope, about in found]


def ask(api, method, path, token):
    path = re.sub(r"\{\w+\}", "nobody", path)
    return api.call(method, path, token, body=None if method == "GET" else {})


def test_every_request_needs_its_scope(api, hapax):
    holders = {scope: api.token(scope) for scope in SCOPES}
    opened = 0
    for method, path, scope, _ in rows(hapax):
        refused(ask(api, method, path, None), 401, "AUTH.token_missing")
        for held, token in holders.items():
            answer = ask(api, method, path, token)
            if scope == "socket":
                refused(answer, 403, "AUTH.socket_only")
            elif scope not in (held, "any"):
                problem = refused(answer, 403, "AUTH.scope_missing")
                assert f'"{scope}"' in problem["detail"], problem
                assert f'scope="{scope}"' in answer.header("WWW-Authenticate")
            else:
                assert answer.status not in (401, 403), (method, path, answer)
                opened += 1
    assert opened > 5


def test_a_token_of_a_tenant_sees_nothing_of_the_whole_store(api, hapax):
    """Operations aren't divided by tenants, so all rights together are none about them."""
    token = api.token(*SCOPES, tenant="acme")
    about_all = [row for row in rows(hapax) if row[3] == "store" and row[2] != "socket"]
    assert len(about_all) > 5
    for method, path, _, _ in about_all:
        refused(ask(api, method, path, token), 403, "AUTH.tenant_bound")


def test_without_a_token_nothing_is_told(api):
    for path in ("/v1/counts", "/v1/nothing", "/", "/v1/tokens"):
        answer = api.call("GET", path)
        refused(answer, 401, "AUTH.token_missing")
        assert answer.header("WWW-Authenticate") == "Bearer"
    assert api.call("GET", "/v1/nothing", api.token("view")).status == 404
    refused(api.call("PUT", "/v1/counts", api.token("view")), 405, "ADMIN.method_not_allowed")


@pytest.mark.parametrize("authorization", [
    bearer(TOKEN), f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer x", bearer(TOKEN + "A"), bearer(TOKEN[:-1]),
    bearer(TOKEN.upper()), bearer(TOKEN.replace("A", "\xe4")), bearer(TOKEN + ", " + bearer(TOKEN)), "",
    bearer("A" * 9000),
], ids=range(12))
def test_what_is_no_token_is_refused(api, authorization):
    answer = api.call("GET", "/v1/counts", headers=[("Authorization", authorization)])
    refused(answer, 401, "AUTH.token_invalid")
    assert answer.header("WWW-Authenticate") == 'Bearer error="invalid_token"'


def test_a_wrong_token_never_gets_the_rights_of_another(api):
    """However many good ones are known to the gateway."""
    for token in [api.token("view") for _ in range(40)]:
        assert api.call("GET", "/v1/counts", token).status == 200
    with api.connect() as connection:
        for _ in range(200):
            wrong = "hpx_" + secrets.token_urlsafe(32)
            refused(api.send(connection, "GET", "/v1/counts", wrong).response, 401, "AUTH.token_invalid")


def test_two_tokens_in_one_request_are_none(api):
    one, other = api.token("view"), api.token("view")
    answer = api.call("GET", "/v1/counts", one, headers=[("Authorization", bearer(other))])
    refused(answer, 401, "AUTH.token_invalid")
    assert api.call("GET", "/v1/counts", one).status == 200


def test_a_connection_has_the_rights_of_each_request(api):
    view, publish = api.token("view"), api.token("publish")
    with api.connect() as connection:
        assert api.send(connection, "GET", "/v1/counts", view).status == 200
        refused(api.send(connection, "GET", "/v1/counts", publish).response, 403, "AUTH.scope_missing")
        refused(api.send(connection, "GET", "/v1/counts").response, 401, "AUTH.token_missing")
        assert api.send(connection, "GET", "/v1/counts", view).status == 200


def test_a_revoked_token_is_refused_at_once(api, tokens):
    kept, lost = api.create("shop", "view"), api.create("shop", "view")
    for token in (kept, lost):
        assert api.call("GET", "/v1/counts", token["token"]).status == 200
    result = tokens(api, "revoke", lost["id"].upper())
    assert result.code == 0 and "revoked: 1" in result.stdout, result
    refused(api.call("GET", "/v1/counts", lost["token"]), 401, "AUTH.token_invalid")
    assert api.call("GET", "/v1/counts", kept["token"]).status == 200
    assert [event["token_id"] for event in api.gateway.wait_events("token_revoked")] == [lost["id"]]
    assert api.gateway.wait_events("token_refused")[0]["client"] == "127.0.0.1"


def test_a_token_is_replaced_without_an_interruption(api, tokens):
    def works(token):
        return api.call("GET", "/v1/counts", token).status == 200

    old = tokens(api, "create", "shop", "--scope", "view").stdout.strip()
    assert works(old)
    new = tokens(api, "create", "shop", "--scope", "view").stdout.strip()
    assert works(old) and works(new) and old != new
    first, second = json.loads(tokens(api, "list", "--json").stdout)["tokens"]
    assert first["created_at"] <= second["created_at"] and first["name"] == second["name"] == "shop"
    assert tokens(api, "revoke", first["id"]).code == 0
    assert not works(old) and works(new)
    assert json.loads(tokens(api, "list", "--json").stdout)["tokens"] == [second]


def test_a_name_is_revoked_with_all_its_tokens(api, tokens):
    """And no other name that begins like it."""
    gone = [api.token("view", name="shop") for _ in range(3)]
    kept = [api.token("view", name=name) for name in ("shop-2", "sho", "shopping", "Shop")]
    assert "revoked: 3" in tokens(api, "revoke", "shop").stdout
    assert {api.call("GET", "/v1/counts", token).status for token in gone} == {401}
    assert {api.call("GET", "/v1/counts", token).status for token in kept} == {200}
    again = tokens(api, "revoke", "shop")
    assert again.code == EXIT_CONFIG and "no such token" in again.stderr, again
    for nothing in ("0" * 12, "a b", "a/b", "%", "x" * 600):
        assert tokens(api, "revoke", nothing).code == EXIT_CONFIG


def test_tokens_are_listed_without_themselves(api, tokens):
    assert "no tokens" in tokens(api, "list").stderr
    secret = api.create("shop", "view", "publish", tenant="acme")
    other = api.create("audit", "view")
    result = tokens(api, "list")
    title, *lines = [line.split() for line in result.stdout.splitlines()]
    assert title == ["ID", "NAME", "SCOPES", "TENANT", "CREATED", "BY"]
    assert [line[:4] for line in lines] == [[other["id"], "audit", "view", "-"],
                                            [secret["id"], "shop", "publish,view", "acme"]]
    assert all(" ".join(line[5:]) == ME for line in lines), result
    assert secret["token"] not in result.stdout + tokens(api, "list", "--json").stdout


def test_a_list_of_tokens_comes_in_pages(api):
    made = sorted((api.create(f"shop-{number % 3}", "view") for number in range(7)),
                  key=lambda token: (token["name"], token["created_at"], token["id"]))
    seen, target = [], "/v1/tokens?limit=2"
    while target:
        page = api.operator("GET", target).json()
        assert len(page["tokens"]) <= 2
        seen += page["tokens"]
        target = f"/v1/tokens?limit=2&cursor={page['cursor']}" if "cursor" in page else None
    assert [token["id"] for token in seen] == [token["id"] for token in made]
    for wrong in ("limit=0", "cursor=zz", "limit=1&limit=1", "order=name"):
        refused(api.operator("GET", f"/v1/tokens?{wrong}"), 400, "ADMIN.request_malformed")


def test_a_token_is_printed_alone(api, tokens):
    """So that a script can take it as it is."""
    result = tokens(api, "create", "shop", "--scope", "view, operate", "--tenant", "acme")
    assert re.fullmatch(r"hpx_[A-Za-z0-9_-]{43}\n", result.stdout), result
    assert "not shown again" in result.stderr and result.stdout.strip() not in result.stderr
    made = json.loads(tokens(api, "create", "shop", "--scope", "view", "--json").stdout)
    assert (made["name"], made["scopes"], made["tenant"], made["created_by"]) == ("shop", ["view"], "", ME)
    assert made["token"].startswith("hpx_") and re.fullmatch("[0-9a-f]{12}", made["id"])


@pytest.mark.parametrize("words, said", [
    (["create", "shop"], "needs --scope"),
    (["create", "--scope", "view"], "create needs NAME"),
    (["create", "a b", "--scope", "view"], '"name" must have'),
    (["create", "0123456789ab", "--scope", "view"], "like an id"),
    (["create", "shop", "--scope", "admin"], '"scopes" must be'),
    (["create", "shop", "--scope", "view", "--tenant", "a/b"], '"tenant" must have'),
    (["list", "shop"], 'unexpected argument "shop"'),
    (["list", "--scope", "view"], "are for create"),
    (["revoke"], "revoke needs ID or NAME"),
    (["make"], 'unknown command "make"'),
    ([], "a command is missing"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_a_mistake_makes_no_token(api, tokens, words, said):
    result = tokens(api, *words)
    assert result.code == EXIT_CONFIG and said in result.stderr, result
    assert json.loads(tokens(api, "list", "--json").stdout)["tokens"] == []


def test_a_token_is_nowhere_but_with_its_holder(api, tokens):
    token, wrong = api.token("view"), "hpx_" + "b" * 43
    assert api.call("GET", "/v1/counts", token).status == 200
    refused(api.call("GET", "/v1/counts", wrong), 401, "AUTH.token_invalid")
    refused(api.call("POST", f"/v1/operations/forget?{token}", token, body=token), 403, "AUTH.scope_missing")
    tokens(api, "revoke", "tester")
    refused(api.call("GET", "/v1/counts", token), 401, "AUTH.token_invalid")
    api.gateway.wait_events("token_refused")
    said = "\n".join(api.gateway.output)
    assert token[4:] not in said and wrong[4:] not in said


def test_tokens_outlive_the_process_and_are_in_none_of_its_files(start_gateway):
    gateway = start_gateway(flags=["--api", "127.0.0.1:0"])
    kept, lost = (Api(gateway).create("shop", "view") for _ in range(2))
    assert Api(gateway).operator("DELETE", f"/v1/tokens/{lost['id']}").status == 200
    for how in ("kill", "drain"):
        api = Api(gateway.restart(how))
        assert api.call("GET", "/v1/counts", kept["token"]).status == 200
        refused(api.call("GET", "/v1/counts", lost["token"]), 401, "AUTH.token_invalid")
        assert [token["id"] for token in api.operator("GET", "/v1/tokens").json()["tokens"]] == [kept["id"]]
    gateway.kill()
    for file in (path for path in gateway.store.rglob("*") if path.is_file()):
        data = file.read_bytes()
        assert not any(token["token"][4:].encode() in data for token in (kept, lost)), file
    assert b"shop" in b"".join(path.read_bytes() for path in gateway.store.rglob("*.seg"))


@pytest.mark.slow
def test_a_token_is_made_and_revoked_for_every_gateway_of_a_store(start_api, hapax, tmp_path):
    """What one has made works on the other at once, and what it has revoked is refused there in a few seconds."""
    url = f"sqlite:{tmp_path}/store.db"
    probe = hapax("serve", "--store", url, "--upstream", "http://127.0.0.1:1", "--listen", "192.0.2.1:1",
                  "--api", "127.0.0.1:0")
    if probe.code == EXIT_CONFIG:  # not EXIT_ADDRESS: it came no further than the store
        assert "keeps no tokens and events" in probe.stderr, probe
        pytest.skip("SQLite keeps no tokens yet")
    one, other = start_api(store=url), start_api(store=url)
    refused(other.call("GET", "/v1/counts", TOKEN), 401, "AUTH.token_invalid")
    token = one.create("shop", "view")
    for api in (other, one):
        assert api.call("GET", "/v1/counts", token["token"]).status == 200
    assert one.operator("DELETE", "/v1/tokens/shop").status == 200
    refused(one.call("GET", "/v1/counts", token["token"]), 401, "AUTH.token_invalid")
    eventually(lambda: other.call("GET", "/v1/counts", token["token"]).status == 401, "the other gateway's refusal")


def test_a_storm_of_wrong_tokens_is_one_line_of_the_log(api):
    with api.connect() as connection:
        for _ in range(200):
            refused(api.send(connection, "GET", "/v1/counts", TOKEN).response, 401, "AUTH.token_invalid")
    lines = api.gateway.wait_events("token_refused")
    assert len(lines) < 100 and sum(line["refused"] for line in lines) <= 200
    assert api.call("GET", "/v1/counts", api.token("view")).status == 200


def test_a_decision_names_the_token(api, upstream, hapax):
    upstream.on("/refunds", drop_after_effect())
    key, token = fresh_key(), api.token("operate", "view", name="on-call")
    assert api.gateway.post("/refunds", key=key, json={}).idempotency == "unknown"
    operation = api.call("GET", f"/v1/operations?key={key}", token).json()["operations"][0]
    answer = api.call("POST", f"/v1/operations/{operation['id']}/resolve", token,
                      body={"outcome": "released", "why": "not in the ledger"})
    assert answer.status == 200, answer
    assert answer.json()["operation"]["reason"] == "operator token on-call: not in the ledger"
    line = api.gateway.wait_events("operation_resolved")[0]
    assert line["token"] == "on-call" and "user" not in line, line


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "0x7f.1"])
def test_a_name_that_was_led_here_is_refused(api, host):
    """DNS rebinding: a page of evil.example, whose name leads to this machine by now, has the user's token."""
    answer = api.call("GET", "/v1/counts", api.token("view"), headers={"Host": host})
    refused(answer, 421, "API.host_not_allowed")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", ""])
def test_a_page_from_elsewhere_is_refused(api, origin):
    token = api.token("view")
    refused(api.call("GET", "/v1/counts", token, headers={"Origin": origin}), 403, "API.origin_not_allowed")
    preflight = api.call("OPTIONS", "/v1/counts", headers={"Origin": origin, "Access-Control-Request-Method": "GET"})
    refused(preflight, 403, "API.origin_not_allowed")
    assert not preflight.all("Access-Control-Allow-Origin")
    assert api.call("GET", "/v1/counts", token, headers={"Origin": f"http://{api.address}"}).status == 200


def test_a_request_without_a_host_is_refused(api):
    with api.connect() as connection:
        connection.send(b"GET /v1/counts HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN.encode())
        refused(connection.receive(), 421, "API.host_not_allowed")


def test_names_of_the_api_change_with_a_reload(start_api, hapax):
    api = start_api("api: {hosts: [hapax.test]}")
    token, config = api.token("view"), api.gateway.config

    def status(host):
        return api.call("GET", "/v1/counts", token, headers={"Host": host}).status

    assert (status("Hapax.Test:8081"), status("other.test")) == (200, 421)
    text = config.read_text()
    config.write_text(text.replace("hapax.test", "other.test"))
    assert hapax("reload", "--config", config).code == 0
    assert (status("hapax.test"), status("other.test")) == (421, 200)
    api.gateway.config.write_text(text.replace("{hosts", "{connections: 7, hosts"))
    result = hapax("reload", "--config", config)
    assert result.code == EXIT_CONFIG and '"api" can\'t change while running' in result.stderr, result


def test_a_unix_socket_of_the_api_needs_a_token_too(start_api, tmp_path):
    """Whoever may open it: only the admin socket takes a user for an operator."""
    api = start_api(listen=f"unix:{tmp_path}/api.sock")
    refused(api.call("GET", "/v1/counts"), 401, "AUTH.token_missing")
    assert api.call("GET", "/v1/counts", api.token("view")).status == 200
    refused(api.call("POST", "/v1/tokens", api.token(*SCOPES), body={}), 403, "AUTH.socket_only")


@pytest.mark.parametrize("address, flags", [("0.0.0.0:0", ["--api", "0.0.0.0:0"]), ("[::]:0", ())])
def test_tokens_do_not_leave_the_machine_unencrypted(start_node, hapax, address, flags):
    config = "" if flags else f'api: {{listen: "{address}"}}'
    gateway = start_node("memory:", config, flags=flags, started=False)
    result = hapax(*gateway.command()[1:])
    assert result.code == EXIT_CONFIG and "would cross the network unencrypted" in result.stderr, result


def test_who_insists_on_an_open_listener_is_warned(start_api):
    api = start_api("api: {insecure: true}", listen="0.0.0.0:0")
    assert "not encrypted" in api.gateway.wait_events("configuration_warning")[0]["note"]
    assert api.call("GET", "/v1/counts", api.token("view")).status == 200


def test_a_body_is_not_read_for_a_caller_without_rights(api):
    """Nothing of it was sent: the answer comes for the head alone."""
    for token, status in ((None, 401), (TOKEN, 401), (api.token("view"), 403)):
        with api.connect() as connection:
            fields = [("Host", "localhost"), ("Content-Length", str(15 << 20))]
            fields += [("Authorization", bearer(token))] if token else []
            connection.send(request_bytes("POST", "/v1/operations/forget", fields))
            assert connection.receive().status == status


def test_clients_that_leave_early_leave_nothing_behind(start_api):
    """At every point of a request; the daemon still ends in good order, which waits for what is under way."""
    api = start_api("drain: 5s")
    token = api.token("operate")
    whole = request_bytes("POST", "/v1/operations/forget", [("Host", "localhost"), ("Authorization", bearer(token))],
                          {"why": "w" * 1000})
    for cut in range(1, len(whole) + 1, 40):
        connection = api.connect()
        connection.send(whole[:cut])
        connection.reset()
    assert api.call("POST", "/v1/operations/forget", token, body={}).status == 400
    api.gateway.terminate()
    assert api.gateway.wait_exit() == 0
    assert not api.gateway.events("job_cut")


def test_bodies_of_all_callers_together_are_bounded(api):
    """Five of the largest at once: four are held, and the fifth is told to come again; then there is space again."""
    token, size = api.token("operate"), 16 << 20
    held = []
    for _ in range(4):
        connection = api.connect()
        connection.send(request_bytes("POST", "/v1/operations/forget",
                                      [("Host", "localhost"), ("Authorization", bearer(token)),
                                       ("Content-Length", str(size))]))
        connection.send(b"x" * (size - 1))
        connection.wait_read()
        held.append(connection)
    over = api.call("POST", "/v1/operations/forget", token, body="x" * 100)
    refused(over, 503, "TRANSIENT.overloaded")
    assert over.header("Retry-After") == "1"
    assert api.operator("POST", "/v1/operations/forget", "{}").status == 400, "operators have space of their own"
    for connection in held:
        connection.close()
    eventually(lambda: api.call("POST", "/v1/operations/forget", token, body="x" * 100).status == 400,
               "space for a body after those that were held are gone")
