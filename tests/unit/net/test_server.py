# SPDX-License-Identifier: Apache-2.0
"""What a client sees of the server, and what its handler hears, over bare sockets."""
import os
import resource
import socket
import subprocess
import time

import pytest

from server_harness import BINARY, SANITIZED, Server

MIB = 1 << 20
measures_memory = pytest.mark.skipif(SANITIZED, reason="sanitizers keep what is freed")


@pytest.fixture(scope="module")
def shared():
    with Server("127.0.0.1:0", "[::1]:0") as running:
        yield running


@pytest.fixture
def server():
    with Server() as running:
        yield running


def request(target, method="GET", fields="", body=b""):
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode() + body


def wait_until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_connection_serves_one_request_after_another(shared):
    with shared.connect() as client:
        for body in (b"one", b"two", b"three"):
            answer = client.ask("/echo", "POST", body)
            assert answer.status == 200 and answer.body.endswith(b"\n\n" + body)
            assert answer.get("Connection") is None and answer.get("Date")


def test_clients_over_version_6_are_served(shared):
    with shared.connect(1) as client:
        assert b"peer=::1 " in client.ask("/echo").body


def test_a_hundred_pipelined_requests_are_answered_in_order(shared):
    with shared.connect() as client:
        client.send(b"".join(request(f"/echo?n={n}") for n in range(100)))
        for n in range(100):
            assert f"/echo?n={n} ".encode() in client.answer().body


def test_pipelined_requests_wait_for_a_slow_one(shared):
    with shared.connect() as client:
        client.send(request("/later?ms=50&size=1") + request("/now?size=2") + request("/begin?size=3"))
        assert [len(client.answer().body) for _ in range(3)] == [1, 2, 3]


def test_more_pipelined_than_is_held_is_read_when_there_is_room(shared):
    many = 20000
    with shared.connect() as client:
        client.send(request("/later?ms=100&size=1"))
        pid = os.fork()
        if pid == 0:
            client.send(request("/now?size=2") * many)
            os._exit(0)
        assert len(client.answer().body) == 1
        for _ in range(many):
            assert client.answer().body == b"nn"
        os.waitpid(pid, 0)


def test_pipelined_bodies_are_told_apart(shared):
    chunked = request("/echo", "POST", "Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n")
    counted = request("/echo", "POST", "Content-Length: 4\r\n", b"wxyz")
    with shared.connect() as client:
        client.send((chunked + counted) * 30)
        for _ in range(30):
            assert client.answer().body.endswith(b"\n\nabcde")
            assert client.answer().body.endswith(b"\n\nwxyz")


def test_a_chunked_body_may_be_cut_anywhere(tmp_path):
    body = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: t\r\n\r\n"
    raw = request("/echo", "POST", "Transfer-Encoding: chunked\r\n", body)
    with Server(f"unix:{tmp_path}/socket") as server:
        for a in range(1, len(raw)):
            with server.connect() as client:
                client.send_read(raw[:a])
                client.send_read(raw[a:])
                assert client.answer().body.endswith(b"\n\nabc0123456789")
        with server.connect() as client:
            for byte in raw * 3:
                client.send_read(bytes([byte]))
            for _ in range(3):
                assert client.answer().body.endswith(b"\n\nabc0123456789")


def test_a_body_comes_on_after_a_pause(shared):
    body = os.urandom(1_000_000)
    with shared.connect() as client:
        assert client.ask("/pause", "POST", body).body.endswith(body)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_continue_is_sent_to_who_waits_for_it(shared, framing):
    fields = "Content-Length: 5\r\n" if framing == "length" else "Transfer-Encoding: chunked\r\n"
    with shared.connect() as client:
        client.send(request("/echo", "POST", fields + "Expect: 100-continue\r\n"))
        assert client.answer().status == 100
        client.send(b"hello" if framing == "length" else b"5\r\nhello\r\n0\r\n\r\n")
        assert client.answer().body.endswith(b"hello")
        assert client.ask("/now").status == 200


def test_continue_is_not_sent_to_who_does_not_wait(shared):
    with shared.connect() as client:
        client.send(request("/echo", "POST", "Content-Length: 5\r\nExpect: 100-continue\r\n", b"hello"))
        assert client.answer().status == 200


def test_continue_is_not_sent_for_an_answer_that_needs_no_body(shared):
    with shared.connect() as client:
        client.send(request("/now?code=403", "POST", "Content-Length: 5\r\nExpect: 100-continue\r\n"))
        answer = client.answer()
        assert answer.status == 403 and answer.get("Connection") == "close"
        assert client.is_over()


