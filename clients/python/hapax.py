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
import fcntl
import hashlib
import http.client
import json
import os
import pathlib
import random
import threading
import time
import typing
import urllib.error
import urllib.parse
import urllib.request
import uuid

__all__ = ["Done", "Failed", "Hapax", "HapaxError", "InFlight", "Mismatch", "NotDone", "Response", "Sender", "Unknown"]

RETRIED = {408, 429, 500, 502, 503, 504}


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
                left = max(0, min(30, int(until - time.monotonic())))
                claimed = self.call("claim", **body, **({"wait": f"{left}s"} if left else {}))
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

    def json(self):
        return json.loads(self.body)


class Sender:
    """A careful HTTP client. Each operation is a private file in the folder: what is to be sent, then its outcome."""

    def __init__(self, folder, *, attempts=4, base=0.1, cap=2.0, timeout=30, key_lifetime=23 * 3600):
        self.folder = pathlib.Path(folder)
        self.attempts, self.base, self.cap, self.timeout = attempts, base, cap, timeout
        self.key_lifetime = key_lifetime
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def send(self, method, url, body=None, *, operation, headers=None):
        """Sends it once, whatever happens: a call that was interrupted is continued by the next one for the same
        operation, with the same key. Raises Unknown when it may have been done, and HapaxError when it was not. The
        headers, which may have credentials in them, are not written down."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        wanted = {"method": method, "url": url, "body": hashlib.sha256(data).hexdigest()}
        with self._open(operation, wanted) as intent:
            if "outcome" in intent.told:
                return Response(body=intent.told["outcome"].pop("body").encode("latin-1"), **intent.told["outcome"])
            return self._attempt(intent, data, headers or {})

    def status(self, operation):
        """ "done", "unknown", "not sent", or None where nothing is known of it."""
        try:
            told = json.loads(self._path(operation).read_text())
        except FileNotFoundError:
            return None
        return "done" if "outcome" in told else "unknown" if told["in_doubt"] else "not sent"

    def _path(self, operation):
        return self.folder / f"{hashlib.sha256(operation.encode()).hexdigest()[:32]}.json"

    @contextlib.contextmanager
    def _open(self, operation, wanted):
        path = self._path(operation)
        with open(path.with_suffix(".lock"), "w", opener=_private) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InFlight(f"another process is sending {operation}") from None
            intent = _Intent(path)
            if path.exists():
                intent.told = json.loads(path.read_text())
                for part, value in wanted.items():
                    if intent.told[part] != value:
                        raise Mismatch(f"{operation} was used for a request with another {part}; nothing was sent")
            else:
                intent.told = {"operation": operation, "key": str(uuid.uuid4()), "in_doubt": False, "first_at": 0,
                               **wanted}
                intent.write()
            yield intent

    def _attempt(self, intent, data, headers):
        told, why = intent.told, None
        for attempt in range(self.attempts):
            now = time.time()
            if told["first_at"] and now > told["first_at"] + self.key_lifetime:
                raise Unknown("the server may have forgotten the key: find out there whether it was done")
            was_in_doubt = told["in_doubt"]
            told.update(first_at=told["first_at"] or now, in_doubt=True)
            intent.write()  # before the first byte: if this process dies now, it may have been done
            delay = min(self.cap, self.base * 2 ** attempt) * random.uniform(1, 2)
            try:
                response, final = self._exchange(told, data, headers)
            except ConnectionRefusedError as refused:
                why, response = refused, None
                told["in_doubt"] = was_in_doubt
            except (OSError, http.client.HTTPException) as broken:
                why, response = broken, None
            if response is not None:
                after = response.headers.get("Retry-After", "")
                not_done = response.status in (408, 429) or response.status == 503 and after
                if final or response.status not in RETRIED:
                    return self._end(intent, response, was_in_doubt and not final)
                told["in_doubt"] = was_in_doubt or not not_done
                delay = max(delay, float(after) if after.isdigit() else 0)
                why = f"{response.status}"
            intent.write()
            if attempt + 1 < self.attempts:
                time.sleep(delay)
        if told["in_doubt"]:
            raise Unknown(f"it may have been done ({why}); call again for the same operation, never with a new key")
        raise HapaxError(f"it was not done: {why}")

    def _exchange(self, told, data, headers):
        parts = urllib.parse.urlsplit(told["url"])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=self.timeout)
        try:
            connection.request(told["method"], f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", data,
                               {"Content-Type": "application/json", **headers, "Idempotency-Key": told["key"]})
            response = connection.getresponse()
            response.content = response.read()
        finally:
            connection.close()
        return response, response.headers.get("Idempotency-Status") in ("stored", "replayed")

    def _end(self, intent, response, was_in_doubt):
        ok = 200 <= response.status < 300
        if not ok and was_in_doubt:  # that this attempt was refused says nothing of an earlier one
            raise Unknown(f"refused with {response.status}, but an earlier attempt may have been done",
                          response.headers.get("Error-Code"), response.status)
        outcome = {"status": response.status, "body": response.content.decode("latin-1"),
                   "replayed": response.headers.get("Idempotent-Replayed") == "true",
                   "original_time": response.headers.get("Original-Request-Time") or ""}
        intent.told = {**intent.told, "in_doubt": False, "outcome": outcome}
        intent.write()
        return Response(outcome["status"], response.content, outcome["replayed"], outcome["original_time"])


class _Intent:
    def __init__(self, path):
        self.path, self.told = path, None

    def write(self):
        """Replaces the file in one step, and syncs it and its name."""
        aside = self.path.with_suffix(".new")
        with open(aside, "w", opener=_private) as file:
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
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _error(status, problem):
    code = problem.get("error_code", "")
    kind = {"CONFLICT.idempotency.in_flight": InFlight, "CONFLICT.idempotency.outcome_unknown": Unknown,
            "CONFLICT.idempotency.payload_mismatch": Mismatch, "DEPENDENCY.unavailable": Unknown}.get(code, HapaxError)
    return kind(f"{problem.get('title', 'the daemon refused it')} ({status}). {problem.get('hint', '')}", code, status,
                problem)


def _done(answer, is_retry=None):
    at = datetime.datetime.fromisoformat(answer["original_time"].replace("Z", "+00:00"))
    return Done(answer.get("result"), answer["is_retry"] if is_retry is None else is_retry, at)
