"""Our own simulated node: it says all there is to know in `/v1/models`."""

from forebay.nodes.adapters.answers import (
    contexts,
    count,
    descriptions,
    entries,
    json_object,
    names,
    share,
    version_text,
    whole_bytes,
)
from forebay.nodes.adapters.openai_compatible import MODELS_PATH
from forebay.nodes.adapters.report import Fetch, NodeReport

OWNER = "forebay-sim"
"""What the simulated node writes into `owned_by`, so that nobody takes it for a model."""


class Simulated:
    """A `forebay sim-node`."""

    kind = "sim"
    families = ("openai", "anthropic")

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask for everything at once; raises `BackendFailed` when it cannot."""
        listed = json_object(await fetch("GET", MODELS_PATH), MODELS_PATH)
        listing = entries(listed, "data", MODELS_PATH)
        loaded = listed.get("loaded")
        return NodeReport(
            models=names(entry.get("id") for entry in listing),
            families=self.families,
            kind=self.kind,
            slots=count(listed.get("slots")),
            loaded=names(loaded) if isinstance(loaded, list) else None,
            loaded_max=count(listed.get("loaded_max")) or 1,
            gpu_load=share(listed.get("gpu_load")),
            vram_used_bytes=whole_bytes(listed.get("vram_used_bytes")),
            vram_total_bytes=whole_bytes(listed.get("vram_total_bytes")),
            contexts=contexts(listing, "id"),
            about=descriptions(listing, "id"),
            version=version_text(listed.get("version")),
        )
