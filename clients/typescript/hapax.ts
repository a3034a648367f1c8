// SPDX-License-Identifier: Apache-2.0
/* Hapax for TypeScript: work that must happen once. One file without dependencies, for Node 18 and later and for
 * browsers; copy it.
 *
 *     const daemon = new Hapax("http://127.0.0.1:8081", token);
 *     const {result, isRetry, originalTimestamp} = await daemon.once("refund-order-17", () => refund(order));
 *
 *     const sender = new Sender(new FileStore("/var/lib/shop/intents")); // in a browser: new Sender()
 *     const response = await sender.fetch("refund-order-17", url, {method: "POST", body: {amount: 500}});
 *
 * `once` runs a function once for a key, whatever process or machine calls it, and gives everybody the same result
 * (docs/guide/operations.md). `Sender.fetch` is a careful fetch: key and request are written down before the first
 * attempt, so that a reload, a second tab or the next process goes on with the same key (docs/guide/clients.md). */

export type Json = null | boolean | number | string | readonly Json[] | {readonly [name: string]: Json | undefined};

/** Something that Hapax, or a server, said no to. */
export class HapaxError extends Error {
  constructor(message: string, readonly code = "", readonly status = 0, readonly detail: unknown = undefined) {
    super(message);
    this.name = new.target.name;
  }
}
/** The key, or the name of the operation, was used for something else. */
export class Mismatch extends HapaxError {}
/** Somebody else is still at it. */
export class InFlight extends HapaxError {}
/** It may have been done. Don't try again with a new key. */
export class Unknown extends HapaxError {}
/** It was not done, and there are no attempts left; a later call may go on. */
export class Exhausted extends HapaxError {}
/** Another claimant has the operation, or it has ended otherwise: undo what you did, if it is not that. */
export class Fenced extends HapaxError {}
/** Throw it inside `once`: it failed for good, and every later call throws it again. `detail` is any JSON. */
export class Failed extends HapaxError {
  constructor(detail: Json = null, readonly originalTimestamp = new Date()) {
    super(`the operation failed: ${JSON.stringify(detail)}`, "", 0, detail);
  }
}
/** Throw it inside `once`: nothing was done, and the next call may try again. */
export class NotDone extends HapaxError {}

const sleepFor = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const between = (low: number, high: number): number => low + Math.random() * (high - low);

/** A module of Node. The name is a variable, so that bundlers for browsers leave it alone. */
const ofNode = <T>(name: string): Promise<T> => import(name) as Promise<T>;

