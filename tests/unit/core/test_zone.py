# SPDX-License-Identifier: Apache-2.0
"""Time zones beside Python's zoneinfo: every zone of this machine, at random moments and around every change of its
clocks, from 1970 to 2100; as they are installed, and compiled again with next to no table, so that the rule in the
footer decides.

ZONE_DRIVER names the program that asks ours, HAPAX_ZONES how many of the zones are taken at random ("all" without it).
A failure prints its seed; HAPAX_SEED=n runs it again.
"""
import datetime
import os
import pathlib
import random
import shutil
import subprocess
import zoneinfo

import pytest

ROOT = pathlib.Path("/usr/share/zoneinfo")
ZIC = shutil.which("zic") or "/usr/sbin/zic"
UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = 0, 4_133_980_800 - 1  # seconds: 1970 to 2100
DAY = 86_400
RANDOM_MOMENTS = 150
SCAN = 6 * DAY  # clocks that are put right again within this time are left to chance


@pytest.fixture
def seed():
    chosen = int(os.environ.get("HAPAX_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HAPAX_SEED={chosen}")
    return chosen


def zones_below(root):
    """Every zone's file, one of each content, but for those that count leap seconds."""
    seen = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.relative_to(root).parts[0] not in ("right", "posix"):
            content = path.read_bytes()
            if content.startswith(b"TZif"):
                seen.setdefault(content, path)
    return sorted(seen.values())


def some_of(rng, paths):
    """(zones, whether they are all of them)"""
    assert len(paths) > 250
    wanted = os.environ.get("HAPAX_ZONES", "all")
    return (paths, True) if wanted == "all" else (rng.sample(paths, int(wanted)), False)


def ask(path, moments):
    """(offset, date, begin of the date in ms) of moments in ms."""
    lines = f"={path}\n" + "".join(f"{moment}\n" for moment in moments)
    run = subprocess.run([os.environ["ZONE_DRIVER"]], input=lines.encode(), capture_output=True, check=True)
    answers = run.stdout.decode().splitlines()
    assert len(answers) == len(moments), (path, answers[:1])
    return [(int(offset), date, int(began)) for offset, date, began in map(str.split, answers)]


class Reference:
    """What Python says of a zone at a moment in seconds."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.zone = zoneinfo.ZoneInfo.from_file(file)

    def offset(self, moment):
        return int((EPOCH + datetime.timedelta(seconds=moment)).astimezone(self.zone).utcoffset().total_seconds())

    def date(self, moment):
        return (EPOCH + datetime.timedelta(seconds=moment)).astimezone(self.zone).date().isoformat()

    def changes(self, phase):
        """Moments at which the offset changes."""
        found, before = [], self.offset(FIRST)
        for moment in range(FIRST + phase, LAST, SCAN):
            now = self.offset(moment)
            if now != before:
                low, high = moment - SCAN, moment  # the offset of low is another
                while high - low > 1:
                    middle = (low + high) // 2
                    if self.offset(middle) == before:
                        low = middle
                    else:
                        high = middle
                found.append(high)
            before = now
        return found


def moments_of(rng, changes):
    chosen = [rng.randrange(FIRST, LAST) for _ in range(RANDOM_MOMENTS)]
    for change in changes:
        chosen += [change - 1, change, change + rng.randrange(-DAY, DAY), change + DAY]
    return sorted(chosen)


def check_begin(reference, moment, began, path):
    """That the date has been shown since then without a break, and not a second before."""
    date = reference.date(moment)
    assert began <= moment and moment - began < 2 * DAY, (path, moment, began)
    assert reference.date(began) == date != reference.date(began - 1), (path, moment, began)
    for between in range(began, moment, 1800):
        assert reference.date(between) == date, (path, moment, began, between)


def compare(rng, path, reference, changes):
    moments = moments_of(rng, changes)
    asked = [moment * 1000 + rng.randrange(1000) for moment in moments]
    for moment, (offset, date, began) in zip(moments, ask(path, asked)):
        assert offset == reference.offset(moment), (path, moment)
        assert date == reference.date(moment), (path, moment)
        assert began % 1000 == 0
        check_begin(reference, moment, began // 1000, path)
    return len(changes)


def test_every_installed_zone_is_as_python_has_it(seed):
    rng = random.Random(seed)
    (paths, all_of_them), changes = some_of(rng, zones_below(ROOT)), 0
    for path in paths:
        reference = Reference(path)
        changes += compare(rng, path, reference, reference.changes(rng.randrange(SCAN)))
    assert changes > 10_000 or not all_of_them


def test_zones_that_are_nearly_all_rule_are_as_python_has_them(seed, tmp_path):
    rng = random.Random(seed)
    subprocess.run([ZIC, "-b", "slim", "-d", tmp_path, ROOT / "tzdata.zi"], check=True, capture_output=True)
    (paths, all_of_them), changes, otherwise = some_of(rng, zones_below(tmp_path)), 0, []
    for path in paths:
        phase, reference = rng.randrange(SCAN), Reference(path)
        found = reference.changes(phase)
        if found == Reference(ROOT / path.relative_to(tmp_path)).changes(phase):
            changes += compare(rng, path, reference, found)
        else:
            otherwise.append(path.name)  # the compiler has its limits: it gets some years of Gaza wrong
    assert (changes > 10_000 or not all_of_them) and len(otherwise) < 10, otherwise


def test_zones_that_count_leap_seconds_are_refused():
    run = subprocess.run([os.environ["ZONE_DRIVER"]], input=f"={ROOT}/right/Europe/Berlin\n".encode(),
                         capture_output=True, check=True)
    assert run.stdout == b"!\n"


def seconds(text):
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp())


@pytest.mark.parametrize("zone, moment, date, began", [
    # Samoa went over the date line: there is no December 30th.
    ("Pacific/Apia", "2011-12-30 09:59:59", "2011-12-29", "2011-12-29 10:00:00"),
    ("Pacific/Apia", "2011-12-30 10:00:00", "2011-12-31", "2011-12-30 10:00:00"),
    ("Pacific/Apia", "2011-12-31 09:59:59", "2011-12-31", "2011-12-30 10:00:00"),
    # Kwajalein went the same way.
    ("Pacific/Kwajalein", "1993-08-21 12:00:00", "1993-08-22", "1993-08-21 12:00:00"),
    # Midnight is skipped: the date begins at one o'clock.
    ("America/Sao_Paulo", "2018-11-04 02:59:59", "2018-11-03", "2018-11-03 03:00:00"),
    ("America/Sao_Paulo", "2018-11-04 03:00:00", "2018-11-04", "2018-11-04 03:00:00"),
    ("Asia/Beirut", "2026-03-28 22:00:00", "2026-03-29", "2026-03-28 22:00:00"),
    ("Africa/Cairo", "2026-04-23 22:00:00", "2026-04-24", "2026-04-23 22:00:00"),
    # The hour before midnight comes twice: the date has 25 hours, and the next begins once.
    ("America/Sao_Paulo", "2018-02-18 02:30:00", "2018-02-17", "2018-02-17 02:00:00"),
    ("America/Sao_Paulo", "2018-02-18 03:00:00", "2018-02-18", "2018-02-18 03:00:00"),
    ("Asia/Beirut", "2026-10-24 21:30:00", "2026-10-24", "2026-10-23 21:00:00"),
    ("Africa/Cairo", "2026-10-29 21:30:00", "2026-10-29", "2026-10-28 21:00:00"),
    # The hour after midnight comes twice: the date begins at the first.
    ("Atlantic/Azores", "2026-10-25 01:30:00", "2026-10-25", "2026-10-25 00:00:00"),
    # Clocks went back over midnight: the date is shown for a minute, goes, and comes again.
    ("America/St_Johns", "2006-10-29 02:30:30", "2006-10-29", "2006-10-29 02:30:00"),
    ("America/St_Johns", "2006-10-29 02:31:00", "2006-10-28", "2006-10-29 02:31:00"),
    ("America/St_Johns", "2006-10-29 03:30:00", "2006-10-29", "2006-10-29 03:30:00"),
    # Far in the rule's years.
    ("America/New_York", "2099-07-04 03:59:59", "2099-07-03", "2099-07-03 04:00:00"),
    ("America/New_York", "2099-12-25 05:00:00", "2099-12-25", "2099-12-25 05:00:00"),
])
def test_dates_begin_where_clocks_first_show_them(zone, moment, date, began):
    (_, found, begin), = ask(ROOT / zone, [seconds(moment) * 1000])
    assert (found, begin) == (date, seconds(began) * 1000)
