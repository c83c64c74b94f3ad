// Make one call with the stock Node client: node clients.mjs NAME PORT, the chat on standard input.
// It imports the client that the tests have: npm ci --prefix tests/real/node
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../tests/real/node/package.json", import.meta.url));
const OpenAI = require("openai").default;

const [name, port] = process.argv.slice(2);
const { key, model, user, messages } = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ baseURL: `http://localhost:${port}/v1`, apiKey: key });
const limits = { temperature: 0.2, max_tokens: 256 };

if (name === "openai-node-chat-user") {
  await client.chat.completions.create({ model, messages, user, ...limits });
} else {
  const stream = await client.chat.completions.create({ model, messages, stream: true, ...limits });
  for await (const _ of stream);
}
