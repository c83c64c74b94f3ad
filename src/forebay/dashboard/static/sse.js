// Server-sent events from a stream of bytes: one reader for /events and for the answers of models.

const LINE_MAX = 4 * 1024 * 1024; // characters; a line longer than this is not ours

/**
 * Yield {event, data} for each event and {comment} for each comment line of a response's body.
 * EventSource would do less: it can neither send a key nor show comments.
 */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      if (rest.length > LINE_MAX) throw new Error("a line of the stream is too long");
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event, data: data.join("\n") };
          event = "message";
          data = [];
        } else if (line.startsWith(":")) {
          yield { comment: line.slice(1).trim() };
        } else {
          const [, field, text] = line.match(/^([^:]*):? ?(.*)$/);
          if (field === "event") event = text;
          if (field === "data") data.push(text);
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // also when the consumer stops early
  }
}
