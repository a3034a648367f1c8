# SPDX-License-Identifier: Apache-2.0
"""Hapax for Python: work that must happen once. One file, the standard library only; copy it, or put it on the path.

    import hapax

    daemon = hapax.Hapax("http://127.0.0.1:8081", token)
    done = daemon.once("refund-order-17", lambda work: refund(order), name="refund", input={"order": 17})
    done.result, done.is_retry, done.original_timestamp

    answer = hapax.Sender("/var/lib/shop/intents").send("POST", url, {"amount": 500}, operation="refund-order-17")

`once` runs a function once for a key, whatever process or machine calls it, and gives everybody the same result (see
docs/guide/operations.md). `Sender.send` is a careful HTTP client: key and request are on disk before the first attempt,
and a later call for the same operation goes on with the same key.
"""
import contextlib
import dataclasses
import datetime
import email.utils
import fcntl
import hashlib
import http.client
import json
import os
import pathlib
import random
import socket
import threading
import time
import typing
import urllib.error
import urllib.parse
import urllib.request
import uuid

__all__ = ["Done", "Exhausted", "Failed", "Fenced", "Hapax", "HapaxError", "InFlight", "Mismatch", "NotDone",
           "Response", "Sender", "Unknown"]


class HapaxError(Exception):
    """Something that Hapax, or a server, said no to."""

    def __init__(self, message, code=None, status=None, detail=None):
        super().__init__(message)
        self.code, self.status, self.detail = code, status, detail


class Mismatch(HapaxError):
    """The key, or the name of the operation, was used for something else."""


class InFlight(HapaxError):
    """Somebody else is still at it."""


class Unknown(HapaxError):
    """It may have been done. Don't try again with a new key."""


class Exhausted(HapaxError):
    """It was not done, and there are no attempts left; a later call may go on."""


class Fenced(HapaxError):
    """Another claimant has the operation, or it has ended otherwise: undo what you did, if it is not that."""


class Failed(HapaxError):
    """Raise it inside `once`: it failed for good, and every later call raises it again. `detail` is any JSON."""

    def __init__(self, detail=None):
        super().__init__(f"the operation failed: {detail}", detail=detail)


class NotDone(HapaxError):
    """Raise it inside `once`: nothing was done, and the next call may try again."""


@dataclasses.dataclass
class Done:
    result: typing.Any
    is_retry: bool
    original_timestamp: datetime.datetime


class Work:
    """What a function that runs inside `once` may use."""

    def __init__(self, daemon, claimed):
        self._daemon = daemon
        self.id, self.epoch, self.attempt = claimed["id"], claimed["epoch"], claimed["attempt"]
        self.checkpoints = claimed["checkpoints"]
        self.cancel_reason = None
        self.is_lost = False  # another claimant has it: stop

    @property
    def fencing_token(self):
        """Grows with each claim: what the work writes to can refuse an older one."""
        return self.epoch

    def checkpoint(self, name, value):
        """Keeps a partial result; if this process dies, the next claimant finds it in `checkpoints`."""
        self.checkpoints[name] = value
        self._daemon.call("checkpoint", id=self.id, epoch=self.epoch, name=name, value=value)