/** A UUID of version 4. crypto is not global in Node 18, and crypto.randomUUID missing on pages without TLS. */
async function newKey(): Promise<string> {
  const {webcrypto} = globalThis.crypto ? {webcrypto: crypto} : await ofNode<{webcrypto: Crypto}>("node:crypto");
  const bytes = webcrypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** fetch with the whole body, within a time; a signal of the caller's ends it sooner. */
async function exchange(url: string, init: RequestInit, timeoutMs: number, signal?: AbortSignal | null) {
  const ended = new AbortController();
  const end = (): void => ended.abort(signal?.reason);
  const timer = setTimeout(() => ended.abort(new Error(`no response within ${timeoutMs} ms`)), timeoutMs);
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end);
  try {
    const response = await fetch(url, {...init, signal: ended.signal});
    return {response, text: await response.text()};
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
}

// The operations API

export interface Done<T> {
  result: T;
  isRetry: boolean;
  originalTimestamp: Date;
}

export interface OnceOptions {
  name?: string; // the kind of operation
  input?: Json; // a key with other input is refused
  lifetime?: string; // how long the result is kept: "24h"
  leaseMs?: number;
  waitMs?: number; // for another claimant
  repeatsSafely?: boolean; // an unknown operation is run again
  onError?: "unknown" | "release" | "fail"; // after any error but Failed and NotDone
  claimant?: string; // of an earlier call that this one repeats
}

interface Answer {
  id: string;
  epoch: number;
  state: "processing" | "completed" | "failed" | "unknown" | "released";
  is_retry: boolean;
  original_time: string | null;
  result?: unknown;
  error?: Json;
  attempt?: number;
  cancel_reason?: string;
  checkpoints?: Record<string, unknown>;
  lease_until?: string | null;
}

interface Problem {
  error_code?: string;
  title?: string;
  hint?: string;
  retryable?: boolean;
}

function parsed(text: string): Problem {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** What a function that runs inside `once` may use. */
export class Work {
  readonly id: string;
  readonly attempt: number;
  /** Grows with each claim: what the work writes to can refuse an older one. */
  readonly fencingToken: number;
  /** What earlier claimants have kept. */
  readonly checkpoints: Record<string, unknown>;
  /** Somebody has asked to end it. */
  cancelReason: string | undefined;
  /** Aborted when another claimant has it: stop. */
  readonly signal: AbortSignal;

  constructor(private readonly daemon: Hapax, claimed: Answer, signal: AbortSignal) {
    this.id = claimed.id;
    this.fencingToken = claimed.epoch;
    this.attempt = claimed.attempt ?? 1;
    this.checkpoints = claimed.checkpoints ?? {};
    this.signal = signal;
  }

  /** Keeps a partial result; if this process dies, the next claimant finds it in `checkpoints`. */
  async checkpoint(name: string, value: Json): Promise<void> {
    this.checkpoints[name] = value;
    await this.daemon.call("checkpoint", {id: this.id, epoch: this.fencingToken, name, value});
  }
}

/** The operations API of a daemon. */
export class Hapax {
  private readonly url: string;

  constructor(url: string, private readonly token: string,
              private readonly options: {timeoutMs?: number; attempts?: number} = {}) {
    this.url = url.replace(/\/$/, "");
  }

  /** One request, repeated while the daemon can't be reached or says that it can't do it now. All of them may be
   * repeated: that is what the claimant and the epoch are for. */
  async call(verb: string, body: {[name: string]: Json | undefined}): Promise<Answer> {
    const {timeoutMs = 40_000, attempts = 5} = this.options;
    const init = {method: "POST", body: JSON.stringify(body),
                  headers: {"Authorization": `Bearer ${this.token}`, "Content-Type": "application/json"}};
    for (let attempt = 1; ; attempt++) {
      try {
        const {response, text} = await exchange(`${this.url}/v1/operations/${verb}`, init, timeoutMs);
        if (response.ok) return JSON.parse(text) as Answer;
        if (response.status < 500 || attempt === attempts) throw refusal(response.status, parsed(text));
      } catch (error) {
        if (error instanceof HapaxError) throw error;
        if (attempt === attempts) throw new Unknown(`the daemon can't be reached: ${String(error)}`);
      }
      await sleepFor(between(100, 200) * 2 ** (attempt - 1));
    }
  }

  /** Runs fn(work) once for the key. Whoever comes later, or meanwhile, gets its result, which must be JSON.
   *
   * fn throws Failed (kept, and thrown for everybody) or NotDone (the next call runs it). What becomes of the operation
   * after any other error is `onError`: "unknown" (nobody runs it again before somebody has looked), "release" (fn has
   * undone what it did) or "fail". */
  async once<T>(key: string, fn: (work: Work) => T | Promise<T>, options: OnceOptions = {}): Promise<Done<T>> {
    const {name = "", input, leaseMs = 60_000, waitMs = 30_000, repeatsSafely = false} = options;
    const claim = {key, name, input, claimant: options.claimant ?? (await newKey()), lease: `${leaseMs}ms`,
                   repeats_safely: repeatsSafely};
    const until = Date.now() + waitMs;
    let claimed: Answer | undefined;
    while (!claimed) {
      const left = Math.min(30_000, Math.max(1, until - Date.now()));
      try {
        claimed = await this.call("claim", {...claim, wait: `${left}ms`});
      } catch (error) {
        if (!(error instanceof InFlight) || Date.now() >= until) throw error;
      }
    }
    const originalTimestamp = new Date(claimed.original_time ?? 0);
    if (claimed.state === "completed") return {result: claimed.result as T, isRetry: true, originalTimestamp};
    if (claimed.state === "failed") throw new Failed(claimed.error, originalTimestamp);
    if (claimed.state === "unknown")
      throw new Unknown(`the lease of ${key} has lapsed, and it may have been done`, "outcome_unknown");
    return this.run(claimed, fn, options, leaseMs);
  }

  private async run<T>(claimed: Answer, fn: (work: Work) => T | Promise<T>, options: OnceOptions, leaseMs: number) {
    const lost = new AbortController(), over = new AbortController();
    const work = new Work(this, claimed, lost.signal);
    const operation = {id: claimed.id, epoch: claimed.epoch}, lifetime = options.lifetime ?? "24h";
    const renewal = this.renew(work, leaseMs, lost, over.signal);
    let result: T;
    try {
      result = await fn(work);
    } catch (error) {
      if (error instanceof Failed) await this.call("fail", {...operation, error: error.detail as Json, lifetime});
      else if (error instanceof NotDone || options.onError === "release")
        await this.call("release", {...operation, reason: String(error).slice(0, 60).replace(/[\0-\x1f\x7f]/g, " ")});
      else if (options.onError === "fail") await this.call("fail", {...operation, error: String(error), lifetime});
      throw error;
    } finally {
      over.abort();
      await renewal;
    }
    const done = await this.call("complete", {...operation, result: result as Json, lifetime});
    return {result, isRetry: false, originalTimestamp: new Date(done.original_time ?? 0)};
  }

  private async renew(work: Work, leaseMs: number, lost: AbortController, over: AbortSignal): Promise<void> {
    for (;;) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leaseMs / 3);
        over.addEventListener("abort", () => (clearTimeout(timer), resolve()));
      });
      if (over.aborted) return;
      try {
        const told = await this.call("renew", {id: work.id, epoch: work.fencingToken, lease: `${leaseMs}ms`});
        work.cancelReason = told.cancel_reason;
      } catch (error) {
        if (error instanceof Unknown) continue; // the daemon is away: the lease may last
        lost.abort(error);
        return;
      }
    }
  }

  /** Did it go through? The operation as it is now, or undefined. */
  async find(key: string, {name = "", waitMs = 0} = {}): Promise<Answer | undefined> {
    try {
      return await this.call("find", {key, name, wait: waitMs > 0 ? `${waitMs}ms` : undefined});
    } catch (error) {
      if (error instanceof HapaxError && error.status === 404) return undefined;
      throw error;
    }
  }
}

