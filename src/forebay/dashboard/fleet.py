"""The gateways that share one queue, for the page: who they are, and what is wrong with them.

Addresses stay out: who may see totals need not learn how the inner network is laid out; admins may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.api.events import FleetSnapshot, TroubleSnapshot, Words
from forebay.api.fields import OMITTED
from forebay.api.queue import Replica
from forebay.dashboard.snapshot import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from forebay.coordination import FleetPicture as Known
    from forebay.coordination import ReplicaView

REPLICAS_MAX: Final = 64
"""Gateways that are listed; those that are lost come last."""
NAMED_MAX: Final = 3
LONG_SEEKING_S: Final = 15.0
"""A leader is found within two leases (of 5 s, by default); longer than this is not a handover."""


def fleet_snapshot(
    known: Known,
    *,
    mode_s: float = 0.0,
    age_s: float | None = 0.0,
    with_addresses: bool = False,
) -> FleetSnapshot:
    """Return a fleet; `mode_s` is how long it has had its mode, `age_s` the age of the counts."""
    is_led = known.mode == "coordinated"
    settings = _settings_here(known)
    listed = sorted(known.replicas, key=lambda one: (one.state == "lost", one.name))
    return FleetSnapshot(
        mode=known.mode,
        mode_seconds=round(mode_s, 1),
        epoch=known.epoch,
        me=known.me,
        replicas=[
            _replica(one, settings, is_led=is_led, with_address=with_addresses)
            for one in listed[:REPLICAS_MAX]
        ],
        failovers_total=known.failovers,
        outages_total=known.outages,
        counted_seconds_ago=None if age_s is None else round(age_s, 1),
    )


def _replica(
    replica: ReplicaView, settings: str | None, *, is_led: bool, with_address: bool
) -> Replica:
    """Return one gateway; the last leader is shown as a follower while there is no leader."""
    return Replica(
        name=replica.name,
        state=replica.state if is_led or replica.state != "leading" else "following",
        version=replica.version,
        waiting=replica.waiting,
        running=replica.running,
        lent=replica.lent,
        heard_seconds=round(max(0.0, replica.heard_s), 1),
        same_settings=settings is None or replica.settings == settings,
        address=replica.address if with_address else OMITTED,
    )


def _settings_here(known: Known) -> str | None:
    """Return the settings to compare with: this gateway's own, else the leader's."""
    by_rank = sorted(known.replicas, key=lambda one: (one.name != known.me, one.state != "leading"))
    if not by_rank or (by_rank[0].name != known.me and by_rank[0].state != "leading"):
        return None
    return by_rank[0].settings


# -- what is wrong


def fleet_troubles(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    """Return what is wrong with the fleet, seen from this gateway."""
    yield from _MODES[fleet.mode](fleet)


def _coordinated(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    """Return what is wrong with the others, which only the leader's followers know."""
    yield from _lost(fleet)
    yield from _other_settings(fleet)
    yield from _other_versions(fleet)


