# SPDX-License-Identifier: Apache-2.0
"""tools/tidy, shown rule by rule: each case holds one thing that is refused, and the same file without it passes."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_loader = importlib.machinery.SourceFileLoader("tidy", str(ROOT / "tools" / "tidy"))
tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", _loader))
_loader.exec_module(tidy)

C = "/* SPDX-License-Identifier: " + "Apache-2.0 */\n"
HASH = "# SPDX-License-Identifier: " + "Apache-2.0\n"


def findings(*files):
    """The findings over (path, text) pairs, as path:line: message."""
    return [f"{p}:{n}: {m}" for p, n, m in tidy.check([tidy.Source(path, text) for path, text in files])]


def header(guard, body="int hx_x;\n"):
    return C + f"#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"


def function(lines):
    return "int f(void)\n{\n" + "    work();\n" * (lines - 3) + "}\n"


CLEAN = {
    "a C file": ("src/gateway/a.c", C + '#include "gateway/claim.h"\n#include "store/store.h"\n#include <string.h>\n'),
    "a header": ("src/gateway/a.h", header("HX_GATEWAY_A_H", '#include "base/slice.h"\nvoid hx_claim(void);\n')),
    "a header of a test": ("tests/unit/net/pair.h", header("HX_TESTS_PAIR_H")),
    "the public header": ("include/hapax.h", header("HAPAX_H")),
    "libuv in net": ("src/net/h1/conn.c", C + "#include <uv.h>\n"),
    "redis speaks over net": (
        "src/store/redis/redis.c", C + '#include "net/transport.h"\n#include <hiredis/hiredis.h>\n'),
    "a command shows an example": ("src/cmd/demo.c", C + '#include "refunds/app.h"\n'),
    "main finds commands": ("src/main.c", C + '#include "cmd/serve.h"\n'),
    "a function of 70 lines": ("src/base/a.c", C + function(70)),
    "a file of 800 lines": ("src/base/a.c", C + "int x;\n" * 799),
    "a line of 120 columns": ("src/base/a.c", C + "/* " + "x" * 114 + " */\n"),
    "banned names in comments, strings and longer names": (
        "src/base/a.c", C + '/* system() */\nconst char *s = "popen(";\nint hx_rand(int a); int x = p->gets(1);\n'),
    "a template of mkstemp": ("src/base/a.c", C + 'char t[] = "/tmp/hapax-' + "X" * 6 + '";\n'),
    "a path below another one": ("docs/a.md", "see $HOME/" + "work/ and example.org/" + "root/x and ./" + "work/\n"),
    "prose": ("docs/a.md", "word " * 40 + "end\n"),
    "a script": ("tools/x", "#!/bin/sh\n" + HASH + "echo\n"),
    "bytes that are meant": ("tests/fuzz/corpus/key/bare", "abc\t \r\n" + "X" * 3),
    "data": ("tests/a.json", '{"x": "' + "y" * 300 + '"}\n'),
}

REFUSED = {
    "base includes nothing": ("src/base/a.c", 2, '#include "core/operation/key.h"\n', "must not include core/"),
    "core knows no store": ("src/core/operation/a.c", 2, '#include "store/store.h"\n', "must not include store/"),
    "net knows no idempotency": ("src/net/a.h", 4, '#include "core/operation/key.h"\n', "must not include core/"),
    "net knows no version of HTTP": (
        "src/net/pool.h", 4, '#include "net/h1/answer_parser.h"\n', "net/ must not include net/h1"),
    "a version of HTTP is for net only": (
        "src/gateway/worker.c", 2, '#include "net/h1/conn.h"\n', "is for src/net/ and src/cmd/explain/ only"),
    "store knows no net": ("src/store/journal/journal.c", 2, '#include "net/server.h"\n', "must not include net/"),
    "config knows no gateway": ("src/config/a.c", 2, '#include "gateway/request.h"\n', "must not include gateway/"),
    "gateway knows no commands": ("src/gateway/a.c", 2, '#include "cmd/serve.h"\n', "must not include cmd/"),
    "gateway knows no events": ("src/gateway/a.c", 2, '#include "events/inbox/inbox.h"\n', "must not include events/"),
    "admin knows no commands": ("src/admin/a.c", 2, '#include "cmd/serve.h"\n', "must not include cmd/"),
    "tables obey too": ("src/core/json/a.c", 2, '#include "config/options.def"\n', "must not include config/"),
    "an include without its folder": ("src/base/a.c", 2, '#include "slice.h"\n', "includes name their folder"),
    "an example in the gateway": ("src/gateway/a.c", 2, '#include "refunds/app.h"\n', "no folder src/refunds/"),
    "a folder that no one planned": ("src/util/a.c", 1, "int x;\n", "not in the table"),
    "libuv in base": ("src/base/loop.c", 2, "#include <uv.h>\n", "uv.h is for"),
    "libuv in the gateway": ("src/gateway/a.c", 2, "#include <uv.h>\n", "uv.h is for"),
    "libuv through the back door": ("src/gateway/a.c", 2, '#include "base/loop/loop_uv.h"\n', "loop_uv.h is for"),
    "the parser outside net": ("src/gateway/a.c", 2, "#include <llhttp.h>\n", "llhttp.h is for"),
    "libcurl outside its table": ("src/net/client/a.c", 2, "#include <curl/curl.h>\n", "curl/curl.h is for"),
    "libcurl's table elsewhere": ("src/gateway/a.c", 2, '#include "base/program/libcurl.h"\n', "libcurl.h is for"),
    "yaml outside config": ("src/cmd/a.c", 2, "#include <libfyaml.h>\n", "libfyaml.h is for"),
    "parts know no steps": (
        "src/gateway/parts/a.c", 2, '#include "gateway/steps/shadow.h"\n', "parts must not include gateway/steps"),
    "one store knows no other": (
        "src/store/sqlite/a.c", 2, '#include "store/journal/journal.h"\n', "sqlite must not include store/journal"),
    "json knows no operations": (
        "src/core/json/a.c", 2, '#include "core/operation/key.h"\n', "core/json must not include core/operation"),
    "a room that no one planned": ("src/gateway/misc/a.c", 1, "int x;\n", "not in the table of rooms"),
    "a function of 71 lines": ("src/base/a.c", 2, function(71), "f has 71 lines"),
    "a Python function of 71 lines": (
        "tests/a.py", 2, "def f():\n" + "    x = 1\n" * 70, "f has 71 lines"),
    "a file of 801 lines": ("src/base/a.c", 801, "int x;\n" * 800, "801 lines"),
    "a line of 121 columns": ("src/base/a.c", 2, "/* " + "x" * 115 + " */\n", "121 columns"),
    "a tab": ("src/base/a.c", 2, "\tint x;\n", "a tab"),
    "a space at the end": ("docs/a.md", 1, "word \n", "white space at the end"),
    "no last newline": ("docs/a.md", 1, "word", "no newline"),
    "something left to fix": ("src/base/a.c", 2, "/* " + "FIX" + "ME later */\n", "a leftover"),
    "something left to do": ("docs/a.md", 1, "TO" + "DO: write this\n", "a leftover"),
    "something marked": ("tools/a.py", 2, "# " + "X" * 3 + "\n", "a leftover"),
    "a banner": ("src/base/a.c", 2, "/* ---" + "-" * 30 + " */\n", "a banner"),
    "a banner in Python": ("tools/a.py", 2, "#" * 40 + "\n", "a banner"),
    "a guard of another file": ("src/base/a.h", 2, None, "the guard must be #ifndef HX_BASE_A_H"),
    "a home": ("docs/a.md", 1, "run /ho" + "me/alice/hapax\n", "a path of one machine"),
    "a workshop": ("tools/a.py", 2, "P = '/wo" + "rk/x'\n", "a path of one machine"),
    "a superuser's home": ("docs/a.md", 1, "`/ro" + "ot/x`\n", "a path of one machine"),
    "a registry of npm": ("package-lock.json", 1, '"https://regi' + 'stry.npmjs.org/x"\n', "the machine's setting"),
    "a mirror of Debian": ("tools/a.py", 2, "U = 'http://deb.deb" + "ian.org/'\n", "the machine's setting"),
} | {
    f"{name}() is banned": ("src/base/a.c", 2, f"int x = {name} (y);\n", f"{name}() is banned") for name in tidy.BANNED
}


def text_of(path, body):
    if path.endswith(".h"):
        guard = "HX_" + path[len("src/"):-2].replace("/", "_").upper() + "_H"
        return header(guard, body) if body is not None else header("HX_OTHER_H")
    if path.endswith((".c", ".def")):
        return C + body
    return (HASH if path.endswith(".py") else "") + body


@pytest.mark.parametrize("name", CLEAN)
def test_passes(name):
    assert findings(CLEAN[name]) == []


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    path, line, body, message = REFUSED[name]
    if path.endswith(".h") and body is not None:
        line = text_of(path, body).split(body)[0].count("\n") + 1
    found = findings((path, text_of(path, body)))
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:{line}: ")
    assert message in found[0]


@pytest.mark.parametrize("path, text", [
    ("src/base/a.c", "int x;\n"),
    ("src/base/a.c", "\n" + C),
    ("tools/a.py", "x = 1\n"),
    ("tools/a", "#!/bin/sh\necho\n"),
    ("meson.build", "project('x')\n"),
    ("examples/a.yaml", "a: 1\n"),
])
def test_a_file_without_its_licence_line_is_refused(path, text):
    assert ["SPDX" in f for f in findings((path, text))] == [True]


@pytest.mark.parametrize("text", [
    C + "int x;\n",
    C + "#pragma once\nint x;\n",
    C + "#ifndef HX_BASE_A_H\n#define HX_BASE_B_H\nint x;\n#endif\n",
    C + "#ifndef HX_BASE_A_H\n#define HX_BASE_A_H\n#endif\nint x;\n",
])
def test_a_header_that_is_not_guarded_is_refused(text):
    assert ["guard" in f for f in findings(("src/base/a.h", text))] == [True]


def test_a_header_that_only_includes_is_an_umbrella():
    body = '#include "base/slice.h"\n#include "base/memory/map.h"\n'
    found = findings(("src/gateway/all.h", header("HX_GATEWAY_ALL_H", body)))
    assert len(found) == 1 and "umbrella" in found[0]


def test_a_header_that_draws_in_everything_is_an_umbrella():
    body = "".join(f'#include "base/x{i}.h"\n' for i in range(tidy.OWN_INCLUDES_MAX + 1)) + "int x;\n"
    found = findings(("src/gateway/all.h", header("HX_GATEWAY_ALL_H", body)))
    assert len(found) == 1 and "umbrella" in found[0]


@pytest.mark.parametrize("engine", ["sqlite3.h", "libpq-fe.h", "hiredis/hiredis.h"])
def test_an_engine_stands_in_one_file(engine):
    text = C + f"#include <{engine}>\n"
    assert findings(("src/store/one.c", text)) == []
    found = findings(("src/store/one.c", text), ("src/store/two.c", text))
    assert len(found) == 1 and found[0].startswith("src/store/two.c:2: ")


def test_a_type_has_one_definition():
    one = ("src/net/a.h", header("HX_NET_A_H", "typedef struct {\n    int x;\n} hx_row;\n"))
    other = ("src/net/b.h", header("HX_NET_B_H", "typedef struct hx_row hx_row;\n"))
    assert findings(one) == [] and findings(other) == []
    found = findings(one, other)
    assert len(found) == 1 and "hx_row is a type of src/net/a.h already" in found[0]


def test_a_prefix_belongs_to_one_folder():
    one = ("src/net/a.h", header("HX_NET_A_H", "void hx_mark_end(int x);\n"))
    near = ("src/net/b.h", header("HX_NET_B_H", "bool hx_mark_is(int x) HX_MUST_USE;\n"))
    far = ("src/jobs/c.h", header("HX_JOBS_C_H", "const char *hx_mark_text(int x);\n"))
    assert findings(one, near) == []
    found = findings(one, near, far)
    assert len(found) == 1 and found[0].startswith("src/jobs/c.h:5: hx_mark_ is a prefix of src/net/a.h already")


def test_a_folder_can_be_looked_over():
    files = [(f"src/jobs/a{i:02}.c", C + "int x;\n") for i in range(tidy.FOLDER_FILES_MAX)]
    assert findings(*files) == []
    found = findings(*files, ("src/jobs/b.c", C + "int x;\n"))
    assert len(found) == 1 and "src/jobs/ has 26 files" in found[0]


def test_the_program_prints_its_findings_and_fails(tmp_path):
    bad = tmp_path / "a.c"
    bad.write_text("int x;\n")
    run = subprocess.run([sys.executable, ROOT / "tools" / "tidy", bad], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "a.c:1: the first line must be" in run.stdout
    bad.write_text(C + "int x;\n")
    run = subprocess.run([sys.executable, ROOT / "tools" / "tidy", bad], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


STEPS = "src/gateway/steps.def"
STEP_FILES = {"src/gateway/steps/claim.c": C, "tests/scenario/fate/test_a.py": "def test_it(gateway):\n"}


@pytest.mark.parametrize("row, message", [
    ('X(claim, "claiming", "fate/test_a.py::test_it")\n', None),
    ('X(claim, "claiming", "fate/test_a.py")\n', None),
    ('X(claim, "claiming", "fate/test_b.py")\n', "the test of claim does not exist"),
    ('X(claim, "claiming",\n  "fate/test_a.py::test_other")\n', "the test of claim does not exist"),
    ('X(wait, "waiting", "fate/test_a.py")\n', "steps/wait.c does not exist"),
    ('X(claim, "claiming")\n', "a step has no test"),
])
def test_every_step_has_a_file_and_a_test(row, message):
    sources = [tidy.Source(path, text) for path, text in {**STEP_FILES, STEPS: C + row}.items()]
    assert [found[2] for found in tidy.step_tests(sources)] == ([message] if message else [])
