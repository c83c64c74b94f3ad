// The stock Node client against a gateway: node talk.mjs BASE_URL MODEL; prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 3 });
const messages = [{ role: "user", content: "Is the queue waiting?" }];

const whole = await client.chat.completions.create({ model, messages, max_tokens: 4 });

let pieces = 0;
const stream = await client.chat.completions.create({ model, messages, max_tokens: 4, stream: true });
for await (const _ of stream) pieces += 1;

const seen = { models: [], answered: whole.choices.length, pieces, error: null, refused: null };
for await (const found of client.models.list()) seen.models.push(found.id);

try {
  await client.chat.completions.create({ model: "none", messages });
} catch (error) {
  seen.error = { name: error.constructor.name, status: error.status, code: error.code };
}
try {
  const headers = { "X-Forebay-Max-Wait": "soon" };
  await client.chat.completions.create({ model, messages }, { headers });
} catch (error) {
  seen.refused = { name: error.constructor.name, param: error.param };
}
console.log(JSON.stringify(seen));
