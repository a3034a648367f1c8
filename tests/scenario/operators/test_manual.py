# SPDX-License-Identifier: Apache-2.0
"""The manual: a page for every command and one for the configuration, without a mistake in their roff."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import binary, sanitized

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("HAPAX_BUILD", ROOT / "build"))


def generate(files):
    return subprocess.run([ROOT / "tools" / "reference", "--man", binary(), *files], capture_output=True, text=True,
                          check=False)


@pytest.fixture(scope="module")
def commands():
    overview = subprocess.run([binary(), "help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z]+) +\w", overview.split("Commands:")[1].split("\n\n")[0], re.M)


@pytest.fixture(scope="module")
def pages(commands, tmp_path_factory):
    """The files of the manual, by their names."""
    folder = tmp_path_factory.mktemp("man")
    names = ["hapax.1", "hapax.yaml.5", *(f"hapax-{command}.1" for command in commands)]
    made = generate(folder / name for name in names)
    assert made.returncode == 0, made.stderr
    return {name: folder / name for name in names}


def shown(page):
    """What a reader sees, without bold and underlined."""
    text = subprocess.run(["mandoc", "-Tutf8", "-Owidth=80", page], capture_output=True, text=True, check=True).stdout
    return re.sub(".\b", "", text)


def flags_of(text):
    return re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text.split("\nFlags:\n")[1].split("\n\n")[0], re.M)


def test_pages_have_no_mistake(pages):
    for page in pages.values():
        found = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True, check=False)
        wrong = [line for line in found.stdout.splitlines() if "missing date" not in line]  # a build has none to give
        assert not wrong and not found.stderr, wrong


def test_the_library_has_a_page_for_each_function(tmp_path):
    header = ROOT / "include" / "hapax.h"
    functions = re.findall(r"^(?:int|void|const char \*) ?\*?(hapax_\w+)\(", header.read_text(encoding="utf-8"), re.M)
    files = [tmp_path / "man3" / f"{name}.3" for name in ("hapax", *functions)]
    (tmp_path / "man3").mkdir()
    subprocess.run([ROOT / "tools" / "reference", "--library", header, *files], check=True)
    for page in files:
        linted = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True, check=False,
                                cwd=tmp_path)
        wrong = [line for line in linted.stdout.splitlines() if "missing date" not in line]
        assert not wrong and not linted.stderr, wrong
    assert all(f"\\fB{name}\\fR(3)" in files[0].read_text(encoding="ascii") for name in functions)


def test_pages_fit_a_terminal(pages):
    for name, page in pages.items():
        text = shown(page)
        assert max(map(len, text.splitlines())) <= 80, name
        assert "`" not in text and "](" not in text and "\\" not in text, name


def test_overview_has_its_sections_and_names_every_page(pages, commands):
    text = shown(pages["hapax.1"])
    for title in ("NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "FILES", "ENVIRONMENT", "SEE ALSO"):
        assert f"\n{title}\n" in text
    for command in commands:
        assert re.search(rf"^ {{7}}{command}\b", text, re.M) and f"hapax-{command}(1)" in text, command
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME", "NO_COLOR", "TMPDIR", "TZDIR", "SSL_CERT_FILE"):
        assert re.search(rf"^ {{7}}{variable}\b", text, re.M), variable


def test_commands_have_their_flags_examples_and_exit_codes(hapax, pages, commands):
    seen = 0
    for command in commands:
        helped, text = hapax("help", command).stdout, shown(pages[f"hapax-{command}.1"])
        assert "\nEXIT STATUS\n       0 " in text, command
        if "\nFlags:\n" not in helped:
            continue
        for flag in flags_of(helped):
            assert re.search(rf"^ {{7}}(-\w, )?{flag}\b(?!-)", text, re.M), (command, flag)
            seen += 1
        examples = helped.split("\nExamples:\n")[1].split("\n\n")[0]
        for example in re.findall(r"^  (hapax .*)$", examples, re.M):
            assert f"       {example}\n" in text
            assert set(re.findall(r" (--[a-z-]+)", example)) <= set(flags_of(helped)), example
    assert seen > 40


def test_every_flag_of_the_table_is_in_the_help(hapax, commands):
    table = (ROOT / "src" / "cmd" / "cli" / "commands.c").read_text("utf-8")
    for command, rows in re.findall(r"hx_cmd_flag (\w+)_flags\[\] = \{(.*?)\{0\}", table, re.S):
        helped = flags_of(hapax("help", command).stdout)
        assert {f"--{name}" for name in re.findall(r'\{"([a-z-]+)",', rows)} <= set(helped), command


def test_every_option_is_there_with_its_default(pages):
    heads = re.findall(r"^ {7}(\w+): (.*(?:\n {7}\S.*)?)", shown(pages["hapax.yaml.5"]), re.M)
    rows = (ROOT / "src" / "config" / "options.def").read_text("utf-8").split("\nX(")[1:]
    names = [row.split(", ")[1] for row in rows]
    assert len(names) > 90
    for name in names:
        assert sum(head == name for head, _ in heads) >= names.count(name), name
    for name, row in zip(names, rows):
        default = re.search(r', (NULL|"[^"]*"),\s+(?:0|RELOAD|ALONE)\b[^"]*"', row).group(1)
        ending = f"; default {default[1:-1]}" if default != "NULL" else ""
        assert any(head == name and " ".join(said.split()).endswith(ending) for head, said in heads), (name, default)


def test_example_of_the_configuration_is_accepted(hapax, pages, tmp_path):
    example = re.search(r"\n\n( {7}upstream: .*?)\n\n", shown(pages["hapax.yaml.5"]), re.S).group(1)
    path = tmp_path / "hapax.yaml"
    path.write_text(re.sub("^ {7}", "", example, flags=re.M) + "\n")
    assert hapax("check", path).code == 0


def test_a_command_without_a_page_is_named(pages):
    made = generate(page for name, page in pages.items() if name != "hapax-serve.1")
    assert made.returncode == 1 and "hapax-serve.1" in made.stderr


@pytest.mark.skipif(sanitized(), reason="is not for installing")
def test_pages_are_installed(pages):
    installed = json.loads((BUILD / "meson-info" / "intro-installed.json").read_text("utf-8")).values()
    for name in pages:
        assert any(path.endswith(f"/man/man{name[-1]}/{name}") for path in installed), name
