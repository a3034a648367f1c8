# SPDX-License-Identifier: Apache-2.0
"""Contract §4, "Fingerprint", for requests that hypothesis makes up.

Each property is an "if and only if": a request is written down as what it means, spelled in two ways, and asked for
beside another one. Both have one fingerprint exactly when their meanings are equal, and exactly those parts differ that
mean something else. What a request means is worked out here, in Python, from what it was made of.

FINGERPRINT_DRIVER names the program that asks ours. A failure prints the smallest example that was found;
`--hypothesis-seed=n` runs the same ones again, and HAPAX_EXAMPLES=n as many of each.
"""
import os
import subprocess
from decimal import Context, Decimal

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

PARTS = ["method", "path", "query", "media type", "content encoding", "preconditions", "body", "headers", "host"]
FIELDS = ["method", "path", "query", "type", "coding", "if_match", "if_none_match", "if_unmodified_since", "body",
          "key", "host"]
DEPTH_MAX = 64
EXACT = Context(prec=2000, Emax=10**6, Emin=-(10**6))
MISSING = ("missing",)

# Nothing here hangs on the machine's speed: no deadline, and a slow machine is no failure.
check = settings(max_examples=int(os.environ.get("HAPAX_EXAMPLES", "200")), deadline=None, database=None,
                 print_blob=True,
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large])


class Driver:
    def __init__(self):
        self.process = subprocess.Popen([os.environ["FINGERPRINT_DRIVER"]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, rules=None, headers=(), **fields):
        """The answer for one request; what isn't given is empty, and a query of None isn't there."""
        rules = {"body": "C", "pointers": (), "ignored": (), "ignored_query": (), "headers": (), **(rules or {})}
        has_query = fields.get("query") is not None
        values = {"method": "POST", "path": "/refunds", **fields, "query": fields.get("query") or b""}
        words = [raw(values.get(name, b"")).hex() for name in FIELDS]
        words += ["?" if has_query else "-", rules["body"]]
        for items in (rules["pointers"], rules["ignored"], rules["ignored_query"], rules["headers"], headers):
            words.append(",".join([str(len(items)), *(raw(item).hex() for item in items)]))
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode().split()
        assert len(line) == 1 + len(PARTS) + 3, f"the driver died: {line}"
        return Answer(line)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


class Answer:
    def __init__(self, words):
        self.digest, self.kind, self.is_json, self.hashed = words[0], words[-3], words[-2] == "1", words[-1]
        self.parts = dict(zip(PARTS, words[1:]))

    def differing(self, other):
        return {name for name in PARTS if self.parts[name] != other.parts[name]}


def raw(text):
    return text if isinstance(text, bytes) else text.encode()


@pytest.fixture(scope="module")
def driver():
    running = Driver()
    yield running
    running.close()


def same(one, other):
    assert one.digest == other.digest
    assert one.differing(other) == set()


def same_exactly_if(equal, one, other, part):
    """`part` is the only one that may tell them apart."""
    assert (one.digest == other.digest) == equal
    assert one.differing(other) == (set() if equal else {part})


# JSON. A text is made from a meaning: None, a bool, a Number, a str, a list, or a dict.

class Number:
    """coefficient · 10^exponent, exactly."""

    def __init__(self, coefficient, exponent):
        self.coefficient, self.exponent = coefficient, exponent

    def __repr__(self):
        return f"{self.coefficient}e{self.exponent}"

    def meaning(self):
        value = Decimal((int(self.coefficient < 0), tuple(map(int, str(abs(self.coefficient)))), self.exponent))
        return Decimal(0) if value == 0 else value.normalize(EXACT)


def meaning(value):
    """Equal for two values if they mean the same."""
    if isinstance(value, Number):
        return ("number", value.meaning().as_tuple())
    if isinstance(value, list):
        return ("array", tuple(meaning(item) for item in value))
    if isinstance(value, dict):
        return ("object", frozenset((name, meaning(item)) for name, item in value.items()))
    return (type(value).__name__, value)


def spell_string(draw, text):
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "/": "\\/"}
    out = []
    for c in text:
        ways = [] if c in '"\\' or ord(c) < 0x20 else [c, c]
        units = c.encode("utf-16-be").hex()
        for style in (str.lower, str.upper):
            ways.append("".join("\\u" + style(units[i:i + 4]) for i in range(0, len(units), 4)))
        if c in short:
            ways.append(short[c])
        out.append(draw(st.sampled_from(ways)))
    return '"' + "".join(out) + '"'


