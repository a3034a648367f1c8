# SPDX-License-Identifier: Apache-2.0
"""The parts of a scenario: a fake upstream that counts effects, the real gateway as a process, and a client
that sees every byte."""
from .answers import (Deduplicating, Stream, Zeros, answer, answer_raw, answer_unread, chunked, drop_after_effect,
                      echo_after_upgrade, in_turn, interim, never_answer, numbered, reset_before_reading, sink,
                      until_close)
from .api import SCOPES, Api
from .faults import BrokenDisk, SlowDisk, killed_at_change, killed_at_step, killed_at_sync, without_tmpfile
from .gateway import (EXIT_ADDRESS, EXIT_CONFIG, EXIT_STORE, EXIT_UNKNOWN, Gateway, Run, WallClock, basic, bearer,
                      binary, directory_hash, hours_ahead, jwt, quick_retries, sanitized)
from .hooks import Following, Hooks, envelope, is_signed
from .listening import Listening
from .places import fill, free_port
from .upstream import Upstream, unix_socket_path
from .waiting import HANG_S, eventually, in_time
from .wire import (Connection, Disconnected, Pending, Response, chunk, cpu_seconds, fresh_key, lasting, quoted,
                   raise_open_files, request_bytes, wait_all_read)

__all__ = [
    "Api", "BrokenDisk", "Connection", "Deduplicating", "Disconnected", "EXIT_ADDRESS", "EXIT_CONFIG", "EXIT_STORE",
    "EXIT_UNKNOWN", "Following", "Gateway", "HANG_S", "Hooks", "Listening", "Pending", "Response", "Run", "SCOPES",
    "SlowDisk", "Stream", "Upstream", "WallClock", "Zeros", "answer", "answer_raw", "answer_unread", "basic",
    "bearer", "binary", "chunk", "chunked", "cpu_seconds", "directory_hash", "drop_after_effect",
    "echo_after_upgrade", "envelope", "eventually", "fill", "free_port", "fresh_key", "hours_ahead", "in_time",
    "in_turn", "interim", "is_signed", "jwt", "killed_at_change", "killed_at_step", "killed_at_sync", "lasting",
    "never_answer", "numbered", "quick_retries", "quoted", "raise_open_files", "request_bytes",
    "reset_before_reading", "sanitized", "sink", "unix_socket_path", "until_close", "wait_all_read",
    "without_tmpfile",
]
