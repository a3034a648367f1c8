// SPDX-License-Identifier: Apache-2.0
// Drives the TypeScript client for the stories: reads questions from standard input, a line of JSON each, and answers
// each with a line as soon as it can, so that several are under way at a time. The argument is the compiled client.
import "fake-indexeddb/auto";
import {createInterface} from "node:readline";
import {storageIn} from "./storage.mjs";

const hapax = await import(process.argv[2]);
const senders = new Map(), runs = new Map(), gates = new Map();

/** Delays are told, not waited for, unless `waits`. */
function senderOf({store, options = {}, waits = false}) {
  const name = JSON.stringify([store, options, waits]);
  if (!senders.has(name)) {
    const delays = [];
    const kept = store.file ? new hapax.FileStore(store.file)
      : store.local ? new hapax.LocalStore(storageIn(store.local)) : new hapax.IndexedStore(store.indexed);
    const sleep = async (ms) => void delays.push(ms);
    senders.set(name, {delays, sender: new hapax.Sender(kept, waits ? options : {...options, sleep})});
  }
  return senders.get(name);
}

/** What the function inside `once` does. */
async function behave(does, key, work) {
  runs.set(key, (runs.get(key) ?? 0) + 1);
  if (does.checkpoint) await work.checkpoint("page", does.checkpoint);
  if (does.gate) await new Promise((resolve) => gates.set(does.gate, resolve));
  if (does.untilLost) await new Promise((resolve) => work.signal.addEventListener("abort", resolve));
  if (does.fails) throw new hapax.Failed(does.fails);
  if (does.notDone) throw new hapax.NotDone("not now");
  if (does.throws) throw new RangeError(does.throws);
  return does.tells ? {attempt: work.attempt, checkpoints: work.checkpoints, token: work.fencingToken,
                       cancelReason: work.cancelReason ?? null} : does.result;
}

const acts = {
  async once({url, token, key, does, options}) {
    return await new hapax.Hapax(url, token).once(key, (work) => behave(does, key, work), options);
  },
  find: async ({url, token, key, options}) => (await new hapax.Hapax(url, token).find(key, options)) ?? null,
  runs: async ({key}) => runs.get(key) ?? 0,
  gates: async () => [...gates.keys()],
  open: async ({gate}) => gates.get(gate)?.(),
  async fetch(question) {
    const {sender, delays} = senderOf(question);
    delays.length = 0;
    const began = Date.now();
    const sent = await (question.resume ? sender.resume(question.operation, question.init)
      : sender.fetch(question.operation, question.url, question.init)).catch((error) => {
      error.delays = delays;
      throw error;
    });
    return {outcome: sent.outcome, status: sent.status, body: await sent.text(), isReplay: sent.isReplay, delays,
            originalTime: sent.originalTime, tookMs: Date.now() - began};
  },
  status: async (question) => (await senderOf(question).sender.status(question.operation)) ?? null,
  unfinished: (question) => senderOf(question).sender.unfinished(),
  forget: async (question) => await senderOf(question).sender.forget(question.operation),
};

for await (const line of createInterface({input: process.stdin})) {
  const question = JSON.parse(line);
  acts[question.act](question).then((answer) => ({answer: answer ?? null}), (error) =>
    ({error: error.name, message: error.message, code: error.code, detail: error.detail ?? null, delays: error.delays}))
    .then((told) => process.stdout.write(JSON.stringify({id: question.id, ...told}) + "\n"));
}