def spell_number(draw, number):
    """The same value with its point, its zeros and its exponent elsewhere."""
    sign = "-" if number.coefficient < 0 else draw(st.sampled_from(["", "-"])) if number.coefficient == 0 else ""
    zeros = draw(st.integers(0, 3))
    digits, exponent = str(abs(number.coefficient)) + "0" * zeros, number.exponent - zeros
    point = draw(st.integers(0, len(digits) + 3))  # digits behind it
    digits = digits.rjust(point + 1, "0")
    whole, fraction = digits[:len(digits) - point].lstrip("0") or "0", digits[len(digits) - point:]
    exponent += point
    text = sign + whole + ("." + fraction if fraction else "")
    if exponent != 0 or draw(st.booleans()):
        signs = ["+", ""] if exponent >= 0 else ["-"]
        text += draw(st.sampled_from("eE")) + draw(st.sampled_from(signs))
        text += draw(st.sampled_from(["", "0"])) + str(abs(exponent))
    return text


def spell(draw, value):
    """One of the many texts that mean `value`."""
    space = lambda: draw(st.sampled_from(["", "", "", " ", "\n", "\r\n\t "]))
    if isinstance(value, Number):
        return spell_number(draw, value)
    if isinstance(value, str):
        return spell_string(draw, value)
    if isinstance(value, list):
        return "[" + (",".join(space() + spell(draw, item) + space() for item in value) or space()) + "]"
    if isinstance(value, dict):
        names = draw(st.permutations(list(value)))
        members = (space() + spell_string(draw, name) + space() + ":" + space() + spell(draw, value[name]) + space()
                   for name in names)
        return "{" + (",".join(members) or space()) + "}"
    return {None: "null", True: "true", False: "false"}[value]


NAMES = ["", "a", "b", "ts", "a/b", "m~n", "~1", "0", "1", "01", "-", "é", "e\u0301", "\0", "\ufb33", "\U0001f600"]
TEXTS = ["", "a", "1", "null", "é", "e\u0301", "\0", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "?"]
strings = st.sampled_from(TEXTS) | st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
names = st.sampled_from(NAMES) | strings
numbers = st.builds(Number, st.sampled_from([0, 1, -1, 10, 1999, 2**53, 2**53 + 1, 10**17 + 1, 10**40 + 1]) |
                    st.integers(-10**45, 10**45), st.integers(-30, 30) | st.integers(-400, 400))
scalars = st.none() | st.booleans() | numbers | strings
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=5) |
                      st.dictionaries(names, inner, max_size=5), max_leaves=20)
# Of so few names and values that pointers made up at random lead somewhere.
dense = st.recursive(st.sampled_from([None, Number(1, 0), Number(2, 0)]), lambda inner: st.lists(inner, max_size=3) |
                     st.dictionaries(st.sampled_from(["a", "m~n", "0", "01"]), inner, max_size=3), max_leaves=8)


def places(value, prefix=()):
    yield prefix
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, prefix + (name,))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, prefix + (i,))


