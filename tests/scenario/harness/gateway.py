# SPDX-License-Identifier: Apache-2.0
"""The real `hapax` binary as a process, and a client for it. Whatever it writes to standard error is kept and shown
when a test fails; a sanitizer's report, a failed check or an unexpected exit fails the test that owns the process."""
import base64
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import textwrap
import threading
import time

from .faults import kernel_clock
from .waiting import HANG_S, eventually
from .wire import Connection, Pending, Response, fresh_key, pairs, request_bytes, wait_all_read

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXIT_CONFIG, EXIT_STORE, EXIT_ADDRESS, EXIT_BUG, EXIT_UNKNOWN = 2, 3, 4, 70, 75
REPORT = re.compile(r"(ERROR|WARNING): (Address|Leak|Thread|UndefinedBehavior|Memory)Sanitizer|runtime error:"
                    r"|hapax: bug:")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def binary():
    """The program under test: $HAPAX, else what `./dev build` makes."""
    path = pathlib.Path(os.environ.get("HAPAX") or ROOT / "build" / "src" / "hapax")
    if not path.is_file():
        raise FileNotFoundError(f"there is no hapax at {path}: run ./dev build, or set HAPAX")
    return path.resolve()


@functools.cache
def sanitized():
    """Whether the program carries a sanitizer, whose own memory would drown what a test measures."""
    data = binary().read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


def environment(extra=None):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HAPAX")}
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:exitcode=99:verify_asan_link_order=0")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:exitcode=99")
    env.setdefault("TSAN_OPTIONS", "exitcode=99:ignore_noninstrumented_modules=1:second_deadlock_stack=1")
    env.update(extra or {})
    return env


def hours_ahead(hours):
    """An environment in which the wall clock runs this far ahead, synchronised, and every other clock as it is."""
    if not os.path.exists(FAKETIME):
        raise FileNotFoundError(f"no {FAKETIME}: install the Debian package libfaketime")
    kernel = kernel_clock("/")
    return {**kernel, "LD_PRELOAD": f"{FAKETIME}:{kernel['LD_PRELOAD']}", "FAKETIME": f"{hours:+d}h",
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}


class WallClock:
    """Pass `env` to a gateway; `set_ahead` moves its wall clock while it runs, and no other clock of it."""

    def __init__(self, directory):
        self.file = pathlib.Path(directory) / "wall-clock"
        self.env = hours_ahead(0)
        del self.env["FAKETIME"]
        self.env["FAKETIME_TIMESTAMP_FILE"] = str(self.file)
        self._synchronised = self.file.with_name("synchronised")
        self.env["FAULT_SYNCHRONISED"] = str(self._synchronised)
        self.set_ahead(0)

    def synchronise(self):
        """From now on the kernel says that the clock is right."""
        self._synchronised.touch()

    def set_ahead(self, hours):
        """By that many hours of the true time; back, where it is negative."""
        new = self.file.with_name("wall-clock.new")
        new.write_text(f"{hours:+d}h\n", encoding="ascii")
        new.replace(self.file)  # at once: a program never reads half of it

    def seen(self):
        """The seconds since 1970 that a program with this clock reads."""
        return int(subprocess.run(["date", "+%s"], env={**os.environ, **self.env}, check=True, capture_output=True,
                                  text=True).stdout)


def with_small_journal(config):
    """The same configuration where it says nothing of the store's size, and a journal that writes its files in advance
    16 MiB at a time instead of 64, which would be most of the work of a start."""
    if re.search(r"^(store_max:|\{)", config, re.M):
        return config
    return f"{config}\nstore_max: 128MiB\n"


def quick_retries(**options):
    """A configuration whose defaults try again after hundredths of a second, with further options of a route."""
    options = {"retry": "{base: 10ms, cap: 40ms}", **options}
    return "defaults:\n" + "".join(f"  {name}: {value}\n" for name, value in options.items())


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(token):
    return f"Bearer {token}"


