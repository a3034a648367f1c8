// SPDX-License-Identifier: Apache-2.0
/* The page's half. An operation has a name that the page can make again, here the order's: a double click, a reload and
 * a second tab find the key of the first click under it. */
import {Exhausted, Sender, Unknown} from "../../clients/typescript/hapax.js";

const sender = new Sender();

/** What to tell the buyer. */
export async function pay(order: string, amount: number): Promise<string> {
  try {
    const sent = await sender.fetch(`pay-${order}`, "/api/payment", {method: "POST", body: {order, amount}});
    if (sent.outcome === "done") return `paid: ${((await sent.json()) as {charge: string}).charge}`;
    await sender.forget(`pay-${order}`); // nothing was paid: the next click may be another payment
    return `not paid: ${sent.status}`;
  } catch (error) {
    if (error instanceof Unknown) return "we don't know yet whether it was paid; click again to find out";
    if (error instanceof Exhausted) return "not paid yet; click again to go on";
    throw error;
  }
}

/** Goes on with the payments that a reload, or a crash of the browser, has interrupted. */
export async function resume(): Promise<number[]> {
  const names = await sender.unfinished();
  return Promise.all(names.map(async (name) => (await sender.resume(name)).status));
}