def replaced(value, place, new):
    """`value` with something else at a place; `new` of MISSING takes it away."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    inner = replaced(value[place[0]], place[1:], new)
    if inner is MISSING:
        del copy[place[0]]
    else:
        copy[place[0]] = inner
    return copy


@st.composite
def pairs_of_values(draw, source=values):
    """Two that are the same, nearly the same, or have nothing in common."""
    one = draw(source)
    if draw(st.booleans()):
        return one, draw(st.sampled_from([one]) | source)
    place = draw(st.sampled_from(list(places(one))))
    new = draw(scalars if not place else scalars | st.just(MISSING) | source)
    return one, replaced(one, place, new)


def ask_json(driver, draw, value, **more):
    text = spell(draw, value)
    answer = driver.ask(type="application/json", body=text, **more)
    assert answer.is_json and answer.hashed == "="
    return answer


@check
@given(values, st.data())
def test_json_that_means_the_same_has_one_fingerprint(driver, value, data):
    one, other = ask_json(driver, data.draw, value), ask_json(driver, data.draw, value)
    assert one.kind == other.kind == "J"
    same(one, other)


@check
@given(pairs_of_values(), st.data())
def test_json_is_compared_by_its_meaning(driver, pair, data):
    one, other = (ask_json(driver, data.draw, value) for value in pair)
    same_exactly_if(meaning(pair[0]) == meaning(pair[1]), one, other, "body")


@check
@given(numbers, numbers, st.data())
@example(Number(9007199254740993, 0), Number(9007199254740992, 0), None)
@example(Number(1, 400), Number(10, 399), None)
@example(Number(1, -1), Number(10000000000000001, -17), None)
def test_numbers_are_compared_exactly(driver, a, b, data):
    spelled = [spell_number(data.draw, n) if data else f"{n.coefficient}e{n.exponent}" for n in (a, b)]
    one, other = (driver.ask(type="application/json", body=text) for text in spelled)
    same_exactly_if(a.meaning() == b.meaning(), one, other, "body")


@check
@given(st.integers(1, DEPTH_MAX + 6), st.lists(st.booleans(), min_size=DEPTH_MAX + 6, max_size=DEPTH_MAX + 6), scalars,
       st.data())
def test_nesting_is_followed_to_its_bound_and_counts_raw_beyond(driver, depth, kinds, value, data):
    compact = loose = spell(data.draw, value)
    for is_object in kinds[:depth]:
        compact = '{"a":' + compact + "}" if is_object else "[" + compact + "]"
        loose = '{ "\\u0061" :' + loose + "}" if is_object else "[ " + loose + "]"
    one, other = (driver.ask(type="application/json", body=text) for text in (compact, loose))
    assert one.kind == other.kind == ("J" if depth <= DEPTH_MAX else "R")
    same_exactly_if(depth <= DEPTH_MAX, one, other, "body")


BROKEN = ['"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"\\udc00\\ud800"', '{"a":1,"a":1}', '{"a":1,"\\u0061":1}',
          "01", "1.", ".5", "+1", "NaN", '"\t"', '"\\x41"', "[1,]", '{"a":1,}', "'a'", "nul", "[", "1 2", b'"\xff"',
          b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'\xef\xbb\xbf1', '"\\u00e"']


@check
@given(st.sampled_from(BROKEN), values, st.data())
def test_json_that_is_not_clean_counts_byte_by_byte(driver, broken, value, data):
    clean = raw(spell(data.draw, value))
    text = b'{"x":' + clean + b',"y":' + raw(broken) + b"}"
    one = driver.ask(type="application/json", body=text)
    assert one.kind == "R" and one.is_json
    same(one, driver.ask(type="application/json", body=text))
    other = driver.ask(type="application/json", body=text.replace(b'"y":', b'"y" :'))
    same_exactly_if(False, one, other, "body")


# The whole request.

@st.composite
def media_types(draw):
    """Its text, and what it means."""
    kind = draw(st.sampled_from(["text/plain", "text/html", "application/json", "application/x+json", "image/png"]))
    charset = draw(st.none() | st.sampled_from(["utf-8", "utf8", "latin1", "utf-16"]))
    case = lambda text: "".join(draw(st.sampled_from([c.lower(), c.upper()])) for c in text)
    space = lambda: draw(st.sampled_from(["", " ", "\t"]))
    text = space() + case(kind) + space()
    for _ in range(draw(st.integers(0, 2))):
        text += ";" + space() + draw(st.sampled_from(["", "v=1", 'a="x;charset=latin1"', "format=flowed"]))
    if charset:
        value = case(charset)
        text += ";" + space() + case("charset") + "=" + draw(st.sampled_from([value, '"' + value + '"']))
    return text, (kind, charset)


@st.composite
def requests(draw):
    """What to ask with, and what each part of it means."""
    padded = lambda text: draw(st.sampled_from(["", " ", "\t "])) + text + draw(st.sampled_from(["", " "]))
    visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7e), max_size=4)
    type_text, (kind, charset) = draw(media_types())
    coding = draw(st.sampled_from(["", "", "identity", "gzip", "br"]))
    conditions = [draw(st.just("") | visible) for _ in range(3)]
    query = draw(st.none() | visible)
    fields = {"method": draw(st.sampled_from(["POST", "PUT", "PATCH", "post"])),
              "host": draw(st.sampled_from(["", "a.test", "b.test:81"])), "path": "/" + draw(visible),
              "query": query, "type": type_text, "coding": padded(coding.upper()),
              **dict(zip(["if_match", "if_none_match", "if_unmodified_since"], map(padded, conditions)))}
    json = "json" in kind and charset in (None, "utf-8", "utf8") and coding in ("", "identity")
    value = draw(values)
    fields["body"] = spell(draw, value)
    if draw(st.integers(0, 9)) == 0:
        fields["body"], json = draw(st.binary(max_size=8)) + b"]", False  # never JSON
    means = {"method": fields["method"], "path": fields["path"], "query": query, "media type": (kind, charset),
             "content encoding": "" if coding == "identity" else coding, "preconditions": conditions,
             "body": ("J", meaning(value)) if json else ("R", raw(fields["body"])), "headers": None,
             "host": fields["host"]}
    return fields, means


@check
@given(requests(), requests(), st.sets(st.sampled_from(sorted({*PARTS} - {"headers"}))))
def test_requests_have_one_fingerprint_exactly_if_all_parts_mean_the_same(driver, first, second, taken):
    """The second gets some of its parts from the first, so that few differ; those are named, and no others."""
    (fields, means), (others, other_means) = first, second
    by_part = {"method": ["method"], "host": ["host"], "path": ["path"], "query": ["query"],
               "preconditions": ["if_match", "if_none_match", "if_unmodified_since"]}
    mixed, mixed_means = dict(others), dict(other_means)
    if {"body", "media type", "content encoding"} & taken:  # what a body means hangs on the others
        by_part["body"] = ["type", "coding", "body"]
        for part in ("media type", "content encoding"):
            mixed_means[part] = means[part]
        taken = taken - {"media type", "content encoding"} | {"body"}
    for part in taken:
        mixed_means[part] = means[part]
        mixed.update({name: fields[name] for name in by_part[part]})
    one, other = driver.ask(**fields), driver.ask(**mixed)
    assert one.kind == means["body"][0] and other.kind == mixed_means["body"][0]
    assert one.differing(other) == {part for part in PARTS if means[part] != mixed_means[part]}
    assert (one.digest == other.digest) == (means == mixed_means)


MOVABLE = ["method", "host", "path", "query", "if_match", "if_none_match", "if_unmodified_since", "body"]


@check
@given(st.binary(max_size=24), st.lists(st.integers(0, 24), min_size=7, max_size=7),
       st.lists(st.integers(0, 24), min_size=7, max_size=7), st.booleans())
def test_bytes_that_move_from_one_part_to_another_are_seen(driver, text, cuts, other_cuts, with_lengths):
    """The same bytes in the same order, cut up differently; among them such as the MAC itself puts between parts."""
    text = text.replace(b" ", b"_").replace(b"\t", b"_")  # at their ends, conditions don't count white space
    if with_lengths:
        text = b"".join(len(text).to_bytes(8, "little") + text[i:i + 1] for i in range(min(len(text), 8)))

    def cut(at):
        ends = sorted(min(i * (9 if with_lengths else 1), len(text)) for i in at)
        pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)])]
        return dict(zip(MOVABLE, pieces))

    first, second = cut(cuts), cut(other_cuts)
    one, other = driver.ask(type="text/plain", **first), driver.ask(type="text/plain", **second)
    assert (one.digest == other.digest) == (first == second)


@check
@given(st.text("ab/?&=", max_size=8), st.text("ab/?&=", max_size=8))
def test_a_query_that_is_empty_is_not_one_that_is_missing(driver, query, other_query):
    answers = {query: driver.ask(query=query), other_query: driver.ask(query=other_query), None: driver.ask(query=None)}
    assert len({answer.digest for answer in answers.values()}) == len(answers)


# Multipart.

BOUNDARY = "abcXYZ019'()+_,-./:=?"


@st.composite
def forms(draw):
    """Preamble, parts (header block, content) and epilogue."""
    line = st.builds("{}: {}".format, st.sampled_from(["Content-Disposition", "X-A", "Content-Type"]),
                     st.text("ab;=\" ", max_size=6))
    content = st.binary(max_size=12) | st.sampled_from([b"--a", b"\r\n--b\r\n\r\nx", b"\r\n", b"\r\n\r\n",
                                                        b"A: b\r\n\r\n"])
    part = st.tuples(st.lists(line, max_size=2).map("\r\n".join).map(str.encode), content)
    return (draw(st.just(b"") | st.binary(max_size=6)), tuple(draw(st.lists(part, max_size=3))),
            draw(st.just(b"") | st.binary(max_size=6).map(lambda end: b"\r\n" + end)))


def spell_form(draw, form):
    """Its body, with a boundary that isn't in it, and its media type."""
    preamble, parts, epilogue = form
    boundary = draw(st.text(BOUNDARY, min_size=1, max_size=8) | st.text(BOUNDARY, min_size=60, max_size=70))
    mark, pad = b"--" + boundary.encode(), lambda: draw(st.sampled_from([b"", b"", b" ", b"\t "]))
    blocks = [(headers + b"\r\n" if headers else b"") + b"\r\n" + content for headers, content in parts]
    for text in [preamble, *blocks]:
        assume(b"\r\n" + mark not in text + b"\r\n" + mark[:-1])
    assume(not preamble.startswith(mark))
    first = preamble + b"\r\n" + mark if preamble or draw(st.booleans()) else mark
    body = first + b"".join(pad() + b"\r\n" + block + b"\r\n" + mark for block in blocks) + b"--" + pad() + epilogue
    quoted = not set(boundary) <= set("abcXYZ019'+_-.") or draw(st.booleans())
    return {"type": f'multipart/form-data; boundary={chr(34) + boundary + chr(34) if quoted else boundary}',
            "body": body}


