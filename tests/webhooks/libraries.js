// SPDX-License-Identifier: Apache-2.0
// The senders' own libraries. Reads a JSON array of questions from standard input and writes an array of answers:
//   {library, do: "sign", secret, id, at, body}         the headers that it makes
//   {library, do: "verify", secret, headers, body}      true, or the message with which it refuses
"use strict";
const standard = require("standardwebhooks");
const svix = require("svix");
const stripe = require("stripe")("sk_test_unused");

const signers = {
  standardwebhooks: ({ secret, id, at, body }) => ({
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": new standard.Webhook(secret).sign(id, new Date(at * 1000), body),
  }),
  svix: ({ secret, id, at, body }) => ({
    "svix-id": id,
    "svix-timestamp": String(at),
    "svix-signature": new svix.Webhook(secret).sign(id, new Date(at * 1000), body),
  }),
  stripe: ({ secret, at, body }) => ({
    "Stripe-Signature": stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at }),
  }),
};

const verifiers = {
  standardwebhooks: ({ secret, headers, body }) => new standard.Webhook(secret).verify(body, headers),
  svix: ({ secret, headers, body }) => new svix.Webhook(secret).verify(body, headers),
  stripe: ({ secret, headers, body }) =>
    stripe.webhooks.constructEvent(body, headers["Stripe-Signature"], secret, 300),
};

function answer(question) {
  if (question.do === "sign") return signers[question.library](question);
  try {
    verifiers[question.library](question);
    return true;
  } catch (error) {
    return error.message;
  }
}

let input = "";
process.stdin.on("data", (piece) => (input += piece));
process.stdin.on("end", () => process.stdout.write(JSON.stringify(JSON.parse(input).map(answer))));