class Hapax:
    """The operations API of a daemon."""

    def __init__(self, url, token, *, timeout=40, attempts=5):
        self.url, self.token, self.timeout, self.attempts = url.rstrip("/"), token, timeout, attempts

    def call(self, verb, **body):
        """One request, repeated while the daemon can't be reached or says that it can't do it now. All of them may be
        repeated: that is what the claimant and the epoch are for."""
        request = urllib.request.Request(
            f"{self.url}/v1/operations/{verb}", json.dumps(body).encode(), method="POST",
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        for attempt in range(self.attempts):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refused:
                with refused:
                    problem = _json(refused.read())
                if refused.code < 500 or attempt + 1 == self.attempts:
                    raise _error(refused.code, problem) from None
            except (OSError, http.client.HTTPException) as broken:
                if attempt + 1 == self.attempts:
                    raise Unknown(f"the daemon can't be reached: {broken}") from broken
            time.sleep(random.uniform(0.1, 0.2) * 2 ** attempt)
        raise AssertionError("not reached")

    def once(self, key, function, *, name="", input=None, lifetime="24h", lease=60, wait=30, repeats_safely=False,
             on_error="unknown", claimant=None):
        """Runs function(work) once for the key. Whoever comes later, or meanwhile, gets its result, which must be JSON.

        The function raises Failed (kept, and raised for everybody) or NotDone (the next call runs it). What becomes of
        the operation after any other exception is `on_error`: "unknown" (nobody runs it again before somebody has
        looked), "release" (the function has undone what it did) or "fail"."""
        body = {"key": key, "name": name, "claimant": claimant or str(uuid.uuid4()), "lease": f"{lease}s",
                "repeats_safely": repeats_safely, **({} if input is None else {"input": input})}
        until = time.monotonic() + wait
        while True:
            try:
                left = max(1, min(30_000, int(1000 * (until - time.monotonic()))))
                claimed = self.call("claim", **body, wait=f"{left}ms")
                break
            except InFlight:
                if time.monotonic() >= until:
                    raise
        if claimed["state"] == "completed":
            return _done(claimed)
        if claimed["state"] == "failed":
            raise Failed(claimed.get("error"))
        if claimed["state"] == "unknown":
            raise Unknown(f"the lease of {key} has lapsed, and it may have been done", "outcome_unknown")
        return self._run(claimed, function, lifetime, lease, on_error)

    def _run(self, claimed, function, lifetime, lease, on_error):
        work, stop = Work(self, claimed), threading.Event()
        renewal = threading.Thread(target=self._renew, args=(work, lease, stop), daemon=True)
        renewal.start()
        name = {"id": work.id, "epoch": work.epoch}
        try:
            result = function(work)
        except Failed as failed:
            self.call("fail", **name, error=failed.detail, lifetime=lifetime)
            raise
        except NotDone:
            self.call("release", **name, reason="not done")
            raise
        except BaseException as error:
            if on_error == "release":
                self.call("release", **name, reason=repr(error)[:200])
            elif on_error == "fail":
                self.call("fail", **name, error=repr(error), lifetime=lifetime)
            raise
        finally:
            stop.set()
            renewal.join()
        return _done(self.call("complete", **name, result=result, lifetime=lifetime), is_retry=False)

    def _renew(self, work, lease, stop):
        while not stop.wait(lease / 3):
            try:
                work.cancel_reason = self.call("renew", id=work.id, epoch=work.epoch, lease=f"{lease}s").get(
                    "cancel_reason")
            except Unknown:
                continue  # the daemon is away: the lease may last
            except HapaxError:
                work.is_lost = True
                return

    def find(self, key, *, name="", wait=0):
        """Did it go through? The state of an operation, or None."""
        try:
            return self.call("find", key=key, name=name, **({"wait": f"{wait}s"} if wait else {}))
        except HapaxError as error:
            if error.status == 404:
                return None
            raise


@dataclasses.dataclass
class Response:
    status: int
    body: bytes
    replayed: bool
    original_time: str
    outcome: str = "done"  # or "refused"; "done" also where the response can't be shown again

    def json(self):
        return json.loads(self.body)


@dataclasses.dataclass
class Retries:
    attempts: int
    total: float
    base: float
    cap: float


# Retries by class, in seconds: `hapax send --class` has the same.
CLASSES = {"user": Retries(4, 10, 0.1, 2), "background": Retries(6, 300, 4, 64), "scheduled": Retries(4, 3600, 60, 900)}

# What an error of a Hapax gateway means; docs/guide/send.md has the table. Whether it holds although an earlier attempt
# may have been executed.
ACTIONS = {
    "VALIDATION.idempotency_key_missing": ("refused", False), "VALIDATION.idempotency_key_invalid": ("refused", False),
    "VALIDATION.request_malformed": ("refused", False), "VALIDATION.body_too_large": ("refused", False),
    "AUTH.principal_missing": ("refused", False), "AUTH.token_invalid": ("refused", False),
    "AUTH.replay_not_authorized": ("unknown", True), "CONFLICT.idempotency.payload_mismatch": ("refused", True),
    "CONFLICT.idempotency.duplicate_rejected": ("done", True), "CONFLICT.idempotency.failed_before": ("refused", True),
    "CONFLICT.idempotency.in_flight": ("again", False), "CONFLICT.idempotency.outcome_unknown": ("again", False),
    "CONFLICT.idempotency.response_not_retained": ("done", True), "CONFLICT.idempotency.expired": ("unknown", True),
    "RATE_LIMIT.exceeded": ("again", False), "DEPENDENCY.unavailable": ("again", False),
    "DEPENDENCY.timeout": ("again", False), "TRANSIENT.request_timeout": ("again", False),
    "TRANSIENT.overloaded": ("again", False), "PROVIDER.duplicate": ("done", True),
}


def _judge(method, response, was_in_doubt):
    """What a response means: "again", "done", "refused" or "unknown"; whether that is certain; whether the request may
    have been executed."""
    status, said = response.status, response.headers.get("Idempotency-Status", "")
    problem = _json(response.content)
    action = ACTIONS.get(response.headers.get("Error-Code") or problem.get("error_code", ""))
    if action:
        return (*action, said == "unknown" or status == 409)
    is_final = said in ("stored", "replayed")
    asks_again = status == 409 and problem.get("retryable") is True
    if not is_final and (status in (408, 429) or 500 <= status < 600 or asks_again):
        not_done = status in (408, 429) or status == 503 and "Retry-After" in response.headers or said == "released"
        return "again", False, not not_done
    is_gone = status in (404, 410) and method == "DELETE" and was_in_doubt
    if 200 <= status < 300 or status == 303 or is_gone:
        return "done", True, True
    return "refused", is_final, False


def _retry_after(response):
    """How many seconds the server asks to wait, by a number or a date; None: it doesn't say."""
    text = response.headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _expiry(response):
    with contextlib.suppress(ValueError):
        text = response.headers.get("Idempotency-Expires", "")
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    return 0


class Sender:
    """A careful HTTP client. Each operation is a private file in the folder: what is to be sent, then its outcome."""

    def __init__(self, folder, *, retries="user", attempts=None, base=None, timeout=30, budget=None,
                 key_lifetime=23 * 3600, sleep=time.sleep):
        """`retries` is a class: "user", "background" or "scheduled"; `attempts` and `base` replace parts of it.
        `timeout` is for each attempt, and `budget` for all of them: the server is told what is left, as
        X-Request-Timeout."""
        self.folder = pathlib.Path(folder)
        limits = CLASSES[retries]
        self.limits = dataclasses.replace(limits, attempts=attempts or limits.attempts, base=base or limits.base)
        self.timeout, self.budget, self.key_lifetime, self.sleep = timeout, budget, key_lifetime, sleep
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def send(self, method, url, body=None, *, operation, headers=None):
        """Sends it once, whatever happens: a call that was interrupted is continued by the next one for the same
        operation, with the same key, and once it has ended every call gets the first response. Returns the response
        when it was done or refused; raises Unknown when it may have been done, Exhausted when it was not, and Mismatch
        when the name was used for another request. The headers, which may be credentials, are not written down."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        wanted = {"method": method, "url": url, "digest": hashlib.sha256(data).hexdigest()}
        with self._open(operation) as intent:
            if intent.told is None:
                intent.told = {"operation": operation, "key": str(uuid.uuid4()), "in_doubt": False, "first_at": 0,
                               "ends_at": 0, "body": data.decode("latin-1"), **wanted}
                intent.write()
            for part, value in wanted.items():
                if intent.told[part] != value:
                    raise Mismatch(f"{operation} was used for a request with another "
                                   f"{'body' if part == 'digest' else part}; nothing was sent")
            return self._finish(intent, headers)

    def resume(self, operation, *, headers=None):
        """Goes on with an operation that has not ended, as it was written down. The headers are the caller's again."""
        with self._open(operation) as intent:
            if intent.told is None:
                raise HapaxError(f"nothing is known of {operation}")
            return self._finish(intent, headers)

    def unfinished(self):
        """The operations that have not ended: to be resumed when a process starts."""
        told = [_Intent(path).told for path in sorted(self.folder.glob("*.json"))]
        return [one["operation"] for one in told if one and "outcome" not in one]

    def status(self, operation):
        """ "done", "refused", "unknown", "not sent", or None where nothing is known of it."""
        told = _Intent(self._path(operation)).told
        if told is None:
            return None
        return told["outcome"]["outcome"] if "outcome" in told else "unknown" if told["in_doubt"] else "not sent"

    def forget(self, operation):
        """Removes an operation: its name may be used again, for something else."""
        with self._open(operation):
            self._path(operation).unlink(missing_ok=True)

    def _path(self, operation):
        return self.folder / f"{hashlib.sha256(operation.encode()).hexdigest()[:32]}.json"

    @contextlib.contextmanager
    def _open(self, operation):
        path = self._path(operation)
        with open(path.with_suffix(".lock"), "w", opener=_private) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InFlight(f"another process is sending {operation}") from None
            yield _Intent(path)

    def _finish(self, intent, headers):
        if "outcome" in intent.told:
            return Response(**{**intent.told["outcome"], "body": intent.told["outcome"]["body"].encode("latin-1")})
        began, slept, limits = time.monotonic(), 0.0, self.limits
        total = min(limits.total, self.budget or limits.total)
        for attempt in range(1, limits.attempts + 1):
            left = None if self.budget is None else max(0.001, self.budget - (time.monotonic() - began))
            response, why, asked, at_once = self._try(intent, headers or {}, left)
            if response:
                return response
            delay = 0 if at_once else min(limits.cap, limits.base * 2 ** (attempt - 1) * random.uniform(1, 2))
            if asked is not None:
                delay = max(delay, asked * random.uniform(1, 1.1) + 0.001)
            if attempt == limits.attempts or max(slept, time.monotonic() - began) + delay > total:
                break
            self._check_key(intent.told, delay)
            self.sleep(delay)
            slept += delay
        if intent.told["in_doubt"]:
            raise Unknown(f"it may have been done ({why}); call again for the same operation, never with a new key")
        raise Exhausted(f"it was not done: {why}")

    def _try(self, intent, headers, left):
        """One attempt: the response if it was the last one, else why there should be another, after how long, and
        whether at once."""
        told, response = intent.told, None
        self._check_key(told, 0)
        was_in_doubt = told["in_doubt"]
        told.update(first_at=told["first_at"] or time.time(), in_doubt=True)
        intent.write()  # before the first byte: if this process dies now, it may have been done
        try:
            response = self._exchange(told, headers, left)
        except (ConnectionRefusedError, socket.gaierror) as refused:
            why, told["in_doubt"] = refused, was_in_doubt
        except (OSError, http.client.HTTPException) as broken:
            why = broken
        if response is None:
            intent.write()
            return None, why, None, False
        verdict, is_certain, may_have_happened = _judge(told["method"], response, was_in_doubt)
        why = f"{response.status} {response.headers.get('Error-Code', '')}".strip()
        told["ends_at"] = _expiry(response) or told["ends_at"]
        if verdict != "again":
            return self._end(intent, response, verdict, is_certain, was_in_doubt), why, None, False
        told["in_doubt"] = was_in_doubt or may_have_happened
        intent.write()
        return None, why, _retry_after(response), response.status == 408

    def _exchange(self, told, headers, left):
        parts = urllib.parse.urlsplit(told["url"])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=min(self.timeout, left or self.timeout))
        limit = {} if left is None else {"X-Request-Timeout": f"{max(1, int(1000 * left))}ms"}
        try:
            connection.request(told["method"], f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}",
                               told["body"].encode("latin-1"),
                               {"Content-Type": "application/json", **headers, **limit, "Idempotency-Key": told["key"]})
            response = connection.getresponse()
            response.content = response.read()
        finally:
            connection.close()
        return response

    def _end(self, intent, response, verdict, is_certain, was_in_doubt):
        """That this attempt was refused says nothing of an earlier one which may have been executed; and after 401 and
        403 the same operation may go on with other credentials."""
        if verdict == "unknown" or verdict == "refused" and was_in_doubt and not is_certain:
            raise Unknown(f"it may have been done, and the server says {response.status}",
                          response.headers.get("Error-Code"), response.status, _json(response.content))
        outcome = {"status": response.status, "body": response.content.decode("latin-1"),
                   "replayed": response.headers.get("Idempotent-Replayed") == "true",
                   "original_time": response.headers.get("Original-Request-Time") or "", "outcome": verdict}
        intent.told["in_doubt"] = False
        if response.status not in (401, 403) or is_certain:
            intent.told = {**{name: value for name, value in intent.told.items() if name != "body"}, "outcome": outcome}
        intent.write()
        return Response(**{**outcome, "body": response.content})

    def _check_key(self, told, delay):
        ends = told["ends_at"] or told["first_at"] + self.key_lifetime
        if told["first_at"] and time.time() + delay >= ends:
            raise Unknown("the server may have forgotten the key: find out there whether it was done")