@st.composite
def pairs_of_forms(draw):
    preamble, parts, epilogue = one = draw(forms())
    other = draw(forms())
    if not parts or draw(st.integers(0, 3)) == 0:
        return one, draw(st.sampled_from([one, other]))
    at = draw(st.integers(0, len(parts) - 1))
    headers, content = parts[at]
    near = [parts[:at] + parts[at + 1:], parts + (parts[at],), parts[::-1],
            parts[:at] + ((headers, content + b"x"),) + parts[at + 1:],
            parts[:at] + ((b"", headers + b"\r\n\r\n" + content),) + parts[at + 1:],
            parts[:at] + ((headers + b"y" if headers else b"A: b", content),) + parts[at + 1:]]
    return one, draw(st.sampled_from([(preamble, changed, epilogue) for changed in near] +
                                     [(preamble + b"z", parts, epilogue), (preamble, parts, epilogue + b"\r\n"), one]))


@check
@given(pairs_of_forms(), st.data())
def test_multipart_is_compared_by_its_parts_not_its_boundary(driver, pair, data):
    spelled = [spell_form(data.draw, form) for form in pair]
    one, other = (driver.ask(**form) for form in spelled)
    assert one.kind == other.kind == "M" and one.hashed == other.hashed == "M"
    same_exactly_if(pair[0] == pair[1], one, other, "body")


