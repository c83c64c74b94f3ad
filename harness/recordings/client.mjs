// Make one call with the stock Node client: node client.mjs PORT KEY, the body on standard input.
// It imports the client that the tests have: npm ci --prefix tests/real/node
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const folder = new URL("../../tests/real/node/", import.meta.url);
const OpenAI = createRequire(new URL("package.json", folder))("openai").default;

const [port, apiKey] = process.argv.slice(2);
const body = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ baseURL: `http://localhost:${port}/v1`, apiKey });
const answer = await client.chat.completions.create(body);
if (body.stream) for await (const _ of answer);
const { version } = JSON.parse(readFileSync(new URL("node_modules/openai/package.json", folder)));
console.log(`openai (Node) ${version}`);
