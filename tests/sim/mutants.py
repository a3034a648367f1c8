#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the bugs of mutants.toml in the daemon, one at a time, and lets the simulator look for each.

    mutants.py --build DIR [--events] [--planted] [--seconds N] [--runs N] [--only NAME] [--jobs N] [--json]

DIR is a build folder that has tests/sim/hxsim. A mutated source is compiled as DIR's compile commands say and linked
before the libraries, so that it replaces the one in there; the tree is not touched. Exit code 0: every
bug was found but those that are known to be missed, and the simulator as it is found nothing in the same seeds' first
thousand.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = "tests/sim/hxsim"  # with --events: of the other program
TABLE = "mutants.toml"


class Trouble(Exception):
    """Something is wrong with the table or the build, not with the simulator."""


def mutated(mutant, root=ROOT):
    """The source's text with the bug in it. tests/mutants/mutants.py plants its own by this, too."""
    with open(os.path.join(root, mutant["file"])) as source:
        text = source.read()
    times = text.count(mutant["old"])
    if times != 1:
        raise Trouble(f"the old text stands in {mutant['file']} {times} times, not once")
    return text.replace(mutant["old"], mutant["new"])


def compile_command(build, file, source, target):
    """How the build compiles this file, with another source and target."""
    with open(os.path.join(build, "compile_commands.json")) as commands:
        for entry in json.load(commands):
            path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            if path != os.path.realpath(os.path.join(ROOT, file)) or "sim_calendar" in entry.get("output", ""):
                continue
            words = shlex.split(entry["command"])
            for option in ("-MF", "-MQ"):
                if option in words:
                    words[words.index(option) + 1] = target + ".d"
            words[words.index("-o") + 1] = target
            words[words.index("-c") + 1] = source
            return words + ["-Wno-error"]  # a bug may leave something unused
    raise Trouble(f"{file} is not compiled in {build}")


def link_command(build, target, instead):
    listing = ["ninja", "-C", build, "-t", "commands", TARGET]
    listed = subprocess.run(listing, capture_output=True, text=True, check=True)
    words = shlex.split(listed.stdout.strip().split("\n")[-1])
    words[words.index("-o") + 1] = target
    first_library = next(i for i, word in enumerate(words) if word.endswith(".a"))
    while not words[first_library - 1].endswith(".o"):
        first_library -= 1
    return words[:first_library] + [instead] + words[first_library:]


def build_mutant(build, mutant, folder):
    source = os.path.join(folder, os.path.basename(mutant["file"]))
    target, program = source + ".o", os.path.join(folder, "hxsim")
    with open(source, "w") as out:
        out.write(mutated(mutant))
    for command in (compile_command(build, mutant["file"], source, target), link_command(build, program, target)):
        done = subprocess.run(command, cwd=build, capture_output=True, text=True)
        if done.returncode != 0:
            raise Trouble("it does not build: " + (done.stderr or done.stdout)[-2000:])
    return program


def look(program, runs, seconds):
    """(the failing seed, what broke) or None."""
    command = [program, "--runs", str(runs), "--seconds", str(seconds), "--first", "1", "--jobs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    try:
        report = json.loads(done.stdout)
    except ValueError as error:
        raise Trouble(f"exit code {done.returncode}: {done.stderr[-500:]}") from error
    return report["failed_seed"], report["failure"]


def check_as_it_is(build):
    """What fails without a bug would make every bug look found."""
    made = subprocess.run(["ninja", "-C", build, TARGET], capture_output=True, text=True)
    if made.returncode != 0:
        raise Trouble(f"{TARGET} does not build: " + made.stdout[-2000:])
    found = look(os.path.join(build, TARGET), 1000, 60)
    if found:
        raise Trouble(f"without any bug planted, seed {found[0]} fails: {found[1]}")


def try_one(build, mutant, runs, seconds):
    try:
        return try_to_find(build, mutant, runs, seconds)
    except Trouble as trouble:
        return {"name": mutant["name"], "breaks": str(trouble), "found": False, "good": False, "seconds": 0}


def try_to_find(build, mutant, runs, seconds):
    with tempfile.TemporaryDirectory(prefix="hxsim-") as folder:
        program = build_mutant(build, mutant, folder)
        began = time.monotonic()
        found = look(program, runs, seconds)
        spent = time.monotonic() - began
    row = {"name": mutant["name"], "breaks": mutant["breaks"], "found": found is not None, "seconds": round(spent, 2)}
    if found:
        row["seed"], row["failure"] = found
    if "missed" in mutant:
        row["missed"] = mutant["missed"]
    row["good"] = "missed" in row or row["found"] != mutant.get("equivalent", False)
    return row


def say(row):
    mark = "found" if row["found"] else "NOT FOUND" if not row["good"] else "missed" if "missed" in row else "no bug"
    print(f"{mark:10} {row['name']:30} {row['seconds']:7.2f} s", end="")
    why = row.get("missed", row["breaks"])
    print(f"  seed {row['seed']}: {re.sub(chr(10), ' ', row['failure'])}" if row["found"] else f"  {why}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="where hxsim was built")
    parser.add_argument("--planted", action="store_true", help="only the six that must be found within a minute")
    parser.add_argument("--events", action="store_true", help="those of events/mutants.toml, by hxevents")
    parser.add_argument("--only", help="those whose name has this in it")
    parser.add_argument("--seconds", type=int, default=60, help="how long to look for each (60)")
    parser.add_argument("--runs", type=int, default=10_000_000, help="how many seeds to look at for each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at once (one for each processor)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.events:
        global TARGET, TABLE
        TARGET, TABLE = "tests/sim/hxevents", "events/mutants.toml"
    with open(os.path.join(HERE, TABLE), "rb") as table:
        mutants = tomllib.load(table)["mutant"]
    try:
        for mutant in mutants:
            mutated(mutant)  # all of them, also those not asked for, so that a table which no longer fits is seen
    except Trouble as trouble:
        sys.exit(f"mutants.py: {mutant['name']}: {trouble}")
    mutants = [m for m in mutants if m.get("planted") or not arguments.planted]
    mutants = [m for m in mutants if not arguments.only or arguments.only in m["name"]]
    build, rows = os.path.abspath(arguments.build), []
    try:
        check_as_it_is(build)
    except Trouble as trouble:
        sys.exit(f"mutants.py: {trouble}")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as workers:
        for row in workers.map(lambda m: try_one(build, m, arguments.runs, arguments.seconds), mutants):
            rows.append(row)
            if not arguments.json:
                say(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    good = sum(row["good"] for row in rows)
    if not arguments.json:
        missed = sum("missed" in row and not row["found"] for row in rows)
        print(f"{good} of {len(rows)} as they should be" + (f", {missed} of them known to be missed" if missed else ""))
    return 0 if rows and good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
