"""The page at `/`, until there is a dashboard: says what this is and how to use it."""

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Forebay</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 4rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { padding: 1rem; overflow-x: auto; border: 1px solid; border-radius: .5rem; }
</style>
</head>
<body>
<h1>Forebay</h1>
<p>The queue in front of your LLMs. This gateway is running.</p>
<p>Point any OpenAI client at <code>/v1</code>, an Anthropic client at <code>/</code> or an Ollama
client at <code>/</code>, and look in at:</p>
<ul>
<li><a href="/v1/models">/v1/models</a>: what can be asked for</li>
<li><a href="/v1/queue">/v1/queue</a>: who waits, in numbers</li>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/openapi.json">/openapi.json</a>: every route</li>
</ul>
</body>
</html>
"""
