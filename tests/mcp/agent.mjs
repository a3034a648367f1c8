// SPDX-License-Identifier: Apache-2.0
// An agent made with the SDK of the Model Context Protocol. Reads steps from standard input, a JSON list, and prints
// what came of each: {tool, arguments} is a call, {kill: true} kills the server and starts the next one,
// {kill_after: FILE, tool, arguments} kills it once the file exists, with the call under way, and {list: true} lists
// the tools. argv: the program and the configuration.
import { existsSync, readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [, , program, config] = process.argv;
let log = "";

async function start() {
  const client = new Client({ name: "agent", version: "1.0.0" });
  const transport = new StdioClientTransport({ command: program, args: ["mcp", "--config", config], stderr: "pipe" });
  transport.stderr.on("data", (data) => { log += data; });
  await client.connect(transport);
  return { client, transport, dies: () => new Promise((died) => { client.onclose = died; }) };
}

async function kill(server) {
  const died = server.dies();
  process.kill(server.transport.pid, "SIGKILL");
  await died;
}

async function call(server, step) {
  const progress = [];
  const result = await server.client.callTool({ name: step.tool, arguments: step.arguments ?? {} }, undefined,
    { onprogress: (note) => progress.push(note.message) });
  return { ...result, progress };
}

const done = [];
let server = await start();
for (const step of JSON.parse(readFileSync(0, "utf8"))) {
  if (step.kill) {
    await kill(server);
    server = await start();
    done.push("killed");
  } else if (step.kill_after) {
    const lost = call(server, step).then(() => "answered", () => "lost");
    while (!existsSync(step.kill_after)) await new Promise((next) => setTimeout(next, 10));
    await kill(server);
    done.push(await lost);
    server = await start();
  } else if (step.list) {
    done.push((await server.client.listTools()).tools);
  } else {
    done.push(await call(server, step));
  }
}
const about = { version: server.client.getServerVersion(), instructions: server.client.getInstructions() };
await server.client.close();
console.log(JSON.stringify({ done, about, log }));
