// SPDX-License-Identifier: Apache-2.0
// A tab of a browser with the page of examples/express: the address of the shop, the compiled examples/express/pay.js,
// and the file that is the browser's localStorage. Each line of standard input is a click on "pay", or "resume", as
// when the page is loaded; what the page says is a line of standard output. Two words on a line are two clicks.
import {createInterface} from "node:readline";
import {storageIn} from "./storage.mjs";

const [shop, page, storage] = process.argv.slice(2);
globalThis.localStorage = storageIn(storage);
globalThis.location = new URL(shop);
const {pay, resume} = await import(page);
const acts = {pay: () => pay("17", 500), resume: async () => `resumed: ${await resume()}`};
for await (const line of createInterface({input: process.stdin}))
  for (const word of line.split(" ")) void acts[word]().then((told) => console.log(told));