function refusal(status: number, problem: Problem): HapaxError {
  const code = problem.error_code ?? "";
  const kinds: Record<string, typeof HapaxError> = {
    "CONFLICT.idempotency.in_flight": InFlight,
    "CONFLICT.idempotency.outcome_unknown": Unknown,
    "CONFLICT.idempotency.payload_mismatch": Mismatch,
    "CONFLICT.operation.fenced": Fenced,
    "DEPENDENCY.unavailable": Unknown,
  };
  const text = `${problem.title ?? "the daemon refused it"} (${status}). ${problem.hint ?? ""}`;
  return new (kinds[code] ?? HapaxError)(text, code, status, problem);
}

// Where intents are kept

/** Keeps a text under each name. When a promise of `add` or `put` resolves, a crash doesn't undo it. */
export interface Store {
  /** Stores the text unless the name has one, in one step; resolves with what is there then. */
  add(name: string, text: string): Promise<string>;
  put(name: string, text: string): Promise<void>;
  get(name: string): Promise<string | undefined>;
  remove(name: string): Promise<void>;
  names(): Promise<string[]>;
  /** Runs fn while no other process or tab runs one for this name. */
  lock<T>(name: string, fn: () => Promise<T>): Promise<T>;
}

/** One tab at a time, where the browser has locks; others wait. Without them the same key still goes with every
 * request. */
function lockOfTabs<T>(name: string, fn: () => Promise<T>): Promise<T> {
  const locks = typeof navigator === "undefined" ? undefined : (navigator as Partial<Navigator>).locks;
  return locks ? (locks.request(name, fn) as Promise<T>) : fn();
}

/** localStorage. `add` is atomic only where the browser has locks: prefer IndexedStore. */
export class LocalStore implements Store {
  constructor(private readonly storage: Storage = localStorage, private readonly prefix = "hapax:") {}

  async add(name: string, text: string): Promise<string> {
    const found = this.storage.getItem(this.prefix + name);
    if (found === null) this.storage.setItem(this.prefix + name, text);
    return found ?? text;
  }
  async put(name: string, text: string): Promise<void> {
    this.storage.setItem(this.prefix + name, text);
  }
  async get(name: string): Promise<string | undefined> {
    return this.storage.getItem(this.prefix + name) ?? undefined;
  }
  async remove(name: string): Promise<void> {
    this.storage.removeItem(this.prefix + name);
  }
  async names(): Promise<string[]> {
    const all = Array.from({length: this.storage.length}, (_, i) => this.storage.key(i) ?? "");
    return all.filter((name) => name.startsWith(this.prefix)).map((name) => name.slice(this.prefix.length));
  }
  lock<T>(name: string, fn: () => Promise<T>): Promise<T> {
    return lockOfTabs(this.prefix + name, fn);
  }
}