def jwt(claims, signature="sig"):
    """A JSON Web Token with a signature that is not checked."""
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
    return bearer(f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{signature}")


def directory_hash(directory):
    """One digest over every name, mode, size and byte below a directory."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(directory).rglob("*")):
        status = path.lstat()
        digest.update(f"{path.relative_to(directory)}\0{status.st_mode:o}\0{status.st_size}\0".encode())
        if path.is_file():
            with open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    return digest.hexdigest()


class Log:
    """Standard error of one process, line by line, as it comes."""

    def __init__(self, stream, echo_to):
        self.lines = echo_to
        self.changed = threading.Condition()
        self.ended = False
        self.first = len(self.lines)
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _find(self, event):
        for line in self.lines[self.first:]:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("event") == event:
                    return record
            words = re.match(r"\S+ (?:debug|info|warn|error)  (\S+)(.*)", line)  # the readable form of --dev
            if words and words[1] == event:
                return dict(re.findall(r'(\w+)="?([^\s"]*)"?', words[2]))
        return None

    def wait_event(self, event):
        """The first line of an event, or None if the process ended without one."""
        with self.changed:
            found = self.changed.wait_for(lambda: self._find(event) or self.ended, timeout=HANG_S)
            assert found, f"no event {event!r} within {HANG_S:.0f} s"
            return self._find(event)


class Gateway:
    """`hapax serve`, started, and restarted at will on one store."""

    def __init__(self, upstream, directory, config=None, workers=1, flags=(), env=None, listen="127.0.0.1:0",
                 store=None, flags_only=False):
        self.directory = pathlib.Path(directory)
        self.store = self.directory / "store"
        self.store_url = store or f"journal:{self.store}"
        self.upstream_url = upstream if upstream is None or isinstance(upstream, str) else upstream.url
        self.config = None
        if not flags_only:
            self.config = self.directory / "hapax.yaml"
            text = textwrap.dedent(config or "")
            small = with_small_journal(text) if self.store_url.startswith("journal:") else text
            self.config.write_text(small, encoding="utf-8")
        self.workers = workers
        self.flags = list(flags)
        self.env = dict(env or {})
        self.listen = listen
        self.output = []
        self.process = None
        self.log = None
        self.address = None
        self.connections = []
        self.expected_exits = set()

    def command(self):
        words = [str(binary()), "serve", "--listen", self.listen, "--store", self.store_url,
                 "--workers", str(self.workers)]
        words += ["--upstream", self.upstream_url] if self.upstream_url else []  # none: the configuration says which
        return words + (["--config", str(self.config)] if self.config else []) + self.flags

    def start(self, env=None, **popen):
        assert self.process is None or self.process.poll() is not None, "the gateway is already running"
        self.output.append(f"$ {' '.join(self.command())}")
        place = {"STATE_DIRECTORY": str(self.directory / "state")}  # and not what this machine's own gateway has
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=environment({**place, **self.env, **(env or {})}),
                                        **popen)
        self.log = Log(self.process.stderr, self.output)
        listening = self.log.wait_event("listening")
        assert listening, f"the gateway ended with {self.process.wait()} before it listened:\n{self.shown_output()}"
        host, _, port = listening["address"].rpartition(":")
        self.address = (host.strip("[]"), int(port))
        return self

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and its end awaited."""
        self.expected_exits.add(-signal.SIGKILL)
        self.process.kill()
        self.wait_exit()

    def terminate(self):
        """SIGTERM; drains. Use wait_exit for its end."""
        self.signal(signal.SIGTERM)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def wait_exit(self):
        self.log.thread.join(timeout=HANG_S)  # ends with the process, at once; wait() below looks every so often
        return self.process.wait(timeout=HANG_S)

    def restart(self, how="kill", env=None):
        """Ends the process by `kill` (SIGKILL) or `drain` (SIGTERM) and starts it again on the same store."""
        if how == "kill":
            self.kill()
        else:
            self.terminate()
            assert self.wait_exit() == 0, self.shown_output()
        return self.start(env=env)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def shown_output(self, lines=200):
        return "\n".join(self.output[-lines:])

    def events(self, event):
        """The lines of the log about an event so far."""
        found = []
        for line in list(self.output):
            if line.startswith("{"):
                record = json.loads(line)
                if record.get("event") == event:
                    found.append(record)
        return found

    def wait_events(self, event, count=1):
        return eventually(lambda: self.events(event) if len(self.events(event)) >= count else None,
                          f"{count} lines about {event} in the log")

    def counts(self, of="workers"):
        """What the workers have counted since the start, or the store, as the admin socket tells it."""
        with Connection(str(self.store / "admin.sock"), socket.AF_UNIX) as connection:
            return connection.request("GET", "/v1/counts").json()[of]

    def wait_waiting(self, count):
        """Returns once that many requests wait in this process for an operation that is under way."""
        eventually(lambda: self.counts("store")["waiters"] >= count, f"{count} requests that wait")

    def finish(self):
        """Ends the process in good order and complains about anything that wasn't."""
        for connection in self.connections:
            connection.close()
        if self.is_running():
            self.signal(signal.SIGCONT)
            self.terminate()
            try:
                self.wait_exit()
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGABRT)
                self.process.wait()
                raise AssertionError(f"the gateway did not end {HANG_S:.0f} s after SIGTERM") from None
        shutil.rmtree(self.store, ignore_errors=True)
        report = [line for line in self.output if REPORT.search(line)]
        assert not report, f"the gateway reported: {report[0]}\n{self.shown_output()}"
        if self.process is not None:
            code = self.process.returncode
            assert code == 0 or code in self.expected_exits, f"the gateway ended with {code}:\n{self.shown_output()}"

    def _memory(self, field):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(re.search(rf"^{field}:\s+(\d+) kB", status.read(), re.M)[1]) * 1024

    def rss_bytes(self):
        return self._memory("VmRSS")

    def peak_rss_bytes(self):
        return self._memory("VmHWM")

    def connect(self):
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        connection = Connection(self.address, family)
        self.connections.append(connection)
        return connection

    @staticmethod
    def _fields(key, auth, json_body, headers):
        given = pairs(headers)
        names = {name.lower() for name, _ in given}
        fields = [("Idempotency-Key", key)] if key is not None else []
        fields += [("Authorization", auth)] if auth is not None else []
        if json_body is not None and "content-type" not in names:
            fields.append(("Content-Type", "application/json"))
        return fields + given

    def send(self, method, target, key=None, json=None, body=None, headers=(), auth=None):
        """Sends on a connection of its own; the answer is read when somebody looks at it."""
        fields = self._fields(key, auth, json, headers)
        connection = self.connect()
        connection.send(request_bytes(method, target, fields, json if json is not None else body))
        return Pending(connection, method, keep_open=False)

    def request(self, method, target, **what) -> Response:
        return self.send(method, target, **what).response

    def get(self, target, **what):
        return self.request("GET", target, **what)

    def post(self, target, **what):
        return self.request("POST", target, **what)

    def post_later(self, target, **what):
        """Sends, and returns once the request waits inside the gateway."""
        return self.wait_inside([self.send("POST", target, **what)])[0]

    def post_together(self, target, key, times, **what):
        """That many requests with one key on that many connections, all of them inside the gateway on return."""
        return self.wait_inside([self.send("POST", target, key=key, **what) for _ in range(times)])

    def wait_inside(self, pendings):
        """Returns once these were read, and the gateway is at rest: whatever they wait for by then, they wait for it.
        One that has more to do than these is not waited for long."""
        wait_all_read(pendings)
        for _ in range(500):  # on a machine that is busy with other things it may have to wait for its turn
            before = self._threads()
            if all(state in "ST" for state, _ in before.values()) and self._threads() == before:
                break
            time.sleep(0.001)
        return pendings

    def _threads(self):
        """Of each thread, whether it runs, and how often it stopped running."""
        seen = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                text = (task / "status").read_text(encoding="ascii")
                seen[task.name] = re.search(r"^State:\s+(\w)", text, re.M)[1], re.findall(r"_switches:\s+(\d+)", text)
        return seen

    def raw(self, data, method="POST"):
        """Exactly these bytes on a new connection; the first answer."""
        connection = self.connect()
        connection.send(data)
        return connection.receive(method)

    def wait_serving(self):
        """Returns once a request goes through to the upstream."""
        eventually(lambda: self.get("/up").status == 200, "the gateway serving")


