// What a program written with the OpenAI Node SDK relies on, one function per promise.
//
// Usage: node openai_sdk.mjs MODEL; OPENAI_BASE_URL and OPENAI_API_KEY say where. Prints a line per case and fails if any did.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import { zodTextFormat, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const model = process.argv[2];
const settings = { model, max_output_tokens: 32, temperature: 0 };
const capital = "What is the capital of France? Answer with one word.";
const City = z.object({ name: z.string(), country: z.string() });
// No retries: a server that needs a second attempt has failed.
const client = new OpenAI({ maxRetries: 0, timeout: 120_000 });

const cases = {
  async whole() {
    const response = await client.responses.create({ ...settings, input: capital });
    assert.equal(response.status, "completed");
    assert.match(response.output_text, /Paris/);
    assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
    const stored = await client.responses.retrieve(response.id);
    assert.equal(stored.output[0].content[0].text, response.output_text);
  },

  async stream() {
    const events = client.responses.stream({ ...settings, input: capital });
    const numbers = [];
    let text = "";
    for await (const event of events) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    const final = await events.finalResponse();
    assert.deepEqual(numbers, [...numbers.keys()]);
    assert.equal(text, final.output_text);
    assert.match(text, /Paris/);
  },

  async parse() {
    const text = { format: zodTextFormat(City, "city") };
    const request = { ...settings, max_output_tokens: 128, input: "Describe Paris as JSON.", text };
    const response = await client.responses.parse(request);
    assert.match(response.output_parsed.name, /Paris/);
  },

  async websocket() {
    const socket = new ResponsesWS(client);
    try {
      const events = socket.stream();
      const first = await turn(socket, events, { input: "My code word is cobalt. Say only: noted." });
      const second = { input: "What is my code word?", previous_response_id: first.id };
      assert.match((await turn(socket, events, second)).text, /cobalt/i);
    } finally {
      socket.close();
    }
  },

  async chat() {
    const request = { model, max_tokens: 128, temperature: 0, messages: [{ role: "user", content: capital }] };
    const whole = await client.chat.completions.create(request);
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    assert.match(text, /Paris/);
    assert.equal(text, whole.choices[0].message.content);
    request.messages = [{ role: "user", content: "Describe Paris as JSON." }];
    request.response_format = zodResponseFormat(City, "city");
    assert.match((await client.chat.completions.parse(request)).choices[0].message.parsed.name, /Paris/);
  },

  async errors() {
    await assert.rejects(client.responses.create({ ...settings, input: 5 }), OpenAI.BadRequestError);
    await assert.rejects(client.responses.create({ ...settings, model: "no-such-model", input: "" }), OpenAI.NotFoundError);
    await assert.rejects(client.responses.retrieve("resp_missing"), OpenAI.NotFoundError);
  },
};

/** One response over the socket, up to its last event. */
async function turn(socket, events, request) {
  socket.send({ type: "response.create", ...settings, store: false, ...request });
  let text = "";
  for (;;) {
    const { value: event, done } = await events.next();
    assert.ok(!done && event.type !== "close", "the socket closed in the middle of a response");
    if (event.type === "error") throw event.error;
    if (event.type !== "message") continue;
    assert.notEqual(event.message.type, "response.failed");
    if (event.message.type === "response.output_text.delta") text += event.message.delta;
    if (event.message.type === "response.completed") return { id: event.message.response.id, text };
  }
}

/** A stream without an end is a failure of its case, not of the whole run. */
function late() {
  return new Promise((_, reject) => setTimeout(() => reject(new Error("no end after 120 s")), 120_000).unref());
}

const failed = [];
for (const [name, run] of Object.entries(cases)) {
  const start = performance.now();
  try {
    await Promise.race([run(), late()]);
    console.log(`ok ${name} ${((performance.now() - start) / 1000).toFixed(1)} s`);
  } catch (error) {
    failed.push(name);
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
if (failed.length) console.error(`failed: ${failed.join(", ")}`);
process.exit(failed.length ? 1 : 0);
