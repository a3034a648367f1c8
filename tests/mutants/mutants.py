#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the bugs of the tables here, one at a time, in a copy of the tree, and runs the one test that must find each.

    mutants.py [NAME] [--area AREA] [--sample] [--json] [--build-only] [--check]

NAME leaves those whose name has it in it; --area those of AREA.toml; --sample the ten that `./dev test` tries. --check
only reads the tables, the simulator's too: every row's text and test must be in the tree. The copy and its build stay
in build-mutants/, so that the next run compiles only what has changed. Exit code 0: every test passed without its bug,
and failed with it. The lines of a row:

    name     of the bug
    breaks   the promise that it breaks
    file     where it is planted; `old` occurs there exactly once and becomes `new`
    test     what must fail: a scenario as pytest names it inside tests/, or a unit test as `meson test --list` names it
    before   it was written down, with its test, before any bug was tried: those that their test found at first say how
             much the suite sees of bugs that it was not written for
    missed   of those: the test that was named first did not see it; `test` is the one that does now
    sample   one of the ten that `./dev test` tries
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sim"))
from mutants import Trouble, mutated  # noqa: E402  (what the simulator's own bugs are planted by)

COPY = ROOT / "build-mutants" / "tree"
BUILD = COPY / "build"
TEST_SECONDS_MAX = 600  # of the slowest, the crash points, on a machine that is busy


def run(words, **options):
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)


def must(done, what):
    if done.returncode != 0:
        raise Trouble(f"{what}: {done.stdout[-2000:]}")


def write_if_changed(path, data):
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True
    return False


def refresh():
    """Makes the copy what the tree is, and keeps the time stamps of what is the same."""
    listed = run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        write_if_changed(COPY / name, (ROOT / name).read_bytes())
        (COPY / name).chmod((ROOT / name).stat().st_mode)
    if not (BUILD / "build.ninja").is_file():
        must(run(["meson", "setup", BUILD, COPY, "-Db_lto=false", "-Doptimization=1",
                  "-Dwerror=false"]), "meson setup")  # a bug may leave something unused


def is_unit(test):
    return not test.startswith("scenario/")


def programs_of(test):
    """What has to be built: the daemon for a scenario, the library too for its own, what meson says for a unit test."""
    tests, targets = (json.loads((BUILD / "meson-info" / f"intro-{what}.json").read_text())
                      for what in ("tests", "targets"))
    if not is_unit(test):
        files = [os.path.relpath(name, BUILD) for row in targets for name in row["filename"]]
        library = [name for name in files if name.startswith("src/lib/")] if "/library/" in test else []
        return ["src/hapax", *library]
    needed = [target for row in tests if row["name"] == test for target in row["depends"]]
    if not needed:
        raise Trouble(f"there is no unit test {test}")
    return [os.path.relpath(name, BUILD) for row in targets if row["id"] in needed for name in row["filename"]]


def compile_for(test):
    return run(["ninja", "-C", BUILD, *programs_of(test)])


def try_test(test):
    environment = {**os.environ, "HAPAX": str(BUILD / "src" / "hapax"), "HAPAX_BUILD": str(BUILD),
                   "HAPAX_TREE": "plain", "HAPAX_HANG_S": "30"}
    if is_unit(test):
        words = ["meson", "test", "-C", BUILD, "--no-rebuild", test]
    else:
        words = ["/usr/bin/python3", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]
    try:
        return run(words, cwd=COPY, env=environment, timeout=TEST_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{test} did not end within {TEST_SECONDS_MAX} s") from None


def build(mutants):
    programs = {program for mutant in mutants for program in programs_of(mutant["test"])}
    must(run(["ninja", "-C", BUILD, *sorted(programs)]), "the tree does not build")


def look_without(test):
    """A test that fails without a bug would find every one."""
    must(compile_for(test), "the tree does not build")
    must(try_test(test), f"without any bug planted {test} fails")


def look_with(mutant, passed):
    path = COPY / mutant["file"]
    began = time.monotonic()
    row = {"name": mutant["name"], "test": mutant["test"], "breaks": mutant["breaks"],
           "before": mutant.get("before", False), "missed": mutant.get("missed", False)}
    try:
        if mutant["test"] not in passed:
            look_without(mutant["test"])
            passed.add(mutant["test"])
        path.write_text(mutated(mutant, COPY))
        must(compile_for(mutant["test"]), "it does not build")
        found = try_test(mutant["test"])
        row["found"] = found.returncode == 1 or (is_unit(mutant["test"]) and found.returncode != 0)
    except Trouble as trouble:
        row.update(found=False, breaks=str(trouble))
    finally:
        path.write_bytes((ROOT / mutant["file"]).read_bytes())
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def read_table():
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        mutants += [{**mutant, "area": path.stem} for mutant in tomllib.loads(path.read_text())["mutant"]]
    names = [mutant["name"] for mutant in mutants]
    if len(set(names)) != len(names):
        raise Trouble("two bugs have one name")
    for mutant in mutants:
        file, _, story = mutant["test"].partition("::")
        path = ROOT / "tests" / file
        wanted = f"def {story.partition('[')[0]}(" if story else ""
        if not is_unit(file) and not (path.is_file() and wanted in path.read_text()):
            raise Trouble(f"{mutant['name']}: there is no {mutant['test']}")
    simulated = tomllib.loads((ROOT / "tests" / "sim" / "mutants.toml").read_text())["mutant"]
    for mutant in mutants + simulated:
        try:
            mutated(mutant)  # also of those not asked for: a table that no longer fits the tree is seen
        except (Trouble, OSError) as trouble:
            raise Trouble(f"{mutant['name']}: {trouble}") from None
    return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", nargs="?", help="those whose name has this in it")
    parser.add_argument("--area", help="those of this area's table")
    parser.add_argument("--sample", action="store_true", help="the ten of ./dev test")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build-only", action="store_true", help="build what is needed, and try nothing")
    parser.add_argument("--check", action="store_true", help="only read the tables")
    given = parser.parse_args()
    try:
        mutants = [mutant for mutant in read_table() if not given.name or given.name in mutant["name"]]
        mutants = [mutant for mutant in mutants if mutant.get("sample") or not given.sample]
        mutants = [mutant for mutant in mutants if given.area in (None, mutant["area"])]
        if not mutants:
            raise Trouble("no bug has that name, or none in that area")
        if given.check:
            return 0
        refresh()
        if given.build_only:
            build(mutants)
            return 0
    except Trouble as trouble:
        sys.exit(f"mutants.py: {trouble}")
    rows, passed = [], set()
    for mutant in sorted(mutants, key=lambda mutant: mutant["test"]):
        rows.append(look_with(mutant, passed))
        if not given.json:
            row = rows[-1]
            print(f"{'found' if row['found'] else 'NOT FOUND':10} {row['name']:44} {row['seconds']:6.1f} s  "
                  f"{row['test'] if row['found'] else row['breaks']}", flush=True)
    found = sum(row["found"] for row in rows)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        before = [row for row in rows if row["before"]]
        print(f"{found} of {len(rows)} found; of those written down before any was tried the test that was named found "
              f"{sum(not row['missed'] for row in before)} of {len(before)} at first")
    return 0 if found == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
