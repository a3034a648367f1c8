// SPDX-License-Identifier: Apache-2.0
// Compares our canonical form with Node's JSON.stringify (numbers) and npm's canonicalize (whole texts).
//     node compare.js numbers|texts DRIVER COUNT SEED
'use strict';
const { spawnSync } = require('node:child_process');
const canonicalize = require('canonicalize');

const BATCH = 200000;
const [, , what, driver, countText, seedText] = process.argv;

let randomState = Number(seedText) >>> 0;
function random32() { // mulberry32
  randomState = (randomState + 0x6d2b79f5) >>> 0;
  let t = randomState;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return (t ^ (t >>> 14)) >>> 0;
}
const below = (bound) => random32() % bound;
const pick = (list) => list[below(list.length)];

const view = new DataView(new ArrayBuffer(8));
function fromBits(high, low) {
  view.setUint32(0, high);
  view.setUint32(4, low);
  return view.getFloat64(0);
}
// The doubles next to a given one matter most where its neighbours lie at unequal distances.
function neighbour(value, steps) {
  view.setFloat64(0, value);
  view.setBigUint64(0, BigInt.asUintN(64, view.getBigUint64(0) + BigInt(steps)));
  return view.getFloat64(0);
}

const kinds = [
  () => fromBits(random32(), random32()),
  () => fromBits(random32() & 0x800fffff, random32()), // subnormal
  () => 2 ** 53 + (below(2 ** 20) - 2 ** 19),
  () => neighbour(2 ** (below(2098) - 1074), below(7) - 3),
  () => neighbour(Number(`1e${below(632) - 323}`), below(7) - 3),
  () => (below(2) ? 1 : -1) * below(10 ** 6) / 10 ** below(8),
  () => random32() * 2 ** 32 + random32(),
  () => below(10 ** 9) * 10 ** (below(30) - 12),
];
function randomDouble() {
  for (;;) {
    const value = pick(kinds)();
    if (Number.isFinite(value)) return value;
  }
}

function everyPower() {
  const all = [0, -0, Number.MAX_VALUE, Number.MIN_VALUE, Number.MAX_SAFE_INTEGER, 2 ** -44, 1e21, 1e-7, 123e-20];
  for (let e = -1074; e <= 1023; e++) for (let s = -3; s <= 3; s++) all.push(neighbour(2 ** e, s));
  for (let e = -323; e <= 308; e++) for (let s = -3; s <= 3; s++) all.push(neighbour(Number(`1e${e}`), s));
  return all.filter(Number.isFinite);
}

// Another spelling of the same decimal number: the point moved, zeros added, the exponent written otherwise.
function respell(text) {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(text);
  let digits = (whole + fraction).replace(/^0+(?=\d)/, '');
  let scale = Number(exponent) - fraction.length; // the number is digits × 10^scale
  const zeros = below(3);
  digits += '0'.repeat(zeros);
  scale -= zeros;
  const cut = below(digits.length + 6) - 5; // digits before the point; below one there are zeros behind it
  const before = cut > 0 ? digits.slice(0, cut) : '0';
  const after = cut > 0 ? digits.slice(cut) : '0'.repeat(-cut) + digits;
  const power = scale + after.length;
  const spelledPower = (power < 0 ? '-' : pick(['', '+'])) + '0'.repeat(below(3)) + Math.abs(power);
  const mantissa = before.replace(/^0+(?=\d)/, '') + (after ? `.${after}` : '');
  return sign + mantissa + (power === 0 && below(2) ? '' : pick(['e', 'E']) + spelledPower);
}

function randomString() {
  const length = pick([0, 1, 1, 2, 3, 8, 30]);
  let text = '';
  for (let i = 0; i < length; i++) {
    text += String.fromCodePoint(pick([
      () => 0x20 + below(0x5f),
      () => below(0x20),
      () => pick([0x22, 0x5c, 0x2f, 0x7f, 0x80, 0xff, 0x2028, 0x2029]),
      () => 0x80 + below(0x780),
      () => 0x800 + below(0xd000),
      () => 0xe000 + below(0x2000), // sorts behind the next by UTF-16, before it by UTF-8
      () => 0x10000 + below(0x100000),
    ])());
  }
  return text;
}

const space = () => pick(['', '', '', ' ', '\t', '\r', '  ']);
const short = { '"': '\\"', '\\': '\\\\', '/': '\\/', '\b': '\\b', '\f': '\\f', '\n': '\\n', '\r': '\\r', '\t': '\\t' };
const hex = (unit) => `\\u${pick([(s) => s, (s) => s.toUpperCase()])(unit.toString(16).padStart(4, '0'))}`;
function spellString(text) {
  let out = '';
  for (const character of text) {
    const mustEscape = character < ' ' || character === '"' || character === '\\';
    if (!mustEscape && below(8)) out += character;
    else if (short[character] && below(2)) out += short[character];
    else out += [...Array(character.length).keys()].map((i) => hex(character.charCodeAt(i))).join('');
  }
  return `"${out}"`;
}

function spellValue(depth) {
  const kind = below(depth > 6 ? 5 : 8);
  if (kind < 2) return spellString(randomString());
  if (kind === 2) return respell(JSON.stringify(randomDouble()));
  if (kind === 3) return pick(['true', 'false', 'null', '[]', '{}', '[ ]', '{ }']);
  if (kind === 4) return String(below(1000));
  const count = pick([0, 1, 2, 3, 5, depth === 0 ? 40 : 4]);
  const items = [];
  if (kind === 5) {
    for (let i = 0; i < count; i++) items.push(space() + spellValue(depth + 1) + space());
    return `[${items.join(',')}]`;
  }
  const names = new Set();
  while (names.size < count) names.add(randomString());
  for (const name of names) {
    items.push(`${space()}${spellString(name)}${space()}:${space()}${spellValue(depth + 1)}${space()}`);
  }
  return `{${items.join(',')}}`;
}

function ask(lines) {
  const input = `${lines.join('\n')}\n`;
  const run = spawnSync(driver, [], { input, encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (run.status !== 0) throw new Error(`the driver ended with ${run.status ?? run.signal}: ${run.stderr}`);
  const answers = run.stdout.split('\n');
  if (answers.length !== lines.length + 1) throw new Error(`${lines.length} lines, ${answers.length - 1} answers`);
  return answers;
}

let compared = 0;
function check(texts, expected) {
  const answers = ask(texts);
  for (let i = 0; i < texts.length; i++) {
    if (answers[i] !== expected[i]) {
      console.error(`seed ${seedText}: ${texts[i]}\n  became   ${answers[i]}\n  expected ${expected[i]}`);
      process.exit(1);
    }
  }
  compared += texts.length;
}

function numbers(doubles) {
  const expected = doubles.map((value) => JSON.stringify(value));
  const texts = expected.map((text) => (below(4) ? respell(text) : text));
  texts.forEach((text, i) => {
    if (Number(text) !== doubles[i]) throw new Error(`this test misspelled ${expected[i]} as ${text}`);
  });
  check(texts, expected);
}

const count = Number(countText);
if (what === 'numbers') {
  numbers(everyPower());
  for (let left = count; left > 0; left -= BATCH) numbers(Array.from({ length: Math.min(left, BATCH) }, randomDouble));
} else {
  const texts = Array.from({ length: count }, () => space() + spellValue(0) + space());
  check(texts, texts.map((text) => canonicalize(JSON.parse(text))));
}
console.log(compared);
