# SPDX-License-Identifier: Apache-2.0
"""Defences against the use of a bug in memory handling, in the program and in the running process."""
import os
import pathlib
import subprocess

import pytest

from harness import binary, sanitized

NOBODY = 65534


def elf(*options):
    return subprocess.run(["readelf", "-W", *options, str(binary())], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def plain_build():
    if sanitized():
        pytest.skip("a sanitizer's build is for tests alone")


@pytest.mark.usefixtures("plain_build")
class TestProgram:
    def test_is_placed_at_random(self):
        assert "DYN (Position-Independent Executable" in elf("-h")

    def test_has_no_writable_table_of_functions(self):
        assert "GNU_RELRO" in elf("-l")
        assert "BIND_NOW" in elf("-d") or "Flags: NOW" in elf("-d")

    def test_runs_nothing_from_its_stack(self):
        stack = next(line for line in elf("-l").splitlines() if "GNU_STACK" in line)
        assert " RW " in stack and "RWE" not in stack

    def test_checks_its_stack_and_its_copies(self):
        symbols = elf("--dyn-syms")
        assert "__stack_chk_fail" in symbols
        assert "__snprintf_chk" in symbols or "__vsnprintf_chk" in symbols

    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="a feature of x86")
    def test_jumps_only_to_where_functions_begin(self):
        endbr64 = b"\xf3\x0f\x1e\xfa"  # by the thousand; the C library's own start files have a handful
        assert binary().read_bytes().count(endbr64) > 500


def status(gateway, field):
    lines = pathlib.Path(f"/proc/{gateway.pid}/status").read_text(encoding="ascii").splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(field + ":"))


def core_limit(pid):
    lines = pathlib.Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    return next(line.split()[-3:-1] for line in lines if line.startswith("Max core file size"))


def test_process_gains_no_rights_and_leaves_no_core(gateway, upstream, key):
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert status(gateway, "NoNewPrivs") == "1"
    assert core_limit(gateway.pid) == ["0", "0"]
    assert upstream.effects("/refunds") == 1


def test_core_files_can_be_asked_for(start_gateway, upstream):
    for gateway in start_gateway("core_dumps: true\n"), start_gateway(flags=["--dev"]):
        assert core_limit(gateway.pid) == core_limit("self")


@pytest.mark.usefixtures("plain_build")
def test_others_of_the_same_user_cannot_look_into_it(start_gateway, upstream):
    """The kernel gives the files of a process that can't be looked into to root."""
    as_root = os.geteuid() == 0
    gateway = start_gateway(store="memory:", flags_only=True, started=False)
    gateway.start(cwd="/", **({"user": NOBODY, "group": NOBODY} if as_root else {}))
    assert gateway.get("/up").status == 200
    assert os.stat(f"/proc/{gateway.pid}/environ").st_uid == 0
    assert not as_root or status(gateway, "Uid").split()[0] == str(NOBODY)
