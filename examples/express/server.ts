// SPDX-License-Identifier: Apache-2.0
/* A shop that charges a card once for a click, whatever becomes of the click, the page or this server. Each request of
 * the page has an Idempotency-Key; once(key, …) decides in a Hapax daemon who runs the payment, and gives everybody
 * else its result.
 *
 * HAPAX_URL and HAPAX_TOKEN name the daemon's API, CARDS_URL the provider of cards, PORT where to listen (0: anywhere),
 * and LEASE_MS how long after this server has died, or has not learned how a payment ended, it becomes unknown. */
import {fileURLToPath} from "node:url";
import express, {type NextFunction, type Request, type Response} from "express";
import {Failed, Hapax, HapaxError, InFlight, Mismatch, Unknown} from "../../clients/typescript/hapax.js";

const {HAPAX_URL = "http://127.0.0.1:8081", HAPAX_TOKEN = "", CARDS_URL = "", PORT = "3000", LEASE_MS = "60000"} =
  process.env;
const daemon = new Hapax(HAPAX_URL, HAPAX_TOKEN);
const root = fileURLToPath(new URL("../..", import.meta.url));

const PAGE = `<!doctype html>
<title>Pay once</title>
<button>Pay $5 for order 17</button><output></output>
<script type="module">
  import {pay, resume} from "/examples/express/pay.js";
  const [button, output] = document.querySelectorAll("button, output");
  button.onclick = async () => { output.textContent = await pay("17", 500); };
  void resume(); // what a reload has interrupted
</script>`;

function refuse(response: Response, status: number, code: string, detail: string, more: object = {}): void {
  response.status(status).set("Error-Code", code).type("application/problem+json")
    .send(JSON.stringify({status, error_code: code, detail, ...more}));
}

function requireIdempotency(request: Request, response: Response, next: NextFunction): void {
  const key = request.get("Idempotency-Key") ?? "";
  if (!key) refuse(response, 400, "VALIDATION.idempotency_key_missing", "POST requests need an Idempotency-Key");
  else if (key.length < 16 || key.length > 255)
    refuse(response, 400, "VALIDATION.idempotency_key_invalid", "An Idempotency-Key has 16 to 255 characters");
  else next();
}

/** Asks the provider, which knows idempotency keys itself. Its refusal is an outcome; silence is not. */
async function charge(key: string, amount: number): Promise<{id: string}> {
  const answer = await fetch(`${CARDS_URL}/charges`, {
    method: "POST", body: JSON.stringify({amount}),
    headers: {"Content-Type": "application/json", "Idempotency-Key": key}});
  if (answer.status === 402) throw new Failed({code: "card_declined"});
  if (!answer.ok) throw new Error(`the provider answers ${answer.status}`);
  return (await answer.json()) as {id: string};
}

function explain(error: unknown, ran: boolean, response: Response): void {
  if (error instanceof Failed && ran)
    response.status(402).set("Idempotency-Status", "stored").json({error: error.detail});
  else if (error instanceof Failed)
    refuse(response, 409, "CONFLICT.idempotency.failed_before", "The operation failed previously",
      {error: error.detail, originalTimestamp: error.originalTimestamp});
  else if (error instanceof InFlight)
    refuse(response.set("Retry-After", "1"), 409, "CONFLICT.idempotency.in_flight", error.message);
  else if (error instanceof Mismatch || (error instanceof Unknown && error.code))
    refuse(response, 409, error.code, error.message);
  else
    refuse(response.set("Idempotency-Status", ran ? "unknown" : "released"), 503, "DEPENDENCY.unavailable",
      error instanceof HapaxError ? "The payment can't be recorded now" : "The provider did not say how it ended");
}

const app = express();
app.use(express.json());
app.get("/", (_, response) => void response.type("html").send(PAGE));
app.get(["/examples/express/pay.js", "/clients/typescript/hapax.js"], (request, response) =>
  response.sendFile(request.path, {root}));
app.post("/api/payment", requireIdempotency, async (request, response) => {
  const key = request.get("Idempotency-Key") ?? "";
  const {order, amount} = request.body as {order: string; amount: number};
  let ran = false;
  try {
    const {result, isRetry, originalTimestamp} = await daemon.once(key, async () => {
      ran = true;
      return {order, amount, charge: (await charge(key, amount)).id};
    }, {name: "payment", input: {order, amount}, leaseMs: Number(LEASE_MS)});
    response.set("Idempotency-Status", isRetry ? "replayed" : "stored");
    if (isRetry)
      response.set({"Idempotent-Replayed": "true", "Original-Request-Time": originalTimestamp.toISOString()});
    response.status(201).json(result);
  } catch (error) {
    explain(error, ran, response);
  }
});

const server = app.listen(Number(PORT), "127.0.0.1", () => {
  const address = server.address();
  console.log(`http://127.0.0.1:${typeof address === "object" && address ? address.port : PORT}`);
});
