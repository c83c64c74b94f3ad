"""`[[keys]]`: who may call the gateway, and how far."""

import re
from hashlib import sha256
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from forebay.core import KeyLimits
from forebay.settings.errors import SettingsProblem, refusal, refusals
from forebay.settings.section import (
    Flag,
    Names,
    PlainName,
    Section,
    TextOrNothing,
    Variable,
)

DIGEST = re.compile(r"[0-9a-fA-F]{64}")
KeyLimit = Annotated[int, Field(strict=True, ge=0, le=10**12)]
ONE_OF = "write exactly one of key_env and key_sha256"


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key's text in lower-case hex, as `key_sha256` holds it."""
    return sha256(key.encode()).hexdigest()


class KeySettings(Section):
    """One API key, and what its holder may do. Without any key, everyone may call."""

    name: PlainName = Field(examples=["team-a"])
    """Name of the key in messages and logs; each once."""

    key_env: Variable = Field(default="", examples=["TEAM_A_KEY"])
    """Environment variable with the text of the key. Either this or `key_sha256`."""

    key_sha256: str = Field(default="", repr=False)
    """SHA-256 of the key's text in 64 hex digits (`forebay keys new` prints it). Either this or
    `key_env`."""

    user: TextOrNothing = Field(default="", examples=["team-a"])
    """User that its requests count for in fairness. Empty: the name of the key."""

    trust_user: Flag = False
    """Whether the `user` of a body, or `X-Forebay-User`, is trusted instead: for the key of an
    application that has users of its own."""

    max_priority: str = "high"
    """Most urgent class it may ask for, one of `queue.priorities`; more is lowered to it."""

    models: Names = ()
    """Models it may use. Empty: all."""

    max_running: KeyLimit = 0
    """Requests it may have at once: live ones, running and waiting, with its jobs, batch lines and
    prompts that run, which wait where it is reached; 0 is no limit."""

    requests_per_minute: KeyLimit = 0
    """Requests it may start in a minute; more wait for their turn at that rate, and are refused
    only where they would wait too long. 0 is no limit."""

    tokens_per_minute: KeyLimit = 0
    """Tokens it may use in a minute, prompts and answers together; more wait likewise. 0 is no
    limit."""

    tokens_per_day: KeyLimit = 0
    """Tokens it may use in a day, which ends at 00:00 UTC; more wait likewise. 0 is no limit."""

    weight: Annotated[float, Field(strict=True, ge=0.001, le=1_000)] = 1.0
    """Its user's share among the users that wait, relative to 1; from 0.001 to 1000."""

    share_prefixes: Flag = False
    """Whether it uses, and so learns of, the cached prompts of all other keys that have this set:
    for teams that send the same instructions and may know of each other's. Without it a key's
    requests go only to where its own prompts are cached."""

    admin: Flag = False
    """Whether it may also change nodes and reload the settings."""

    def limits(self) -> KeyLimits:
        """Return what the scheduler core wants to know."""
        return KeyLimits(self.requests_per_minute, self.tokens_per_minute, self.tokens_per_day)

    @field_validator("key_sha256")
    @classmethod
    def _is_a_digest(cls, digest: str) -> str:
        if digest and DIGEST.fullmatch(digest) is None:
            raise refusal(
                "is not 64 hex digits",
                "write the SHA-256 of the key, not the key: `forebay keys new` prints both",
            )
        if digest.lower() == digest_of(""):
            raise refusal("is the digest of an empty key", "write the digest of a real key")
        return digest.lower()

    @model_validator(mode="after")
    def _has_one_secret(self) -> "KeySettings":
        if self.key_env and self.key_sha256:
            raise refusals([SettingsProblem("key_sha256", "is set beside key_env", ONE_OF)])
        if not self.key_env and not self.key_sha256:
            raise refusals([SettingsProblem("key_env", "is missing, and so is key_sha256", ONE_OF)])
        return self