/** IndexedDB, whose transactions are atomic over all tabs. */
export class IndexedStore implements Store {
  private opened: Promise<IDBDatabase> | undefined;

  constructor(private readonly database = "hapax") {}

  private open(): Promise<IDBDatabase> {
    this.opened ??= new Promise((resolve, reject) => {
      const asked = indexedDB.open(this.database, 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore("intents");
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error);
    });
    return this.opened;
  }
  /** Resolves when the transaction is complete; `durability` has the disk's word for it, where the browser can. */
  private async change<T>(mode: IDBTransactionMode, act: (intents: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    const transaction = (await this.open()).transaction("intents", mode, {durability: "strict"});
    return new Promise((resolve, reject) => {
      const asked = act(transaction.objectStore("intents"));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? asked.error);
    });
  }
  async add(name: string, text: string): Promise<string> {
    try {
      await this.change("readwrite", (intents) => intents.add(text, name));
      return text;
    } catch (error) {
      const found = await this.get(name);
      if (found === undefined) throw error;
      return found;
    }
  }
  async put(name: string, text: string): Promise<void> {
    await this.change("readwrite", (intents) => intents.put(text, name));
  }
  async get(name: string): Promise<string | undefined> {
    return this.change("readonly", (intents) => intents.get(name) as IDBRequest<string | undefined>);
  }
  async remove(name: string): Promise<void> {
    await this.change("readwrite", (intents) => intents.delete(name));
  }
  async names(): Promise<string[]> {
    return (await this.change("readonly", (intents) => intents.getAllKeys())).map(String);
  }
  lock<T>(name: string, fn: () => Promise<T>): Promise<T> {
    return lockOfTabs(`${this.database}:${name}`, fn);
  }
}

// What is used of Node, so that a browser's compiler needs no types of it.
interface NodeFile {
  writeFile(text: string): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}
interface NodeFiles {
  open(path: string, flags: string, mode?: number): Promise<NodeFile>;
  readFile(path: string, encoding: "utf8"): Promise<string>;
  mkdir(path: string, options: {recursive: true; mode: number}): Promise<unknown>;
  readdir(path: string): Promise<string[]>;
  rename(from: string, to: string): Promise<void>;
  link(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
}
declare const process: {pid: number; kill(pid: number, signal: 0): boolean};
const isCode = (error: unknown, code: string): boolean => (error as {code?: string} | null)?.code === code;

/** A folder of private files, for Node. One process at a time works on a name; another gets InFlight. */
export class FileStore implements Store {
  private loaded: Promise<NodeFiles> | undefined;

  constructor(private readonly folder: string) {}

