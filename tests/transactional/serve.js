// SPDX-License-Identifier: Apache-2.0
// The application around the guide's lines, for tests/scenario/examples/test_transactional_guide.py:
//   node serve.js DESCRIPTOR DATABASE-URL FILE     FILE defines refund(pool, operation, charge, amount)
// DESCRIPTOR is a socket that listens already.
"use strict";
const fs = require("fs");
const http = require("http");
const {Pool} = require("pg");

const [descriptor, connectionString, file] = process.argv.slice(2);
const refund = new Function(fs.readFileSync(file, "utf8") + "\nreturn refund;")();
const pool = new Pool({connectionString});
pool.on("error", () => {}); // a connection that broke while nobody used it

async function answer(request, text, response) {
  const {charge, amount} = JSON.parse(text);
  const {status, headers, body} = await refund(pool, request.headers["hapax-operation"], charge, amount);
  if (request.headers["die"] === "after-commit") process.kill(process.pid, "SIGKILL");
  response.writeHead(status, headers);
  response.end(body);
}

http.createServer((request, response) => {
  let text = "";
  request.on("data", (piece) => { text += piece; });
  request.on("end", () => answer(request, text, response));
}).listen({fd: Number(descriptor)}, () => console.log("listening"));