@check
@given(forms(), st.data())
def test_multipart_that_is_cut_short_or_coded_counts_byte_by_byte(driver, form, data):
    spelled = spell_form(data.draw, form)
    end = spelled["body"].rindex(b"--")
    cut = {**spelled, "body": spelled["body"][:data.draw(st.integers(0, max(0, end - 1)))]}
    coded = {**spelled, "coding": "gzip"}
    for fields in (cut, coded):
        one = driver.ask(**fields)
        if fields is cut and one.kind == "M":
            continue  # its epilogue had looked like an end
        assert one.kind == "R" and one.hashed == "="
        same_exactly_if(False, one, driver.ask(**{**fields, "body": fields["body"] + b"x"}), "body")
        same_exactly_if(False, one, driver.ask(**{**fields, "type": fields["type"] + ";v=1"}), "media type")


# The rules of a route.

def pointer(place):
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in place)


def tokens(text):
    return [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:]]


def step(value, token):
    if isinstance(value, dict):
        return value.get(token, MISSING)
    if isinstance(value, list) and token.isascii() and token.isdigit() and str(int(token)) == token:
        return value[int(token)] if int(token) < len(value) else MISSING
    return MISSING


def meaning_without(value, ignored, way=()):
    """As meaning(), but for what pointers (as lists of tokens) lead to."""
    if list(way) in ignored and way:
        return MISSING
    if isinstance(value, dict):
        members = {name: meaning_without(item, ignored, way + (name,)) for name, item in value.items()}
        return ("object", frozenset((name, item) for name, item in members.items() if item is not MISSING))
    if isinstance(value, list):
        return ("array", tuple(meaning_without(item, ignored, way + (str(i),)) for i, item in enumerate(value)))
    return meaning(value)


