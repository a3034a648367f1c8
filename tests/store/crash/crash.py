#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a store's workload at its crash points and checks what is left.

Without options: a sample that covers every kind of call, for the test suite. --all: every point in every mode, and
every byte of a small log flipped. --try MODE@POINT@SEED … repeats one try exactly, and keeps its files with --folder.
plan.h describes the modes; several tries in a row are one crash at each of several starts.
"""
import argparse
import collections
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOM_BYTES = 2**30  # far above what all tries at a time take
POINT_MODES = ("kill", "after", "drop", "torn")
MODES = (*POINT_MODES, "short", "error", "full", "later", "stale", "twice")
LOGS = (".seg", "-wal")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="hxcrash")
    parser.add_argument("--shim", required=True, help="hxcrash_shim.so")
    parser.add_argument("--store", choices=("journal", "sqlite"), default="journal")
    parser.add_argument("--all", action="store_true", help="every point and every byte")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="half of a try is waiting")
    parser.add_argument("--seed", type=int, default=1, help="of what is torn and of the sample")
    parser.add_argument("--modes", help="only these, with commas between")
    parser.add_argument("--no-flips", action="store_true", help="leave the flipped bytes out")
    parser.add_argument("--only-flips", action="store_true", help="nothing but the flipped bytes")
    parser.add_argument("--try", dest="one", nargs="+", metavar="MODE@POINT@SEED")
    parser.add_argument("--folder", help="where the stores are made (default: in memory, and removed)")
    return parser.parse_args()


class Bench:
    """The programs that do the tries, one for each job, and what came of it."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.environment = dict(os.environ, LD_PRELOAD=os.path.abspath(options.shim))
        # The shim must stand before the sanitizers' own libc names, which they only ask about at the start.
        for name in ("ASAN_OPTIONS", "LSAN_OPTIONS"):
            extra = "verify_asan_link_order=0:detect_leaks=0:handle_segv=1"
            self.environment[name] = ":".join(filter(None, [os.environ.get(name), extra]))
        options_of_tsan = filter(None, [os.environ.get("TSAN_OPTIONS"), "halt_on_error=1"])
        self.environment["TSAN_OPTIONS"] = ":".join(options_of_tsan)
        self.results = collections.Counter()
        self.failures = []
        self.kinds = collections.Counter()
        self.refused = self.through = 0
        self.lock = threading.Lock()
        self.started = time.monotonic()

    def command(self, job, *words):
        kind = ["sqlite"] if self.options.store == "sqlite" else []
        return [self.options.program, os.path.join(self.folder, str(job)), *kind, *words]

    def labels(self):
        run = subprocess.run(self.command("labels", "labels"), env=self.environment, text=True, capture_output=True)
        if run.returncode != 0:
            sys.exit(f"crash points: the workload fails without any crash:\n{run.stdout}{run.stderr}")
        return run.stdout.splitlines()

    def run(self, tries):
        """tries: (text, mode, label)"""
        todo = queue.SimpleQueue()
        for one in tries:
            todo.put(one)
        total, done = len(tries), [0]

        def work(job):
            server = None
            while True:
                try:
                    text, mode, label = todo.get_nowait()
                except queue.Empty:
                    break
                if server is None:
                    server = subprocess.Popen(self.command(job, "serve"), env=self.environment, text=True,
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                server.stdin.write(text + "\n")
                server.stdin.flush()
                answer = server.stdout.readline().strip()
                if not answer:
                    answer, server = f"FAIL hxcrash itself ended with {server.wait()}", None
                with self.lock:
                    self.note(text, mode, label, answer)
                    done[0] += 1
                    self.progress(done[0], total)
            if server:
                server.stdin.close()
                server.wait()

        threads = [threading.Thread(target=work, args=(job,)) for job in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if done[0] != total:
            self.failures.append(("", "", f"{total - done[0]} tries were not made"))
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def note(self, text, mode, label, answer):
        verdict = answer.split()[0]
        self.results[mode, label, verdict] += 1
        if verdict == "FAIL":
            self.failures.append((text, label, answer))
            kind = mode, label, re.sub(r"[0-9]+", "#", answer.split("|")[0])
            self.kinds[kind] += 1
            if self.kinds[kind] == 1 and len(self.kinds) <= 40:  # one of each kind, in full
                print(f"\n{text}: {answer}\n  repeat: {self.repeat(text)}", flush=True)
        else:
            numbers = dict(word.split("=") for word in answer.rsplit(">", 1)[1].split())
            if mode == "full":
                self.refused += int(numbers["refused"])
                self.through += int(numbers["through"])

    def repeat(self, text):
        return f"{sys.argv[0]} --program {self.options.program} --shim {self.options.shim} --try \"{text}\""

    def progress(self, done, total):
        if not sys.stderr.isatty() or (done % 10 and done != total):
            return
        share = done / total
        left = (time.monotonic() - self.started) / share * (1 - share)
        bar = "#" * int(40 * share)
        print(f"\r[{bar:<40}] {done}/{total}  {len(self.failures)} failed  {left:4.0f} s left ", end="",
              file=sys.stderr, flush=True)

    def flips(self):
        """Each image and kind of damage, spread over the jobs."""
        parts = self.options.jobs
        # Zeros are space that nobody has written, or one and the same thing over and over: a sample of them will do.
        step = "1" if self.options.all else "61"
        plans = [("closed", "flip", "0x01"), ("killed", "flip", "0x01"), ("closed", "cut", "0"), ("killed", "cut", "0")]
        if self.options.all:
            plans += [("closed", "flip", "0x80"), ("killed", "flip", "0x80")]
        # Odd, so that a sample falls on every byte of an aligned field, in one frame or another.
        spread = parts if self.options.all else 48 * parts + 1
        for image, kind, bits in plans:
            counts = collections.Counter()
            runs = [subprocess.Popen(self.command(part, "flips", image, kind, bits, str(part), str(spread), step),
                                     text=True, stdout=subprocess.PIPE) for part in range(parts)]
            for run in runs:
                for line in run.communicate()[0].splitlines():
                    word, rest = line.split(" ", 1)
                    if word == "COUNT":
                        for pair in rest.split("; ")[1:]:
                            verdict, number = pair.rsplit(": ", 1)
                            counts[verdict] += int(number)
                    else:
                        print(f"{image} {kind} {bits}: {line}")
                if run.returncode != 0:
                    self.failures.append((f"flips {image} {kind} {bits}", "", "see above"))
            told = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
            print(f"  {kind} {bits} of a {image} log: {told}", flush=True)
            if not counts:
                self.failures.append((f"flips {image} {kind} {bits}", "", "nothing was tried"))

    def summary(self):
        labels = sorted({label for _, label, _ in self.results})
        modes = [mode for mode in MODES
                 if any(key[0] == mode for key in self.results)]
        if modes:
            print(f"  {'':<34}" + "".join(f"{mode:>8}" for mode in modes))
        for label in labels:
            counts = [sum(n for (m, l, v), n in self.results.items() if (m, l) == (mode, label) and v != "unreached")
                      for mode in modes]
            print(f"  {label:<34}" + "".join(f"{count or '':>8}" for count in counts))
        for (mode, label, text), count in self.kinds.most_common(40):
            print(f"  failed {count} times: {mode} {label}: {text[:200]}")
        reached = sum(n for (_, _, v), n in self.results.items() if v != "unreached")
        missed = sum(n for (_, _, v), n in self.results.items() if v == "unreached")
        print(f"  {reached} points tried, {missed} not reached (threads took another turn), "
              f"{len(self.failures)} failed, {time.monotonic() - self.started:.0f} s")
        if self.refused or self.through:
            print(f"  full disks: {self.refused} claims refused, {self.through} got through once there was room")
        return missed <= max(20, reached // 10)


def spread(points, count):
    """Some of them, evenly, the first and the last among them."""
    if count >= len(points):
        return points
    return [points[i * (len(points) - 1) // max(1, count - 1)] for i in range(count)]


def choose(labels, options):
    """Points are named by what they are: which number a call has in all depends on the turns that threads take."""
    counts = collections.Counter(labels)
    rng = random.Random(options.seed)
    wanted = options.modes.split(",") if options.modes else MODES
    if options.store == "sqlite":  # what a full disk does is in tests/store/full.c
        wanted = [mode for mode in wanted if mode != "full"]
        # How many calls share a commit, and so how many commits there are, differs: the first half is always there.
        labels = labels[:len(labels) // 2]
        counts = collections.Counter(labels)
    tries = []
    for label, points in sorted(counts.items()):
        for mode in wanted:
            if mode in ("twice", "later", "stale") or (mode == "short" and not label.startswith("write")):
                continue
            count = points if options.all else 8
            if mode == "torn" and label.endswith(LOGS) and not options.all:
                count = 50  # a tear is as the seed says: more seeds for the log itself
            if mode == "short" or (mode == "error" and not options.all):
                count = min(count, 60 if options.all else 3)
            if mode == "full":  # these wait for the store to notice that there is room
                count = 12 if options.all else 1
            for number in spread(list(range(1, points + 1)), count):
                tries.append((f"{mode}@{label}#{number}@{rng.randint(1, 1 << 30)}", mode, label))
        if "later" in wanted:  # a kill, and a power cut soon after the next start: what the kill left unsynced is lost
            log = label.startswith("write") and label.endswith(LOGS)  # what the next start reads first
            for number in spread(list(range(1, points + 1)), points if options.all else 40 if log else 4):
                for cut in ("drop", "torn"):
                    seed = rng.randint(1, 1 << 30)
                    soon = rng.randint(3, 6) if log else rng.choice((rng.randint(2, 8), rng.randint(1, 90)))
                    text = f"after@{label}#{number}@{seed} {cut}@{soon}@{seed}"
                    tries.append((text, "later", label))
        if "stale" in wanted and label.startswith("sync:"):  # and a power cut when the next start has believed it
            for number in spread(list(range(1, points + 1)), points if options.all else 40):
                seed = rng.randint(1, 1 << 30)
                text = f"stale@{label}#{number}@{seed} {rng.choice(('drop', 'torn'))}@{rng.randint(3, 40)}@{seed}"
                tries.append((text, "stale", label))
    if "twice" in wanted:  # a crash while the start after a crash is at work
        for _ in range(len(labels) if options.all else 60):
            number, seed = rng.randint(1, len(labels)), rng.randint(1, 1 << 30)
            modes = rng.choice(("kill", "after", "torn")), rng.choice(POINT_MODES)
            text = f"{modes[0]}@{number}@{seed} {modes[1]}@{rng.randint(1, 40)}@{seed + 1}"
            tries.append((text, "twice", "any, then one of the next start"))
    rng.shuffle(tries)
    return tries


def main():
    options = arguments()
    roomy = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free >= ROOM_BYTES
    home = "/dev/shm" if roomy else None
    folder = options.folder or tempfile.mkdtemp(prefix="hxcrash.", dir=home)
    os.makedirs(folder, exist_ok=True)
    bench = Bench(options, folder)
    try:
        if options.one:
            words = " ".join(options.one).split()
            run = subprocess.run(bench.command("try", "try", *words), env=bench.environment, text=True,
                                 stdout=subprocess.PIPE)
            print(run.stdout, end="")
            return 0 if run.stdout.startswith(("ok", "unreached")) else 1
        reached = True
        if not options.only_flips:
            labels = bench.labels()
            print(f"crash points: {len(labels)} in a clean run", flush=True)
            bench.run(choose(labels, options))
            reached = bench.summary()
        if not options.no_flips and options.store == "journal":
            bench.flips()
        if not reached:
            print("too many points were not reached: the workload is not the same each time")
        return 0 if reached and not bench.failures else 1
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
