"""Any server with OpenAI's routes: the adapter of last resort.

`GET /v1/models` answers `{"data": [{"id": ...}]}` everywhere. It says nothing of slots or memory,
so how many requests such a node runs at once is found by trying, unless its settings say it.
"""

from forebay.nodes.adapters.answers import contexts, descriptions, entries, json_object, names
from forebay.nodes.adapters.report import Fetch, NodeReport

MODELS_PATH = "/v1/models"


class OpenAiCompatible:
    """A server of which we know only that it speaks OpenAI's dialect."""

    kind = "openai-compatible"
    families = ("openai",)

    async def probe(self, fetch: Fetch) -> NodeReport:
        """List its models; raises `BackendFailed` when it cannot."""
        listed = json_object(await fetch("GET", MODELS_PATH), MODELS_PATH)
        listing = entries(listed, "data", MODELS_PATH)
        return NodeReport(
            models=names(entry.get("id") for entry in listing),
            families=self.families,
            kind=self.kind,
            contexts=contexts(listing, "id"),
            about=descriptions(listing, "id"),
        )