def chosen_meaning(value, pointers, ignored):
    found = []
    for text in pointers:
        inner, way = value, ()
        for token in tokens(text):
            inner, way = step(inner, token), way + (token,)
            if inner is MISSING or list(way) in ignored:
                inner = MISSING
                break
        found.append(MISSING if inner is MISSING else meaning_without(inner, ignored, way))
    return "V", found


def chosen_or_all(value, pointers, ignored):
    """Where none of the pointers leads anywhere, the whole of it counts."""
    kind, found = chosen_meaning(value, pointers, ignored)
    return (kind, found) if any(item is not MISSING for item in found) else ("J", meaning_without(value, ignored))


@st.composite
def ruled_pairs(draw):
    """Two values and some pointers: most of them into the values, some into nothing."""
    one, other = draw(pairs_of_values(draw(st.sampled_from([values, dense, dense]))))
    ways = [place for place in [*places(one), *places(other)] if place]
    texts = st.sampled_from([pointer(place) for place in ways]) if ways else st.nothing()
    wild = st.lists(st.sampled_from(["a", "m~n", "0", "1", "01", "-", ""]), min_size=1, max_size=3).map(pointer)
    pointers = draw(st.lists(texts | wild, max_size=4))
    if ways and draw(st.booleans()):  # change just something that a pointer leads to
        place = draw(st.sampled_from([place for place in ways if place in set(places(one))] or [()]))
        pointers.append(pointer(place) if place else "/a")
        if place and draw(st.integers(0, 3)) == 0:
            one = replaced(one, place, None)  # null is not missing
            other = replaced(one, place, MISSING)
        else:
            other = replaced(one, place, draw(scalars if not place else scalars | st.just(MISSING)))
    return one, other, pointers


