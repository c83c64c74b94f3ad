"""The settings: one frozen model, its sources, its secrets, and what a reload may change."""

from forebay.settings.errors import SettingsError, SettingsProblem
from forebay.settings.keys import KeySettings, digest_of
from forebay.settings.loader import (
    LoadedSettings,
    load_settings,
    load_with_origins,
    parse_key,
    parse_node,
)
from forebay.settings.model import (
    CoordinationSettings,
    GuardSettings,
    JobsSettings,
    ModelsSettings,
    ServerSettings,
    SessionsSettings,
    Settings,
    UsageSettings,
    advertised,
    replica_name,
)
from forebay.settings.nodes import NodeSettings
from forebay.settings.queue import QueueSettings, RetrySettings
from forebay.settings.reload import Difference, ReloadPlan, plan_reload
from forebay.settings.review import explain
from forebay.settings.secrets import (
    ResolvedKey,
    node_api_key,
    read_secret,
    resolve_keys,
    resolve_made_key,
)
from forebay.settings.sources import Origin
from forebay.settings.store_url import BadStoreUrl, StoreAddress, parse_store_url

__all__ = [
    "BadStoreUrl",
    "CoordinationSettings",
    "Difference",
    "GuardSettings",
    "JobsSettings",
    "KeySettings",
    "LoadedSettings",
    "ModelsSettings",
    "NodeSettings",
    "Origin",
    "QueueSettings",
    "ReloadPlan",
    "ResolvedKey",
    "RetrySettings",
    "ServerSettings",
    "SessionsSettings",
    "Settings",
    "SettingsError",
    "SettingsProblem",
    "StoreAddress",
    "UsageSettings",
    "advertised",
    "digest_of",
    "explain",
    "load_settings",
    "load_with_origins",
    "node_api_key",
    "parse_key",
    "parse_node",
    "parse_store_url",
    "plan_reload",
    "read_secret",
    "replica_name",
    "resolve_keys",
    "resolve_made_key",
]  # fmt: skip