def _cut_off(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    lasted = duration(fleet.mode_seconds)
    yield TroubleSnapshot(
        "error", "cut_off",
        Words(f"This gateway has been cut off from the shared store for {lasted.en}, but others "
              "may reach it: nothing new starts here.",
              f"このゲートウェイは {lasted.ja}前から共有ストアに接続できません。他のゲートウェイは"
              "接続できている可能性があるため、ここでは新しい処理を開始しません。"),
        Words("Send clients to another gateway (/ready says 503 here); check the network between "
              "this machine and coordination.url.",
              "別のゲートウェイに送ってください (ここでは /ready が 503 を返します)。"
              "coordination.url までのネットワークを確認してください。"),
        fleet.mode_seconds,
    )  # fmt: skip


def _alone(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    lasted = duration(fleet.mode_seconds)
    yield TroubleSnapshot(
        "error", "store_lost",
        Words(f"The shared store has been unreachable for {lasted.en}: each gateway works alone, "
              "with its share of the slots.",
              f"共有ストアに {lasted.ja}前から接続できません。各ゲートウェイはスロットの割り当て分"
              "だけで単独動作しています。"),
        Words("Start Valkey or Redis (coordination.url): the gateways then reconnect. Until then "
              "the figures are those of this gateway only.",
              "Valkey または Redis (coordination.url) を起動すると自動的に復帰します。"
              "それまで、ここの数値はこのゲートウェイだけのものです。"),
        fleet.mode_seconds,
    )  # fmt: skip


def _seeking(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    if fleet.mode_seconds < LONG_SEEKING_S:
        return
    lasted = duration(fleet.mode_seconds)
    yield TroubleSnapshot(
        "warning", "leaderless",
        Words(f"No gateway has led the fleet for {lasted.en}: new requests wait.",
              f"{lasted.ja}間、リーダーとなるゲートウェイがありません。"
              "新しいリクエストは待機しています。"),
        Words("A leader is elected automatically while the store answers; see the logs.",
              "ストアが応答していれば自動的に決まります。ゲートウェイのログを確認してください。"),
        fleet.mode_seconds,
    )  # fmt: skip


_MODES: Final[dict[str, Callable[[FleetSnapshot], Iterator[TroubleSnapshot]]]] = {
    "coordinated": _coordinated,
    "alone": _alone,
    "cut_off": _cut_off,
    "seeking": _seeking,
}


def _lost(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    lost = [replica for replica in fleet.replicas if replica.state == "lost"]
    if not lost:
        return
    names, heard = _named(lost), duration(min(replica.heard_seconds for replica in lost))
    have = "has" if len(lost) == 1 else "have"
    yield TroubleSnapshot(
        "warning", "replica_lost",
        Words(f"{len(lost)} of {len(fleet.replicas)} gateways {have} sent no heartbeat for "
              f"{heard.en}: {names.en}.",
              f"{len(fleet.replicas)} 台中 {len(lost)} 台のゲートウェイから {heard.ja}間応答が"
              f"ありません: {names.ja}。"),
        Words("Start it again: it joins automatically. If it was removed for good, it leaves "
              "this list after a while.",
              "起動すると自動的に参加します。撤去した場合は、しばらくするとこの一覧から消えます。"),
    )  # fmt: skip


def _other_settings(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    other = [one for one in fleet.replicas if one.state != "lost" and not one.same_settings]
    if not other:
        return
    names = _named(other)
    has = "has" if len(other) == 1 else "have"
    yield TroubleSnapshot(
        "warning", "settings_differ",
        Words(f"{len(other)} of {len(fleet.replicas)} gateways {has} other settings than this one: "
              f"{names.en}.",
              f"{len(fleet.replicas)} 台中 {len(other)} 台のゲートウェイの設定がここと異なります: "
              f"{names.ja}。"),
        Words("The leader's settings apply to all. Install the same file on every gateway, then "
              "restart or reload them in turn.",
              "リーダーの設定が全体に適用されます。同じ設定ファイルにして、順に再起動または"
              "再読み込みしてください。"),
    )  # fmt: skip


def _other_versions(fleet: FleetSnapshot) -> Iterator[TroubleSnapshot]:
    versions = sorted({one.version for one in fleet.replicas if one.state != "lost"})
    if len(versions) < 2:
        return
    said = ", ".join(versions[:NAMED_MAX]) + (", …" if len(versions) > NAMED_MAX else "")
    yield TroubleSnapshot(
        "info", "versions_differ",
        Words(f"The gateways of this fleet run {len(versions)} versions: {said}.",
              f"このフリートでは {len(versions)} つのバージョンが動作しています: {said}。"),
        Words("This is normal during a rolling restart; finish it.",
              "順次再起動の間は問題ありません。残りも更新してください。"),
    )  # fmt: skip


def _named(replicas: Sequence[Replica]) -> Words:
    names, more = _first(replica.name for replica in replicas), len(replicas) - NAMED_MAX
    if more <= 0:
        return Words(names, names)
    return Words(f"{names} and {more} more", f"{names} ほか {more} 台")


def _first(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:NAMED_MAX])