@check
@given(ruled_pairs(), st.data())
def test_ignored_pointers_do_not_count_and_all_else_does(driver, pair, data):
    one, other, ignored = pair
    rules = {"ignored": ignored}
    answers = [ask_json(driver, data.draw, value, rules=rules) for value in (one, other)]
    lists = [tokens(text) for text in ignored]
    assert [answer.kind for answer in answers] == ["J", "J"]
    same_exactly_if(meaning_without(one, lists) == meaning_without(other, lists), *answers, "body")


@check
@given(ruled_pairs(), st.lists(st.sampled_from(["", "/a", "/a/0", "/ts", "/0", "/b/a"]), max_size=2), st.data())
def test_of_chosen_pointers_their_values_count_and_nothing_else(driver, pair, ignored, data):
    one, other, pointers = pair
    if data.draw(st.integers(0, 9)) == 0:
        pointers = [*pointers, ""]  # the whole of it
    rules = {"body": "P", "pointers": pointers, "ignored": ignored}
    answers = [ask_json(driver, data.draw, value, rules=rules) for value in (one, other)]
    lists = [tokens(text) for text in ignored if text]
    expected = [chosen_or_all(value, pointers, lists) for value in (one, other)]
    assert [answer.kind for answer in answers] == [kind for kind, _ in expected]
    same_exactly_if(expected[0] == expected[1], *answers, "body")


@check
@given(*[st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, Number(1, 0), Number(12, 0), Number(2, 0), []]))
         for _ in range(2)], st.permutations(["/a", "/b", "/c"]), st.data())
def test_values_that_move_from_one_chosen_pointer_to_another_are_seen(driver, one, other, pointers, data):
    rules = {"body": "P", "pointers": pointers}
    answers = [ask_json(driver, data.draw, value, rules=rules) for value in (one, other)]
    same_exactly_if(meaning(one) == meaning(other), *answers, "body")


@check
@given(st.sampled_from(BROKEN), st.lists(st.sampled_from(["/x", "/y", "/z"]), max_size=3), st.sampled_from("CP"))
def test_rules_for_json_leave_broken_json_whole(driver, broken, pointers, body):
    rules = {"body": body, "pointers": pointers, "ignored": pointers}
    texts = [b'{"x":' + number + b',"y":' + raw(broken) + b"}" for number in (b"1", b"2", b"1.0")]
    answers = [driver.ask(type="application/json", body=text, rules=rules) for text in texts]
    assert {answer.kind for answer in answers} == {"R"}
    assert len({answer.digest for answer in answers}) == 3


@check
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.booleans())
def test_bytes_that_are_hashed_of_one_body_are_another_body(driver, items, choose):
    """A client may know how what is ignored is marked, and how what is chosen is framed."""
    frame = lambda text: len(text).to_bytes(8, "little") + text
    if choose:
        rules, hashed = {"body": "P", "pointers": ["/0"]}, frame(b"/0") + frame(str(items[0]).encode())
    else:
        rules, hashed = {"ignored": ["/0"]}, b"[" + b",".join([b"?", *(str(i).encode() for i in items[1:])]) + b"]"
    one = driver.ask(type="application/json", body=str(items), rules=rules)
    other = driver.ask(type="application/json", body=hashed, rules=rules)
    assert (one.kind, other.kind) == ("V" if choose else "J", "R")
    same_exactly_if(False, one, other, "body")