class _Intent:
    """What is written down of an operation; `told` is None where nothing is."""

    def __init__(self, path):
        self.path, self.told = path, None
        with contextlib.suppress(FileNotFoundError):
            text = path.read_text(encoding="utf-8")
            self.told = _json(text)
            if "key" not in self.told or "url" not in self.told:
                raise HapaxError(f"{path} can't be read; nothing was sent")

    def write(self):
        """Replaces the file in one step, and syncs it and its name."""
        aside = self.path.with_suffix(".new")
        with open(aside, "w", encoding="utf-8", opener=_private) as file:
            json.dump(self.told, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _private(path, flags):
    return os.open(path, flags, 0o600)


def _json(text):
    """An object; an empty one where it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _error(status, problem):
    code = problem.get("error_code", "")
    kind = {"CONFLICT.idempotency.in_flight": InFlight, "CONFLICT.idempotency.outcome_unknown": Unknown,
            "CONFLICT.idempotency.payload_mismatch": Mismatch, "CONFLICT.operation.fenced": Fenced,
            "DEPENDENCY.unavailable": Unknown}.get(code, HapaxError)
    return kind(f"{problem.get('title', 'the daemon refused it')} ({status}). {problem.get('hint', '')}", code, status,
                problem)


def _done(answer, is_retry=None):
    at = datetime.datetime.fromisoformat(answer["original_time"].replace("Z", "+00:00"))
    return Done(answer.get("result"), answer["is_retry"] if is_retry is None else is_retry, at)