@pytest.mark.parametrize("target", ["/now?size=7", "/begin?size=7&length=1", "/now?size=70000"])
def test_head_has_the_length_and_no_body(shared, target):
    with shared.connect() as client:
        whole = client.ask(target)
        bare = client.ask(target, "HEAD")
        assert bare.get("Content-Length") == whole.get("Content-Length") == str(len(whole.body))
        assert client.ask("/now?size=1").body == b"n"


@pytest.mark.parametrize("target", ["/now?code=204", "/begin?code=204&size=5&length=1", "/begin?code=204&size=5"])
def test_204_has_neither_body_nor_length(shared, target):
    with shared.connect() as client:
        answer = client.ask(target)
        assert answer.status == 204
        assert answer.get("Content-Length") is None and answer.get("Transfer-Encoding") is None
        assert client.ask("/now?size=1").body == b"n"


def test_304_may_announce_what_it_does_not_send(shared):
    with shared.connect() as client:
        assert client.ask("/begin?code=304&size=9&length=1").get("Content-Length") == "9"
        assert client.ask("/begin?code=304&size=9").get("Content-Length") is None
        assert client.ask("/now?code=304&size=0").get("Content-Length") is None
        assert client.ask("/now?size=1").body == b"n"


@pytest.mark.parametrize("size", [0, 1, 500, 1100, 5000, 300_000])
@pytest.mark.parametrize("piece", [1, 700, 65536])
def test_an_answer_in_pieces_arrives_whole(shared, size, piece):
    if size > 10_000 and piece == 1:
        piece = 13
    with shared.connect() as client:
        for length, framing in ((0, "chunked"), (1, "length")):
            answer = client.ask(f"/begin?size={size}&piece={piece}&length={length}")
            assert answer.framing == framing and answer.body == b"f" * size