  private files(): Promise<NodeFiles> {
    this.loaded ??= ofNode<NodeFiles>("node:fs/promises").then(async (files) => {
      await files.mkdir(this.folder, {recursive: true, mode: 0o700});
      return files;
    });
    return this.loaded;
  }
  private path(name: string, ending = ".json"): string {
    return `${this.folder}/${encodeURIComponent(name).replace(/\./g, "%2E")}${ending}`;
  }
  private async sync(path: string): Promise<void> {
    const file = await (await this.files()).open(path, "r");
    await file.sync().finally(() => file.close());
  }
  /** Writes the text beside, synced, and has `place` put it where it belongs. */
  private async write(text: string, place: (files: NodeFiles, aside: string) => Promise<void>): Promise<void> {
    const files = await this.files(), aside = this.path(await newKey(), ".new");
    const file = await files.open(aside, "wx", 0o600);
    try {
      await file.writeFile(text).then(() => file.sync()).finally(() => file.close());
      await place(files, aside);
    } finally {
      await files.unlink(aside).catch(() => undefined);
    }
    await this.sync(this.folder);
  }
  async add(name: string, text: string): Promise<string> {
    try {
      await this.write(text, (files, aside) => files.link(aside, this.path(name)));
      return text;
    } catch (error) {
      if (!isCode(error, "EEXIST")) throw error;
      return (await this.get(name)) ?? this.add(name, text);
    }
  }
  async put(name: string, text: string): Promise<void> {
    await this.write(text, (files, aside) => files.rename(aside, this.path(name)));
  }
  async get(name: string): Promise<string | undefined> {
    try {
      return await (await this.files()).readFile(this.path(name), "utf8");
    } catch (error) {
      if (isCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }
  async remove(name: string): Promise<void> {
    await (await this.files()).unlink(this.path(name)).catch((error) => {
      if (!isCode(error, "ENOENT")) throw error;
    });
  }
  async names(): Promise<string[]> {
    const all = await (await this.files()).readdir(this.folder);
    return all.filter((name) => name.endsWith(".json")).map((name) => decodeURIComponent(name.slice(0, -5)));
  }
  /** A process, by its number and, on Linux, its start: numbers are used again. */
  private async holder(pid: number): Promise<string> {
    const stat = await (await this.files()).readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
    return `${pid} ${stat.slice(stat.lastIndexOf(")")).split(" ")[20] ?? ""}`;
  }
  private async isAlive(holder: string): Promise<boolean> {
    const pid = parseInt(holder, 10);
    try {
      if (pid === process.pid) return false; // this process takes turns by itself: it is an earlier one's
      process.kill(pid, 0);
    } catch (error) {
      if (!isCode(error, "EPERM")) return false;
    }
    return holder === (await this.holder(pid));
  }
  /** Two processes that find a dead one's lock at the same time may both get it. They still send the same key. */
  async lock<T>(name: string, fn: () => Promise<T>): Promise<T> {
    const path = this.path(name, ".lock"), files = await this.files(), mine = await this.holder(process.pid);
    for (;;) {
      try {
        await this.write(mine, (_, aside) => files.link(aside, path));
        break;
      } catch (error) {
        if (!isCode(error, "EEXIST")) throw error;
        const holder = await files.readFile(path, "utf8").catch(() => "");
        if (holder && (await this.isAlive(holder))) throw new InFlight(`process ${holder} is sending ${name}`);
        if (holder) await files.unlink(path).catch(() => undefined);
      }
    }
    return fn().finally(() => files.unlink(path));
  }
}

function defaultStore(): Store {
  if (typeof indexedDB !== "undefined") return new IndexedStore();
  if (typeof localStorage !== "undefined") return new LocalStore();
  throw new HapaxError("there is no IndexedDB and no localStorage here: give a FileStore");
}

// A careful fetch

/** Retries by class: `hapax send --class` has the same. */
export const CLASSES = {
  user: {attempts: 4, totalMs: 10_000, baseMs: 100, capMs: 2_000},
  background: {attempts: 6, totalMs: 300_000, baseMs: 4_000, capMs: 64_000},
  scheduled: {attempts: 4, totalMs: 3_600_000, baseMs: 60_000, capMs: 900_000},
};

export interface SenderOptions {
  class?: keyof typeof CLASSES;
  attempts?: number; // instead of the class's
  timeoutMs?: number; // for each attempt
  budgetMs?: number; // for all of them; the server is told what is left, as X-Request-Timeout
  keyLifetimeMs?: number; // how long servers remember keys that don't say so: 23 h
  sleep?: (ms: number) => Promise<void>;
}

export interface SendInit {
  method?: string;
  body?: Json; // a string is sent as it is, anything else as JSON
  headers?: Record<string, string>; // not written down: they may be credentials
  signal?: AbortSignal;
  credentials?: RequestCredentials;
}

/** A response, and what it means. */
export type Sent = Response & {
  outcome: "done" | "refused"; // done: also where the response can't be shown again
  isReplay: boolean; // of a response that was stored by the server
  originalTime: string;
};
type Given = Pick<SendInit, "headers" | "signal" | "credentials">;

interface Outcome {
  verdict: "done" | "refused";
  status: number;
  headers: [string, string][];
  body: string;
}
interface Again {
  why: string;
  askedMs: number; // by Retry-After; -1: it was not
  atOnce: boolean;
}
interface Intent {
  operation: string;
  key: string;
  method: string;
  url: string;
  body?: string; // until it has ended
  digest: string;
  firstAt: number; // of the first attempt; 0: none
  endsAt: number; // when the server may have forgotten the key; 0: it didn't say
  inDoubt: boolean; // an attempt may have been executed
  outcome?: Outcome;
  verdict?: Outcome["verdict"]; // without `outcome`: the response was too large to be kept
}

type Verdict = "again" | "done" | "refused" | "unknown";
interface Meaning {
  verdict: Verdict;
  mayHaveHappened: boolean;
  isCertain: boolean; // it holds although an earlier attempt may have been executed
  atOnce?: boolean;
}

/** What an error of a Hapax gateway means; docs/guide/send.md has the table. [verdict, isCertain] */
const ACTIONS: Record<string, [Verdict, boolean]> = {
  "VALIDATION.idempotency_key_missing": ["refused", false],
  "VALIDATION.idempotency_key_invalid": ["refused", false],
  "VALIDATION.request_malformed": ["refused", false],
  "VALIDATION.body_too_large": ["refused", false],
  "AUTH.principal_missing": ["refused", false],
  "AUTH.token_invalid": ["refused", false],
  "AUTH.replay_not_authorized": ["unknown", true],
  "CONFLICT.idempotency.payload_mismatch": ["refused", true],
  "CONFLICT.idempotency.duplicate_rejected": ["done", true],
  "CONFLICT.idempotency.failed_before": ["refused", true],
  "CONFLICT.idempotency.in_flight": ["again", false],
  "CONFLICT.idempotency.outcome_unknown": ["again", false],
  "CONFLICT.idempotency.response_not_retained": ["done", true],
  "CONFLICT.idempotency.expired": ["unknown", true],
  "RATE_LIMIT.exceeded": ["again", false],
  "DEPENDENCY.unavailable": ["again", false],
  "DEPENDENCY.timeout": ["again", false],
  "TRANSIENT.request_timeout": ["again", false],
  "TRANSIENT.overloaded": ["again", false],
  "PROVIDER.duplicate": ["done", true],
};

/** What a response means, by itself. */
function judge(method: string, response: Response, problem: Problem, inDoubt: boolean): Meaning {
  const {status, headers} = response, said = headers.get("Idempotency-Status") ?? "";
  const action = ACTIONS[headers.get("Error-Code") ?? problem.error_code ?? ""];
  if (action)
    return {verdict: action[0], isCertain: action[1], atOnce: status === 408,
            mayHaveHappened: said === "unknown" || status === 409};
  const isFinal = said === "stored" || said === "replayed";
  const isAgain = status === 408 || status === 429 || (status >= 500 && status < 600) ||
    (status === 409 && problem.retryable === true);
  if (isAgain && !isFinal) {
    const notDone = [408, 429].includes(status) || (status === 503 && headers.has("Retry-After")) ||
      said === "released";
    return {verdict: "again", mayHaveHappened: !notDone, isCertain: false, atOnce: status === 408};
  }
  const isGone = (status === 404 || status === 410) && method === "DELETE" && inDoubt;
  if (response.type === "opaqueredirect") return {verdict: "unknown", mayHaveHappened: true, isCertain: false};
  if ((status >= 200 && status < 300) || status === 303 || isGone)
    return {verdict: "done", mayHaveHappened: true, isCertain: true};
  return {verdict: "refused", mayHaveHappened: false, isCertain: isFinal};
}

/** How long a server asks to wait: seconds, or a date; -1: it doesn't say. */
function retryAfter(response: Response): number {
  const text = response.headers.get("Retry-After") ?? "";
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? -1 : Math.max(0, at - Date.now());
}

/** Whether an error of Node's fetch says that no byte of the request was sent. A browser never says so. */
function isUnsent(error: unknown): boolean {
  const cause = (error as {cause?: unknown}).cause;
  const inner = (cause as {errors?: unknown[]} | undefined)?.errors?.[0] ?? cause; // of several addresses
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]
    .some((code) => isCode(inner, code));
}

/** Tells bodies apart; not for secrets. (cyrb53) */
function digest(text: string): string {
  let a = 0xdeadbeef, b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    a = Math.imul(a ^ text.charCodeAt(i), 2654435761);
    b = Math.imul(b ^ text.charCodeAt(i), 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return `${text.length}:${(4294967296 * (2097151 & b) + (a >>> 0)).toString(16)}`;
}

const KEPT_CHARS = 262_144; // of a response's body; a longer one is asked for again, by the same key
const NOT_KEPT = /^(set-cookie|content-length|content-encoding|transfer-encoding|connection|keep-alive)$/i;

/** A careful fetch. Each operation is an intent in the store: what is to be sent, then its outcome. */
export class Sender {
  private readonly turns = new Map<string, Promise<unknown>>();

  constructor(private readonly store: Store = defaultStore(), private readonly options: SenderOptions = {}) {}

  /** Sends it once, whatever happens: a call that was interrupted is continued by the next one for the same operation,
   * with the same key, and once it has ended every call gets the first response. Calls of one page or process take
   * turns. Resolves with the response when it was done or refused; throws Unknown when it may have been done,
   * Exhausted when it was not, and Mismatch when the name was used for another request. */
  fetch(operation: string, url: string, init: SendInit = {}): Promise<Sent> {
    const body = init.body === undefined ? "" : typeof init.body === "string" ? init.body : JSON.stringify(init.body);
    const method = (init.method ?? "GET").toUpperCase();
    const wanted = {method, url: new URL(url, globalThis.location?.href).href, body, digest: digest(body)};
    return this.inTurn(operation, async () => {
      const fresh: Intent = {operation, key: await newKey(), ...wanted, firstAt: 0, endsAt: 0, inDoubt: false};
      const intent = read(operation, await this.store.add(operation, JSON.stringify(fresh)));
      for (const part of ["method", "url", "digest"] as const)
        if (intent[part] !== wanted[part])
          throw new Mismatch(`${operation} was used for a request with another ${part === "digest" ? "body" : part}; ` +
            "nothing was sent");
      return intent.outcome ? replay(intent.outcome) : this.attempt({...intent, body}, init);
    });
  }

  /** Goes on with an operation that has not ended, as it was written down. The headers are the caller's again. */
  async resume(operation: string, init: Given = {}): Promise<Sent> {
    return this.inTurn(operation, async () => {
      const text = await this.store.get(operation);
      if (text === undefined) throw new HapaxError(`nothing is known of ${operation}`);
      const intent = read(operation, text);
      return intent.outcome ? replay(intent.outcome) : this.attempt(intent, init);
    });
  }

  /** The operations that have not ended: to be resumed when a page is loaded or a process starts. */
  async unfinished(): Promise<string[]> {
    const names = await this.store.names();
    const states = await Promise.all(names.map((name) => this.status(name)));
    return names.filter((_, i) => states[i] === "unknown" || states[i] === "not sent");
  }

  /** Did it go through? undefined: nothing is known of it. */
  async status(operation: string): Promise<"done" | "refused" | "unknown" | "not sent" | undefined> {
    const text = await this.store.get(operation);
    if (text === undefined) return undefined;
    const {outcome, verdict, inDoubt} = read(operation, text);
    return outcome?.verdict ?? verdict ?? (inDoubt ? "unknown" : "not sent");
  }

  /** Removes an operation: its name may be used again, for something else. */
  async forget(operation: string): Promise<void> {
    await this.inTurn(operation, () => this.store.remove(operation));
  }

  /** One call at a time for each operation, in this page or process and, by the store's lock, in others. */
  private inTurn<T>(operation: string, fn: () => Promise<T>): Promise<T> {
    const locked = (): Promise<T> => this.store.lock(operation, fn);
    const turn = (this.turns.get(operation) ?? Promise.resolve()).then(locked, locked);
    const ended = turn.catch(() => undefined).then(() => {
      if (this.turns.get(operation) === ended) this.turns.delete(operation);
    });
    this.turns.set(operation, ended);
    return turn;
  }

  private async attempt(intent: Intent, init: Given): Promise<Sent> {
    const {budgetMs = Infinity, sleep = sleepFor} = this.options;
    const limits = CLASSES[this.options.class ?? "user"], attempts = this.options.attempts ?? limits.attempts;
    const total = Math.min(limits.totalMs, budgetMs), began = performance.now();
    let slept = 0;
    for (let attempt = 1; ; attempt++) {
      const tried = await this.tryOnce(intent, init, Math.max(1, budgetMs - (performance.now() - began)));
      if ("sent" in tried) return tried.sent;
      const own = tried.atOnce ? 0 : Math.min(limits.capMs, between(1, 2) * limits.baseMs * 2 ** (attempt - 1));
      const delay = Math.max(own, tried.askedMs < 0 ? 0 : between(tried.askedMs, tried.askedMs * 1.1) + 1);
      const elapsed = Math.max(slept, performance.now() - began);
      if (attempt >= attempts || elapsed + delay > total)
        throw intent.inDoubt
          ? new Unknown(`it may have been done (${tried.why}); call again for the same operation, never with a new key`)
          : new Exhausted(`it was not done: ${tried.why}`);
      this.checkKey(intent, delay);
      await sleep(delay);
      slept += delay;
    }
  }

  /** One attempt. The intent says that it may have been executed before its first byte is sent: if this page or
   * process dies then, the next one knows. */
  private async tryOnce(intent: Intent, init: Given, leftMs: number): Promise<{sent: Sent} | Again> {
    const wasInDoubt = intent.inDoubt;
    this.checkKey(intent, 0);
    intent.firstAt ||= Date.now();
    intent.inDoubt = true;
    await this.write(intent);
    let again: Again;
    try {
      const {response, text} = await this.send(intent, init, leftMs);
      const meaning = judge(intent.method, response, parsed(text), wasInDoubt);
      const why = `${response.status} ${response.headers.get("Error-Code") ?? ""}`.trim();
      intent.endsAt = Date.parse(response.headers.get("Idempotency-Expires") ?? "") || intent.endsAt;
      if (meaning.verdict !== "again") return {sent: await this.end(intent, response, text, meaning, wasInDoubt, why)};
      intent.inDoubt = wasInDoubt || meaning.mayHaveHappened;
      again = {why, askedMs: retryAfter(response), atOnce: meaning.atOnce ?? false};
    } catch (error) {
      if (error instanceof HapaxError || init.signal?.aborted) throw error;
      intent.inDoubt = wasInDoubt || !isUnsent(error);
      again = {why: String((error as {cause?: unknown}).cause ?? error), askedMs: -1, atOnce: false};
    }
    await this.write(intent);
    return again;
  }

  private send(intent: Intent, init: Given, leftMs: number) {
    const headers = new Headers(intent.body ? {"Content-Type": "application/json"} : {});
    for (const [name, value] of Object.entries(init.headers ?? {})) headers.set(name, value);
    headers.set("Idempotency-Key", intent.key);
    if (leftMs !== Infinity) headers.set("X-Request-Timeout", `${Math.ceil(leftMs)}ms`);
    const request: RequestInit = {method: intent.method, headers, redirect: "manual"};
    if (intent.body) request.body = intent.body;
    if (init.credentials) request.credentials = init.credentials;
    return exchange(intent.url, request, Math.min(this.options.timeoutMs ?? 30_000, leftMs), init.signal);
  }

  /** The last response. That this attempt was refused says nothing of an earlier one which may have been executed, and
   * after 401 and 403 the same operation may go on with other credentials. */
  private async end(intent: Intent, response: Response, text: string, meaning: Meaning, wasInDoubt: boolean,
                    why: string): Promise<Sent> {
    if (meaning.verdict === "unknown" || (meaning.verdict === "refused" && wasInDoubt && !meaning.isCertain))
      throw new Unknown(`it may have been done, and the server says ${why}`,
        response.headers.get("Error-Code") ?? "", response.status, parsed(text));
    const headers = [...response.headers].filter(([name]) => !NOT_KEPT.test(name));
    const outcome: Outcome = {verdict: meaning.verdict as Outcome["verdict"], status: response.status, headers,
                              body: text};
    intent.inDoubt = false;
    if ((response.status === 401 || response.status === 403) && !meaning.isCertain) {
      await this.write(intent);
    } else if (text.length > KEPT_CHARS) {
      await this.write({...intent, verdict: outcome.verdict});
    } else {
      const {body: _, ...rest} = intent;
      await this.write({...rest, outcome});
    }
    return replay(outcome);
  }

  private checkKey(intent: Intent, delay: number): void {
    const ends = intent.endsAt || intent.firstAt + (this.options.keyLifetimeMs ?? 23 * 3_600_000);
    if (intent.firstAt && Date.now() + delay >= ends)
      throw new Unknown("the server may have forgotten the key: find out there whether it was done");
  }

  private write(intent: Intent): Promise<void> {
    return this.store.put(intent.operation, JSON.stringify(intent));
  }
}

function read(operation: string, text: string): Intent {
  const intent = parsed(text) as Partial<Intent>;
  if (typeof intent.key !== "string" || typeof intent.url !== "string")
    throw new HapaxError(`what is written down of ${operation} can't be read; nothing was sent`);
  return intent as Intent;
}

function replay({verdict, status, headers, body}: Outcome): Sent {
  const response = new Response([204, 205, 304].includes(status) ? null : body, {status, headers});
  return Object.assign(response, {outcome: verdict, isReplay: response.headers.get("Idempotent-Replayed") === "true",
                                  originalTime: response.headers.get("Original-Request-Time") ?? ""});
}
