# SPDX-License-Identifier: Apache-2.0
"""JSON pointers beside Python: over random texts, every pointer into them and many that lead nowhere.

JSON_DRIVER names the program that asks ours. A failure prints its seed; HAPAX_SEED=n runs it again.
"""
import decimal
import json
import os
import random
import subprocess

import pytest

TEXTS = 3_000
MISSING = object()
NAMES = ["", "a", "b", "code", "data", "a/b", "m~n", "~1", "~0", "0", "1", "01", "-", " ", '"', "\\", "\n", "ä",
         "\U0001f600"]
NUMBERS = ["0", "-0", "1", "10", "1.0", "1e0", "10e-1", "0.1", "1e-1", "100", "1e2", "1E+2", "-1", "1.5", "15e-1",
           "9007199254740992", "9007199254740993", "9007199254740993.0", "1e400", "10e399", "0.000", "123.4500"]
STRINGS = ["", "a", "duplicate", "true", "null", "1", "1.0", "ä", "\U0001f600", 'say "x"', "\\", "a\nb", "\x00", "/"]
WORDS = ["true", "false", "null"]


class Number(str):
    """A number by its text, which json would otherwise turn into a double."""


@pytest.fixture
def seed():
    chosen = int(os.environ.get("HAPAX_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HAPAX_SEED={chosen}")
    return chosen


def write_string(rng, text):
    """As a literal, with escapes where there must be some, and at random."""
    out = []
    for c in text:
        if c in '"\\' or ord(c) < 0x20 or rng.random() < 0.2:
            units = c.encode("utf-16-be")
            out += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
        else:
            out.append(c)
    return '"' + "".join(out) + '"'


def write(rng, depth):
    space = lambda: rng.choice(["", "", " ", "\n", "\t \r"])
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        text = rng.choice([rng.choice(NUMBERS), rng.choice(WORDS), write_string(rng, rng.choice(STRINGS))])
    elif kind < 0.7:
        items = [space() + write(rng, depth - 1) + space() for _ in range(rng.randrange(5))]
        text = "[" + (",".join(items) or space()) + "]"
    else:
        names = rng.sample(NAMES, rng.randrange(5))
        members = [f"{space()}{write_string(rng, name)}{space()}:{space()}{write(rng, depth - 1)}{space()}"
                   for name in names]
        text = "{" + (",".join(members) or space()) + "}"
    return text


def pointers(value, prefix=""):
    yield prefix, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from pointers(item, prefix + "/" + name.replace("~", "~0").replace("/", "~1"))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from pointers(item, f"{prefix}/{i}")


def is_wanted(value, wanted):
    if isinstance(value, (dict, list)):
        return False
    if isinstance(value, Number):
        try:
            json.loads(wanted, parse_int=Number, parse_float=Number, parse_constant=lambda _: 1 / 0)
            with decimal.localcontext(decimal.Context(prec=400, Emax=10**6, Emin=-(10**6))):
                return wanted.strip() == wanted and decimal.Decimal(value) == decimal.Decimal(wanted)
        except (ValueError, ArithmeticError):
            return False
    if isinstance(value, str):
        return value == wanted
    return wanted == {True: "true", False: "false", None: "null"}[value]


def ask(questions):
    lines = "".join(" ".join(word.encode().hex() for word in question) + "\n" for question in questions)
    run = subprocess.run([os.environ["JSON_DRIVER"]], input=lines.encode(), capture_output=True, check=True)
    answers = run.stdout.decode().splitlines()
    assert len(answers) == len(questions)
    return answers


def load(text):
    return json.loads(text, parse_int=Number, parse_float=Number)


def test_every_pointer_leads_to_what_python_finds(seed):
    rng = random.Random(seed)
    questions, expected = [], []
    for _ in range(TEXTS):
        text = write(rng, 5)
        for pointer, value in pointers(load(text)):
            wanted = rng.choice([rng.choice(NUMBERS), rng.choice(WORDS), rng.choice(STRINGS)])
            if isinstance(value, str) and rng.random() < 0.5:
                wanted = str(value)
            questions.append((text, pointer, wanted))
            expected.append(value)
    assert len(questions) > TEXTS
    matches = 0
    for question, value, answer in zip(questions, expected, ask(questions)):
        assert answer != "!", question
        raw, is_it = answer.split(" ")
        assert load(bytes.fromhex(raw).decode()) == value, question
        assert (is_it == "1") == is_wanted(value, question[2]), question
        matches += is_it == "1"
    assert matches > 100


def lookup(value, tokens):
    for token in tokens:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(token, MISSING)
        elif isinstance(value, list) and token.isascii() and token.isdigit() and (token == "0" or token[0] != "0"):
            value = value[int(token)] if int(token) < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def test_pointers_made_up_lead_nowhere_or_where_python_says(seed):
    rng = random.Random(seed)
    tokens = ["", "a", "b", "code", "data", "a~1b", "m~0n", "~01", "~00", "0", "1", "2", "01", "-", "-1", "+1", "1e0",
              "٣"]
    questions, expected = [], []
    for _ in range(4 * TEXTS):
        text = write(rng, 4)
        chosen = [rng.choice(tokens) for _ in range(rng.randrange(1, 4))]
        questions.append((text, "".join("/" + token for token in chosen), "a"))
        expected.append(lookup(load(text), chosen))
    found = 0
    for question, value, answer in zip(questions, expected, ask(questions)):
        if value is MISSING:
            assert answer == "!", question
        else:
            assert load(bytes.fromhex(answer.split(" ")[0]).decode()) == value, question
            found += 1
    assert found > 100


def test_texts_that_are_cut_short_lead_nowhere(seed):
    rng = random.Random(seed)
    questions = []
    for _ in range(TEXTS // 10):
        text = rng.choice("[{") + write(rng, 3)  # never closed
        questions += [(text[:end], "", "a") for end in range(len(text))]
    assert set(ask(questions)) == {"!"}