def test_old_clients_get_no_chunks(shared):
    with shared.connect() as client:
        client.send(b"GET /begin?size=9 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = client.answer()
        assert answer.framing == "close" and answer.body == b"f" * 9 and answer.get("Connection") == "close"


def test_old_clients_keep_their_connection_when_they_ask(shared):
    with shared.connect() as client:
        for _ in range(2):
            client.send(b"GET /now HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
            assert client.answer().get("Connection") == "keep-alive"
        client.send(b"GET /now HTTP/1.0\r\n\r\n")
        assert client.answer().get("Connection") == "close"
        assert client.is_over()


def test_close_is_done_as_asked(shared):
    with shared.connect() as client:
        assert client.ask("/now", headers="Connection: foo, Close\r\n").get("Connection") == "close"
        assert client.is_over()


def test_the_handler_may_end_the_connection_with_its_answer(shared):
    with shared.connect() as client:
        assert client.ask("/now?close=1").get("Connection") == "close"
        assert client.is_over()


def test_fields_that_connection_names_are_marked(shared):
    with shared.connect() as client:
        fields = "X-Secret: 1\r\nX-Open: 2\r\nTE: trailers\r\nConnection: te, x-secret\r\n"
        body = client.ask("/echo", headers=fields).body
        assert b"X-Secret=<1> hop\n" in body and b"X-Open=<2>\n" in body and b"TE=<trailers> hop\n" in body


def test_an_url_as_target_becomes_a_path_and_a_host(shared):
    with shared.connect() as client:
        for url, target, host in (
            ("http://other:81/echo?q", "/echo?q path=/echo query=q", "other:81"),
            ("HTTP://other", "/ path=/ query=(none)", "other"),
            ("http://other?a=b", "/?a=b path=/ query=a=b", "other"),
        ):
            body = client.ask(url).body
            assert body.startswith(f"GET {target} host={host} ".encode()) and f"Host=<{host}>".encode() in body
        assert client.ask("http://other", "OPTIONS").body.startswith(b"OPTIONS * ")


def test_a_client_that_closes_its_side_is_answered(shared):
    with shared.connect() as client:
        post = request("/echo", "POST", "Content-Length: 2\r\n", b"hi")
        client.send(request("/later?ms=30&size=1") + post + request("/now"))
        client.no_more()
        assert client.answer().body == b"n"
        assert client.answer().body.endswith(b"hi")
        assert client.answer().body == b"nnn"
        assert client.is_over()


@pytest.mark.parametrize(
    "fields, body", [("Content-Length: 9\r\n", b"half"), ("Transfer-Encoding: chunked\r\n", b"9\r\nhalf")]
)
def test_a_client_that_leaves_in_mid_body_breaks_the_request(server, fields, body):
    with server.connect() as client:
        client.send(request("/echo", "POST", fields, body))
        client.no_more()
        assert client.is_over()
    assert server.saw("broken").startswith("broken 0 ")


def test_a_client_that_resets_in_mid_body_breaks_the_request(server):
    client = server.connect()
    client.send(request("/echo", "POST", "Content-Length: 9\r\n", b"half"))
    server.saw("request")
    client.reset()
    assert server.saw("broken").startswith("broken 0 ")


def test_a_client_that_leaves_in_mid_head_is_not_answered(server):
    with server.connect() as client:
        client.send(b"GET /echo HT")
        client.no_more()
        assert client.to_the_end() == b""
    with server.connect() as client:
        client.ask("/now")
    assert not any(e.startswith("malformed") for e in server.so_far())


def test_the_handler_hears_when_its_client_resets(server):
    client = server.connect()
    client.send(request("/hold"))
    server.saw("request")
    client.reset()
    assert server.saw("closed") == "closed /hold"


def test_a_stream_that_is_dropped_resets_its_client(shared):
    with shared.connect() as client:
        client.send(request("/drop"))
        with pytest.raises(ConnectionResetError):
            client.more()


@pytest.mark.parametrize("target", ["/abort", "/begin?size=5000&cut=1000&length=1"])
def test_a_broken_off_answer_cannot_be_taken_for_a_whole_one(shared, target):
    for version in ("1.1", "1.0"):
        with shared.connect() as client:
            client.send(f"GET {target} HTTP/{version}\r\nHost: a\r\n\r\n".encode())
            with pytest.raises((ConnectionResetError, EOFError)):
                client.answer()


def test_an_unread_body_is_skipped_and_the_connection_kept(shared):
    with shared.connect() as client:
        for size in (1, 1000, 60_000):
            assert client.ask("/now", "POST", b"x" * size).get("Connection") is None
            client.send(request("/now", "POST", "Transfer-Encoding: chunked\r\n"))
            assert client.answer().status == 200
            client.send(b"3\r\nabc\r\n" * (size // 10) + b"0\r\n\r\n")
        assert client.ask("/echo").status == 200


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_early_refusal_reaches_a_client_that_is_still_sending(shared, framing):
    size = 40 * MIB
    fields = f"Content-Length: {size}\r\n" if framing == "length" else "Transfer-Encoding: chunked\r\n"
    with shared.connect() as client:
        client.send(request("/now?code=413", "POST", fields))
        piece = b"x" * MIB if framing == "length" else b"100000\r\n" + b"x" * MIB + b"\r\n"
        for _ in range(40):
            client.send(piece)
        answer = client.answer()
        assert answer.status == 413
        assert framing == "chunked" or answer.get("Connection") == "close"
        assert client.is_over()


def test_broken_chunks_in_a_skipped_body_end_the_connection(shared):
    with shared.connect() as client:
        client.send(request("/now", "POST", "Transfer-Encoding: chunked\r\n", b"zz\r\n") + request("/smuggled"))
        assert client.answer().status == 200
        assert client.is_over()
    assert not any("smuggled" in e for e in shared.so_far())


@measures_memory
def test_a_slow_reader_holds_bounded_memory(server):
    _, before = server.stats()
    size = 300 * MIB
    with server.connect(receive_buffer=4096) as client:
        client.send(request(f"/begin?size={size}&piece=65536&length=1"))
        assert client.exactly(10)
        _, during = server.stats()
        assert during - before < 4096
        got = 10
        while got < size:
            got += len(client.more())
    server.saw("drained")
    _, after = server.stats()
    assert after - before < 4096


def test_a_whole_answer_larger_than_the_socket_takes_arrives(shared):
    with shared.connect(receive_buffer=4096) as client:
        client.send(request(f"/now?size={8 * MIB}") + request("/now?size=1"))
        assert client.answer().body == b"n" * (8 * MIB)
        assert client.answer().body == b"n"


def test_a_client_that_leaves_while_its_answer_waits_does_no_harm(server):
    for _ in range(20):
        client = server.connect(receive_buffer=4096)
        client.send(request(f"/now?size={4 * MIB}"))
        assert client.exactly(100)
        client.reset()
    wait_until(lambda: server.stats()[0] == 0)


@measures_memory
def test_streams_in_both_directions_hold_bounded_memory(server):
    size, piece = 64 * MIB, os.urandom(MIB)
    _, before = server.stats()
    with server.connect(receive_buffer=65536) as client:
        client.send(request("/duplex", "POST", f"Content-Length: {size}\r\n"))
        pid = os.fork()
        if pid == 0:
            for _ in range(size // MIB):
                client.send(piece)
            os._exit(0)
        time.sleep(0.3)  # lets it fill up
        _, during = server.stats()
        assert client.answer().body == piece * (size // MIB)
        os.waitpid(pid, 0)
    assert during - before < 4096


def test_a_tunnel_carries_bytes_both_ways(shared):
    with shared.connect() as client:
        client.send(request("/tunnel", fields="Connection: upgrade\r\nUpgrade: echo\r\n", body=b"early"))
        answer = client.answer()
        assert answer.status == 101 and answer.get("Upgrade") == "echo" and answer.get("Connection") == "upgrade"
        assert answer.get("Transfer-Encoding") is None
        assert client.exactly(5) == b"early"
        data = os.urandom(100_000)
        for _ in range(10):
            client.send(data)
            assert client.exactly(len(data)) == data
        client.send(b"last")
        client.no_more()
        assert client.to_the_end() == b"last"


def test_a_tunnel_ends_when_its_client_is_reset(server):
    client = server.connect()
    client.send(request("/tunnel", fields="Connection: upgrade\r\nUpgrade: echo\r\n"))
    assert client.answer().status == 101
    client.reset()
    assert server.saw("closed") == "closed /tunnel"


def test_a_head_that_does_not_come_in_time_is_refused():
    with Server(head=100) as server, server.connect() as client:
        client.send(b"GET /echo HTTP/1.1\r\nHo")
        answer = client.answer()
        assert answer.status == 408 and answer.get("Connection") == "close"
        assert client.is_over()


def test_a_head_that_trickles_in_is_refused():
    with Server(head=300) as server, server.connect() as client:
        client.send(b"GET /echo HTTP/1.1\r\nX: ")
        while client.is_silent():
            client.send(b"x")
            time.sleep(0.02)
        assert client.answer().status == 408


def test_an_idle_connection_is_closed_in_silence():
    with Server(idle=100) as server:
        with server.connect() as client:
            assert client.to_the_end() == b""
        with server.connect() as client:
            assert client.ask("/now").status == 200
            assert client.to_the_end() == b""
        assert not any(e.startswith("malformed") for e in server.so_far())


def test_a_busy_connection_is_not_idle():
    with Server(idle=200) as server, server.connect() as client:
        assert client.ask("/later?ms=1000").status == 200


def test_a_body_that_trickles_in_is_refused():
    with Server(rate=1000) as server, server.connect() as client, server.connect() as quick:
        client.send(request("/echo", "POST", "Content-Length: 100000\r\n"))
        quick.send(request("/echo", "POST", "Content-Length: 200000\r\n"))
        while client.is_silent():
            client.send(b"x")
            quick.send(b"x" * 300)
            time.sleep(0.1)
        assert client.answer().status == 408
        assert client.is_over()
        assert server.saw("broken").startswith("broken 408 ")
        assert quick.is_silent()


def test_a_client_that_takes_nothing_is_cut():
    with Server(send=200) as server:
        with server.connect(receive_buffer=4096) as client:
            client.send(request(f"/begin?size={100 * MIB}&length=1"))
            assert server.saw("closed").startswith("closed /begin")
        with server.connect(receive_buffer=4096) as client:
            client.send(request(f"/now?size={100 * MIB}&length=1"))
            wait_until(lambda: server.stats()[0] == 0)


@measures_memory
def test_idle_connections_cost_little():
    count = 2000
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with Server() as server:
        with server.connect() as client:
            client.ask("/now")
        _, before = server.stats()
        clients = [server.connect() for _ in range(count)]
        for client in clients:
            assert client.ask("/echo", "POST", b"x" * 2000).status == 200
        connections, after = server.stats()
        assert connections == count
        assert (after - before) * 1024 / count <= 4096
        for client in clients:
            client.close()


def test_no_more_than_the_most_connections_are_taken_and_the_rest_wait():
    with Server(connections=4) as server:
        clients = [server.connect() for _ in range(7)]
        for client in clients:
            client.send(request("/now"))
        for client in clients[:4]:
            assert client.answer().status == 200
        assert all(client.is_silent() for client in clients[4:])
        for gone, waiting in zip(clients, clients[4:]):
            gone.close()
            assert waiting.answer().status == 200
        for client in clients:
            client.close()
        wait_until(lambda: server.complaints)
        assert len(server.complaints) == 1 and '"connections_exhausted"' in server.complaints[0]


def test_running_out_of_descriptors_neither_spins_nor_drops():
    with Server() as server:
        first = server.connect()
        assert first.ask("/now").status == 200
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, hard))
        clients = [server.connect() for _ in range(10)]
        for client in clients:
            client.send(request("/now"))
        for client in clients[:3]:
            assert client.answer().status == 200
        wait_until(lambda: server.complaints)
        before = server.cpu_seconds()
        time.sleep(1)  # what is measured is work, not time
        assert server.cpu_seconds() - before < 0.2
        assert all(client.is_silent() for client in clients[3:])
        assert len(server.complaints) == 1 and "accept_failed" in server.complaints[0]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        for client in clients[3:]:
            assert client.answer().status == 200
            client.close()
        first.close()


def test_the_most_connections_stay_below_the_limit_of_descriptors():
    with Server(files=200) as server:
        clients = [server.connect() for _ in range(250)]
        for client in clients:
            client.send(request("/now"))
        for client in clients[:100]:
            assert client.answer().status == 200
        for client in clients:
            client.close()
        assert not any("accept_failed" in complaint for complaint in server.complaints)


def test_draining_finishes_what_is_there():
    with Server() as server:
        idle, busy, half, later = (server.connect() for _ in range(4))
        assert idle.ask("/now").status == 200
        busy.send(request("/later?ms=300"))
        half.send(request("/echo", "POST", "Content-Length: 4\r\n", b"ha"))
        later.send(b"GET /now HTTP/1.1\r\nHos")
        server.saw("request GET /later")
        server.saw("request POST /echo")
        fresh = server.connect()
        fresh.send(request("/now"))
        server.terminate()
        server.saw("draining")
        assert idle.is_over()
        later.send(b"t: a\r\n\r\n")
        half.send(b"lf")
        for client in (busy, half, later, fresh):
            answer = client.answer()
            assert answer.status == 200
            assert client is fresh or answer.get("Connection") == "close"
            assert client.is_over()
            client.close()
        server.saw("all gone")
        assert server.wait() == 0


def test_draining_an_empty_server_ends_at_once():
    with Server() as server:
        server.terminate()
        server.saw("all gone")
        assert server.wait() == 0


def test_clients_in_the_queue_of_a_closing_listener_are_served():
    with Server(connections=100) as server:
        server.process.send_signal(19)  # SIGSTOP: they connect and send, nobody accepts
        clients = [server.connect() for _ in range(300)]
        for client in clients:
            client.send(request("/now"))
        server.terminate()
        server.process.send_signal(18)
        for client in clients:
            assert client.answer().status == 200
            client.close()
        if SANITIZED:
            server.terminate()  # the thread sanitizer sometimes sits on a signal; a second one is harmless
        assert server.wait() == 0


def refused_start(*arguments):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 4
    return done.stderr


def test_an_address_in_use_is_refused_even_by_another_of_us(shared):
    assert "another process listens there" in refused_start(shared.addresses[0])


def test_an_address_in_use_with_reuseport_is_refused():
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert "another process listens there" in refused_start("127.0.0.1:%d" % other.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_address_among_those_of_this_process_is_called_that(host):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    every = {"127.0.0.1": "0.0.0.0", "0.0.0.0": "127.0.0.1"}[host]
    assert (f"can't listen on {host}:{port}: this process listens on {every}:{port} already"
            in refused_start(f"{every}:{port}", f"{host}:{port}"))


def test_workers_of_one_process_share_an_address(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % probe.getsockname()[1]
    path = f"unix:{tmp_path}/socket"
    with Server(address, address, path, path) as server:
        assert server.addresses == [address, address, path, path]
        for _ in range(20):
            for index in (0, 2):
                with server.connect(index) as client:
                    assert client.ask("/now").status == 200
    assert not os.path.exists(tmp_path / "socket")


def test_a_port_can_be_taken_again_at_once(shared):
    with Server() as server:
        address = server.addresses[0]
        with server.connect() as client:
            client.ask("/now", headers="Connection: close\r\n")
    with Server(address) as server, server.connect() as client:
        assert client.ask("/now").status == 200


def test_a_stale_socket_file_is_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(f"unix:{path}") as server, server.connect() as client:
        assert b"peer=unix: " in client.ask("/echo").body
        assert os.stat(path).st_mode & 0o777 == 0o660


def test_a_socket_file_in_use_is_refused_and_left(tmp_path):
    path = tmp_path / "socket"
    with Server(f"unix:{path}") as server:
        assert "another process listens there" in refused_start(f"unix:{path}")
        with server.connect() as client:
            assert client.ask("/now").status == 200


def test_a_file_that_is_no_socket_is_left(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    assert "can't listen on" in refused_start(f"unix:{path}")
    assert path.read_text() == "data"


@pytest.mark.parametrize("address", ["8080", "localhost:", "127.0.0.1:", "1.2.3.4:99999", "[::1:80", "unix:", "1.2:80"])
def test_what_is_no_address_is_refused(address):
    assert "is not an address like" in refused_start(address)