class Run:
    """A command run to its end."""

    def __init__(self, words, env=None, **popen):
        self.words = [str(word) for word in words]
        try:
            result = subprocess.run([str(binary()), *self.words], stdin=subprocess.DEVNULL, capture_output=True,
                                    timeout=HANG_S, env=environment(env), check=False, **popen)
        except subprocess.TimeoutExpired as still_running:
            said = (still_running.stderr or b"").decode("utf-8", "replace")
            raise AssertionError(f"hapax {' '.join(self.words)} should have ended, but runs on:\n{said}") from None
        self.code = result.returncode
        self.stdout = result.stdout.decode("utf-8", "replace")
        self.stderr = result.stderr.decode("utf-8", "replace")
        assert not REPORT.search(self.stderr) and self.code not in (EXIT_BUG, 99), self

    def __repr__(self):
        return f"$ hapax {' '.join(self.words)}\nexit {self.code}\n{self.stdout}{self.stderr}"


__all__ = ["Gateway", "Run", "WallClock", "basic", "bearer", "binary", "directory_hash", "fresh_key", "hours_ahead",
           "jwt", "quick_retries", "sanitized", "EXIT_ADDRESS", "EXIT_BUG", "EXIT_CONFIG", "EXIT_STORE",
           "EXIT_UNKNOWN"]
