# SPDX-License-Identifier: Apache-2.0
"""The canonical form of JSON beside others: Node's JSON.stringify for numbers, npm's canonicalize for whole texts,
Python's json and decimal for what is clean and for numbers that no double holds.

HAPAX_BUILD names the meson build directory. A failure prints its seed; HAPAX_SEED=n runs it again.
"""

import decimal
import json
import os
import pathlib
import random
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
DOUBLES = 1_200_000
TEXTS = 60_000
DECIMALS = 60_000
MUTANTS = 120_000


@pytest.fixture(scope="module")
def driver():
    build = pathlib.Path(os.environ.get("HAPAX_BUILD", HERE.parent.parent / "build"))
    path = build / "tests" / "canonical" / "canonical_driver"
    assert path.exists(), f"{path} is missing: set HAPAX_BUILD to the meson build directory, and build it"
    return path


@pytest.fixture(scope="module")
def node_modules():
    if not (HERE / "node_modules" / "canonicalize").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, check=True)


@pytest.fixture
def seed():
    chosen = int(os.environ.get("HAPAX_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HAPAX_SEED={chosen}")
    return chosen


def compare(what, driver, count, seed):
    command = ["node", HERE / "compare.js", what, driver, str(count), str(seed)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


def canonical(driver, texts):
    """Each of the texts (bytes without a line feed) in canonical form, or None where it isn't clean."""
    run = subprocess.run([driver], input=b"\n".join(texts) + b"\n", capture_output=True, check=True)
    answers = run.stdout.split(b"\n")
    assert len(answers) == len(texts) + 1
    return [None if answer == b"!" else answer for answer in answers[:-1]]


def test_numbers_are_written_as_node_writes_them(driver, node_modules, seed):
    assert compare("numbers", driver, DOUBLES, seed) > DOUBLES


def test_texts_are_written_as_canonicalize_writes_them(driver, node_modules, seed):
    assert compare("texts", driver, TEXTS, seed) == TEXTS


def ecmascript_layout(value):
    """Number::toString of ECMAScript, for a decimal of any length."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return "0"
    exponent += len(text) - len(stripped)
    point = len(stripped) + exponent
    if len(stripped) <= point <= 21:
        body = stripped + "0" * exponent
    elif 0 < point <= 21:
        body = f"{stripped[:point]}.{stripped[point:]}"
    elif -6 < point <= 0:
        body = "0." + "0" * -point + stripped
    else:
        fraction = f".{stripped[1:]}" if len(stripped) > 1 else ""
        body = f"{stripped[0]}{fraction}e{point - 1:+d}"
    return "-" * sign + body


def random_number(rng):
    length = rng.choice([1, 2, 5, 16, 17, 18, 21, 22, 23, 40])
    digits = "".join(rng.choices("0123456789", weights=[6] + [1] * 9, k=length))
    text = rng.choice(["", "-"]) + (digits.lstrip("0") or "0")
    if rng.random() < 0.6:
        text += "." + "".join(rng.choices("05", k=rng.randrange(1, 25)))
    if rng.random() < 0.6:
        exponent = rng.randrange(-(10 ** rng.choice([1, 2, 3, 9, 15])), 10 ** rng.choice([1, 2, 3, 9, 15]))
        text += rng.choice("eE") + (f"{exponent:+d}" if rng.random() < 0.5 else str(exponent))
    return text


def test_numbers_that_no_double_holds_keep_their_exact_value(driver, seed):
    rng = random.Random(seed)
    texts = [random_number(rng) for _ in range(DECIMALS)]
    for text, answer in zip(texts, canonical(driver, [text.encode() for text in texts])):
        assert answer.decode() == ecmascript_layout(decimal.Decimal(text)), text


def random_value(rng, depth=0):
    kind = rng.randrange(6 if depth < 4 else 4)
    if kind == 0:
        return rng.choice([True, False, None])
    if kind == 1:
        return rng.choice([0, -1, 12.5, 1e30, 10**20])
    if kind in (2, 3):
        return rng.choice(["", "a", "é", "\U0001f600", 'q"\\', "\ufb33", "\x01"])
    if kind == 4:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "c", "é", "\n", ""]): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


PIECES = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\t", b"\r", b"\x00", b"\x0c", b"0", b"1", b"-", b".",
          b"e", b"+", b"u", b"\\u0061", b"\\ud83d", b"\\ude00", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xff", b"true",
          b"\xf0\x9f\x98\x80", b"null", b"NaN", b'"a":1,', b'"b":1,', b"//", b"\xef\xbb\xbf", b"\x7f", b"\xc2\xa0"]


def mutant(rng):
    text = json.dumps(random_value(rng), ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([b"", rng.choice(PIECES)]) + text[at + rng.randrange(3):]
    return text


class NotClean(Exception):
    pass


def refuse(what):
    raise NotClean(what)


def unique_members(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        refuse("a member twice")
    return dict(pairs)


EXPONENT_MAX = 10**15  # HX_NUMBER_EXPONENT_MAX


def exact(text):
    """A number by its value, whatever its exponent: the decimal module has a limit there."""
    sign, whole, fraction, exponent = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", text).groups(default="")
    if abs(int(exponent or 0)) > EXPONENT_MAX:
        refuse("an exponent that nobody means")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    return (sign, kept, int(exponent or 0) - len(fraction) + len(digits) - len(kept)) if kept else ("", "", 0)


def clean_value(text):
    """What a strict reading of the bytes gives; NotClean where there is none."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique_members, parse_float=exact,
                           parse_int=exact, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")  # a lone surrogate can't be encoded
    except ValueError as error:
        raise NotClean from error
    return value


def test_what_is_clean_is_what_a_strict_reader_takes(driver, seed):
    rng = random.Random(seed)
    texts = [mutant(rng) for _ in range(MUTANTS)]
    clean = 0
    for text, answer in zip(texts, canonical(driver, texts)):
        try:
            value = clean_value(text)
        except NotClean:
            assert answer is None, text
        else:
            assert answer is not None, text
            assert clean_value(answer) == value, text
            clean += 1
    assert MUTANTS / 10 < clean < MUTANTS * 9 / 10  # both were tried