@check
@given(pairs_of_values(), st.data(), st.lists(st.sampled_from(["/a", "/0"]), max_size=2))
def test_a_raw_body_counts_byte_by_byte(driver, pair, data, ignored):
    texts = [spell(data.draw, value) for value in pair]
    rules = {"body": "R", "ignored": ignored}
    one, other = (driver.ask(type="application/json", body=text, rules=rules) for text in texts)
    assert one.kind == other.kind == "R"
    same_exactly_if(texts[0] == texts[1], one, other, "body")


def spell_name(draw, name):
    return "".join(draw(st.sampled_from([chr(byte), f"%{byte:02x}", f"%{byte:02X}"]))
                   if byte < 0x80 and (chr(byte).isalnum() or chr(byte) == "+") else f"%{byte:02X}"
                   for byte in name.encode())


QUERY_NAMES = ["utm", "ut", "utm2", "UTM", "a", "a b", "é", "%", "a+b", ""]


@st.composite
def queries(draw):
    """Its text, or None; and its parameters as (name, text of it)."""
    parameters = []
    for name in draw(st.lists(st.sampled_from(QUERY_NAMES), max_size=4)):
        text = draw(st.sampled_from(["", "=", "=1", "=2", "=utm", "=a=b"]))
        parameters.append((name, spell_name(draw, name) + text))
    return ("&".join(text for _, text in parameters) if parameters else None), parameters


@check
@given(queries(), queries(), st.sets(st.sampled_from(QUERY_NAMES[:-1])), st.booleans())
def test_ignored_query_names_do_not_count_and_all_else_does(driver, first, second, ignored, mingle):
    (query, parameters), (other_query, others) = first, second
    if mingle:  # the same one with ignored parameters among its own
        extra = [parameter for parameter in others if parameter[0] in ignored]
        others = [parameter for pair in zip(parameters, extra) for parameter in pair] + parameters[len(extra):]
        others += extra[len(parameters):]
        other_query = "&".join(text for _, text in others) if others else None
    rules = {"ignored_query": sorted(ignored)}
    left = [[text for name, text in own if name not in ignored] for own in (parameters, others)]
    one, other = driver.ask(query=query, rules=rules), driver.ask(query=other_query, rules=rules)
    same_exactly_if(left[0] == left[1], one, other, "query")
    if left[0] == []:
        same(one, driver.ask(query=None, rules=rules))


@check
@given(st.lists(st.tuples(*[st.text("ab,", max_size=3)] * 3), min_size=2, max_size=2),
       st.lists(st.sampled_from([" ", "\t", ""]), min_size=6, max_size=6), st.integers(1, 3))
def test_chosen_headers_count_each_by_itself(driver, pair, spaces, count):
    rules = {"headers": ["x-a", "x-b", "x-c"][:count]}
    padded = [[spaces[3 * i + k] + value for k, value in enumerate(own)][:count] for i, own in enumerate(pair)]
    one, other = (driver.ask(rules=rules, headers=own) for own in padded)
    same_exactly_if(pair[0][:count] == pair[1][:count], one, other, "headers")
    plain = driver.ask()
    assert plain.digest != one.digest and set(plain.parts["headers"]) == {"0"}


@check
@given(requests(), requests(), st.binary(min_size=1, max_size=8), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_natural_key_says_it_all(driver, first, second, key, other_key, shared):
    other_key = key if shared else other_key
    rules = {"body": "K"}
    one, other = driver.ask(key=key, rules=rules, **first[0]), driver.ask(key=other_key, rules=rules, **second[0])
    assert (one.digest == other.digest) == (key == other_key)
    assert one.differing(other) == set()
    assert driver.ask(rules=rules, **first[0]).digest == driver.ask(**first[0]).digest  # without one, the request does
    assert driver.ask(**first[0]).digest != one.digest


@check
@given(requests())
def test_rules_that_meet_nothing_change_nothing(driver, made):
    fields, _ = made
    rules = {"ignored": ["/not/there", "/nor~1here"], "ignored_query": ["nothing"]}
    assert driver.ask(rules=rules, **fields).digest == driver.ask(**fields).digest
