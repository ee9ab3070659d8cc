"""Scores what one capture alone concludes against what two captures of the connection show.

    python bench/inference.py            print the table of docs/reliability.md
    python bench/inference.py --json     the same as data

The captures of both sides of every shipped pair are joined (`netdissect.join`), and the fates of
their datagrams are the truth. Then each side is analysed alone. A conclusion that is not drawn
(`unknown`) has its own column and is neither right nor wrong. Datagrams with an ambiguous match are
left out.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netdissect.diagnosis.words import confidence_of
from netdissect.join import Fate, Joined, join
from netdissect.model.joined import JoinedConnection
from netdissect.model.reports import ConnectionEvent, ConnectionReport, QuietSpan, UnitRecord
from netdissect.pipeline import Options, Pipeline, Recorder, iter_timeline, look_ahead

__all__ = ["CONCLUSIONS", "Score", "score_all", "table"]

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ROOT / "tests" / "truth" / "pairs.json"
CONCLUSIONS = (
    "vantage",
    "retransmission",
    "copy",
    "loss",
    "reordering",
    "spurious",
    "silence",
    "closed by",
)
DARK_NS = 3_000_000_000
"""A direction that lost every datagram for this long was dark."""
SIDES = ("client", "server")


@dataclass(slots=True)
class Score:
    """How often a conclusion was right."""

    right: int = 0
    """Drawn, and true."""
    wrong: int = 0
    """Drawn, and false."""
    missed: int = 0
    """True, but the contrary was drawn."""
    unknown: int = 0
    """True, but nothing was concluded."""

    @property
    def precision(self) -> float | None:
        """Return the share of conclusions drawn that are true."""
        drawn = self.right + self.wrong
        return self.right / drawn if drawn else None

    @property
    def recall(self) -> float | None:
        """Return the share of what is true that was concluded, where anything was."""
        decided = self.right + self.missed
        return self.right / decided if decided else None

    def count(self, *, concluded: bool | None, true: bool) -> None:
        """Count one conclusion; `concluded` is None if none was drawn."""
        if concluded is None:
            self.unknown += true
        elif concluded:
            self.right += true
            self.wrong += not true
        else:
            self.missed += true


Scores = dict[tuple[str, str, str], Score]
"""(protocol, side at which the capture was taken, conclusion) -> score."""
_Key = tuple[int, int, str, int]
"""(conversation, direction, space, full number)."""


class _Alone:
    """The analysis of one capture of a pair."""

    def __init__(self, path: str) -> None:
        pipeline = Pipeline(look_ahead(path, Options()), recorder=Recorder())
        self.units: list[UnitRecord] = []
        self.gaps: list[ConnectionEvent] = []
        for item in iter_timeline(path, pipeline=pipeline):
            if isinstance(item, UnitRecord):
                self.units.append(item)
            elif item.event == "gap":
                self.gaps.append(item)
        self.reports: list[ConnectionReport] = list(pipeline.reports)


def score_all() -> Scores:
    """Return the scores of all pairs that were joined datagram by datagram."""
    scores: Scores = defaultdict(Score)
    for pair in json.loads(PAIRS.read_text()):
        if pair["kind"] == "proxied":
            continue
        paths = [str(ROOT / "captures" / pair["protocol"] / name) for name in pair["captures"]]
        with join(paths[0], paths[1]) as joined:
            _Pair(pair["protocol"], joined, [_Alone(path) for path in paths], scores).score()
    return dict(scores)


class _Pair:
    """Scores one pair: capture 0 is next to the client, capture 1 next to the server."""

    def __init__(self, protocol: str, joined: Joined, sides: list[_Alone], scores: Scores) -> None:
        self.protocol = protocol
        self.joined = joined
        self.sides = sides
        self.scores = scores
        self.conversation = [
            {
                number: one.number
                for one in joined.report.conversations
                for number in one.connections[side]
            }
            for side in (0, 1)
        ]

    def _score(self, side: int, what: str) -> Score:
        return self.scores[self.protocol, SIDES[side], what]

    def score(self) -> None:
        """Score all conclusions."""
        for side in (0, 1):
            for report in self.sides[side].reports:
                if report.connection in self.conversation[side]:
                    known = report.vantage != "unknown"
                    concluded = report.vantage == SIDES[side] if known else None
                    self._vantage(side, concluded=concluded)
            self._copies(side)
        arrived = self._arrived()
        for side in (0, 1):
            self._loss(side, arrived)
            self._reordering(side, arrived)
        self._silence()
        self._closing()

    def _vantage(self, side: int, *, concluded: bool | None) -> None:
        score = self._score(side, "vantage")
        if concluded is None:
            score.unknown += 1
        elif concluded:
            score.right += 1
        else:
            score.wrong += 1

    def _copies(self, side: int) -> None:
        """Score further copies: retransmissions, or duplicates made by the network."""
        for unit in self.sides[side].units:
            for copy in unit.copies[1:]:
                row = self.joined.fate(side, copy.frame)
                if row.fate is Fate.APART or row.ambiguous or row.fate is Fate.APPEARED:
                    continue
                again = row.fate is not Fate.COPY
                says = None if copy.kind == "unknown" else copy.kind == "retransmission"
                made = None if says is None else not says
                self._score(side, "retransmission").count(concluded=says, true=again)
                self._score(side, "copy").count(concluded=made, true=not again)

    def _key(self, side: int, unit: UnitRecord) -> _Key | None:
        number = self.conversation[side].get(unit.connection)
        if number is None or "apart" in unit.extra or "continued" in unit.extra:
            return None
        return number, unit.direction, unit.space, unit.seq

    def _arrived(self) -> dict[_Key, bool]:
        """Return unit -> whether any of its copies arrived."""
        found: dict[_Key, bool] = {}
        for side in (0, 1):
            for unit in self.sides[side].units:
                key = self._key(side, unit)
                # TCP sends bytes again in other segments, so no copy has the fate of a unit.
                if key is None or unit.direction != side or self._streamed(side, unit):
                    continue
                rows = [self.joined.fate(side, copy.frame) for copy in unit.copies]
                if any(row.fate in {Fate.DELIVERED, Fate.UNSEEN} for row in rows):
                    found[key] = True
                elif all(row.fate is Fate.LOST and not row.ambiguous for row in rows):
                    found[key] = False
        return found

    def _loss(self, side: int, arrived: dict[_Key, bool]) -> None:
        """Score lost units: next to the sender by acknowledgements, next to the receiver by numbers
        that are missing.
        """
        score = self._score(side, "loss")
        seen = {self._key(side, unit) for unit in self.sides[side].units}
        for unit in self.sides[side].units:
            key = self._key(side, unit)
            if key is None or unit.direction != side or key not in arrived:
                continue
            self._spurious(side, unit)
            concluded = unit.lost or unit.extra.get("reported") == "lost" or None
            if concluded and arrived[key] and self._late(side, unit):
                continue  # the receiver discards late units, and reports them as lost
            if unit.outcome == "acked":
                concluded = False
            score.count(concluded=concluded, true=not arrived[key])
        missing = set(self._missing(side)) - seen
        score.wrong += self._never_sent(1 - side, missing)
        for key, came in arrived.items():
            if key[1] == 1 - side:
                is_missing = key in missing
                score.count(concluded=is_missing or (False if key in seen else None), true=not came)

    def _never_sent(self, side: int, missing: set[_Key]) -> int:
        """Count missing numbers that the sender skipped, so that nothing was lost.

        Spaces whose numbers are shared with other messages are left out: there it is unknown.
        """
        sent = {self._key(side, unit) for unit in self.sides[side].units}
        known = {
            (self.conversation[side].get(report.connection), space.direction, space.space)
            for report in self.sides[side].reports
            for space in report.spaces
            if space.units and not space.others
        }
        return sum(key not in sent and key[:3] in known for key in missing)

    def _late(self, side: int, unit: UnitRecord) -> bool:
        """Return whether a unit that was sent once arrived after a later one."""
        partner = self.joined.fate(side, unit.copies[0].frame).partner
        return partner is not None and self.joined.fate(1 - side, partner).reordered

    def _missing(self, side: int) -> Iterator[_Key]:
        for gap in self.sides[side].gaps:
            number = self.conversation[side].get(gap.connection)
            if number is None or gap.direction != 1 - side:
                continue
            step = gap.data.get("step") or 1
            for seq in range(gap.data["first_seq"], gap.data["last_seq"] + 1, step):
                yield number, gap.direction, gap.data["space"], seq

    def _streamed(self, side: int, unit: UnitRecord) -> bool:
        report = next(r for r in self.sides[side].reports if r.connection == unit.connection)
        return report.transport == "tcp"

    def _spurious(self, side: int, unit: UnitRecord) -> None:
        """Count spurious retransmissions, which one capture alone never concludes."""
        came = False
        for copy in unit.copies:
            row = self.joined.fate(side, copy.frame)
            if came and copy.kind == "retransmission":
                self._score(side, "spurious").count(concluded=None, true=True)
            came = came or (row.fate is Fate.DELIVERED and not row.ambiguous)

    def _silence(self) -> None:
        """Score whether a silence is found when a direction went dark, and whether network or
        program is rightly blamed for it.
        """
        for one in self.joined.report.conversations:
            dark = [
                (burst.start_ns, burst.end_ns)
                for way in one.ways
                for burst in way.bursts
                if burst.end_ns - burst.start_ns >= DARK_NS
            ]
            sent = self._sent(one)
            for side in (0, 1):
                score = self._score(side, "silence")
                reports = [
                    report
                    for report in self.sides[side].reports
                    if report.connection in one.connections[side]
                ]
                spans = [
                    (*self._common(side, span), span, report)
                    for report in reports
                    for span in report.quiet
                ]
                if dark and reports:
                    over = (
                        start < to and end > since for since, to, *_ in spans for start, end in dark
                    )
                    score.count(concluded=any(over), true=True)
                for since, to, span, report in spans:
                    inside = [lost for moment, lost in sent[span.direction] if since < moment < to]
                    self._blamed(score, confidence_of(report, span), inside)

    def _common(self, side: int, span: QuietSpan) -> tuple[int, int]:
        common = self.joined.common_ns
        to = 1 << 63 if span.to_ns is None else common(side, span.to_frame or 1, span.to_ns)
        return common(side, span.from_frame or 1, span.from_ns), to

    def _sent(self, one: JoinedConnection) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        """Return, per direction, (time, lost?) of each datagram sent."""
        found: tuple[list[tuple[int, bool]], list[tuple[int, bool]]] = ([], [])
        for capture in (0, 1):
            for _, row, direction in self.joined.sent(capture, {one.number}):
                found[direction].append((row.common_ns, row.fate in {Fate.LOST, Fate.OUTSIDE}))
        return found

    @staticmethod
    def _blamed(score: Score, concluded: str, lost: list[bool]) -> None:
        """Count a silence that is blamed; `lost`: whether each datagram of the silent side was."""
        if concluded == "likely":
            network = 2 * sum(lost) > len(lost)
            score.right += network
            score.wrong += not network

    def _reordering(self, side: int, arrived: dict[_Key, bool]) -> None:
        """Score units that arrived after a later number of their space.

        Nothing is concluded in spaces with retransmissions, where lost units also arrive late.
        """
        newest: dict[tuple[int, int, str], tuple[int, int]] = {}
        repeating = {
            (report.connection, space.direction, space.space)
            for report in self.sides[side].reports
            for space in report.spaces
            if space.retransmissions or space.timer_ms is not None
        }
        for unit in sorted(self.sides[side].units, key=lambda unit: unit.copies[0].frame):
            key = self._key(side, unit)
            if key is None or unit.direction == side or key not in arrived:
                continue
            first = self.joined.fate(side, unit.copies[0].frame)
            lane = unit.connection, unit.direction, unit.space
            last, sent = newest.get(lane, (unit.seq, 0))
            behind = unit.seq < last
            if first.fate is Fate.ARRIVED and not first.ambiguous:
                concluded = None if behind and lane in repeating else behind
                overtaken = behind and (first.partner or 0) < sent
                self._score(side, "reordering").count(concluded=concluded, true=overtaken)
                if not behind:
                    newest[lane] = unit.seq, first.partner or 0

    def _closing(self) -> None:
        """Score who ended a connection: the side that, by its own capture, ended it before it knew
        that the other side had.
        """
        for one in self.joined.report.conversations:
            closers = [
                (report.close or {}).get("by")
                for side in (0, 1)
                for report in self.sides[side].reports
                if report.connection in one.connections[side][-1:]
            ]
            if len(closers) != len(SIDES):
                continue
            true = {by for side, by in enumerate(closers) if by == SIDES[side]}
            if not true:
                continue
            for side, by in enumerate(closers):
                score = self._score(side, "closed by")
                if by is None:
                    score.unknown += 1
                elif by in true:
                    score.right += 1
                else:
                    score.wrong += 1


def table(scores: Scores) -> list[str]:
    """Return the rows of the table in docs/reliability.md."""
    rows = [
        "| Protocol | Capture at | Conclusion | Precision | Recall "
        "| Right | Wrong | Missed | Unknown |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (protocol, side, what), score in sorted(
        scores.items(), key=lambda item: (item[0][0], item[0][1], CONCLUSIONS.index(item[0][2]))
    ):
        cells = [
            protocol,
            side,
            what,
            _share(score.precision),
            _share(score.recall),
            *map(str, (score.right, score.wrong, score.missed, score.unknown)),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> None:
    """Print the scores."""
    scores = score_all()
    if "--json" in sys.argv:
        for (protocol, side, what), score in scores.items():
            facts = {"protocol": protocol, "capture": side, "conclusion": what}
            counts = {name: getattr(score, name) for name in Score.__slots__}
            print(json.dumps({**facts, **counts}))
        return
    print("\n".join(table(scores)))


if __name__ == "__main__":
    main()
