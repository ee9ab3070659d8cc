"""Queries a dataset with DuckDB. docs/survey.md shows similar queries in SQL."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from netdissect.model.diagnosis import ENDINGS, MEASURED
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.survey import Section
from netdissect.survey.dataset import refuse_links, schema_of
from netdissect.survey.tables import PARTITIONED, SCHEMA, TABLES

MEASURES: Final[Mapping[str, tuple[str, str]]] = {
    "loss": ("%", "sum(lost) / nullif(sum(sent), 0)"),
    "loss.p95": ("%", "quantile_cont(loss_share, 0.95)"),
    "lag.p50": ("ms", "quantile_cont(lag_ms, 0.5)"),
    "lag.p95": ("ms", "quantile_cont(lag_ms, 0.95)"),
    "bad": ("%", "avg(bad::INTEGER)"),
    "connections": ("", "count(*)"),
}
"""Name -> (unit, expression over the view `links`) of figures that can be compared and limited."""

_TYPES: Final = {
    "name": "VARCHAR",
    "text": "VARCHAR",
    "json": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "flag": "BOOLEAN",
    "time": "TIMESTAMP WITH TIME ZONE",
}

_KNOWN: Final = f"FILTER (loss_basis IN {MEASURED})"
_BAD: Final = tuple(how for how, (bad, _) in ENDINGS.items() if bad > ENDINGS["rejected"][0])
"""Bad endings: a server may well reject, and a capture may stop before the end."""
_LINKS: Final = f"""
CREATE VIEW links AS
SELECT c.*, v.* EXCLUDE (capture, connection, day, protocol), d.sent, d.lost, d.loss_share,
  d.lag_ms, d.retransmissions, d.copies,
  regexp_replace(c.client, ':[0-9]+$', '') AS host, date_trunc('hour', c.started) AS hour,
  coalesce(c.dialect_s2c, c.dialect_c2s) AS release,
  v.ended_how IN {_BAD} AS bad
FROM connections c
JOIN verdicts v USING (capture, connection)
LEFT JOIN (
  SELECT capture, connection, max(added_p95_ms) AS lag_ms,
    sum(sent) {_KNOWN} AS sent,
    sum(lost) {_KNOWN} AS lost,
    max(loss_share) {_KNOWN} AS loss_share,
    sum(retransmissions) AS retransmissions, sum(copies) AS copies
  FROM directions GROUP BY ALL) d USING (capture, connection)
"""
"""One row per connection with its verdict; losses only if they are known, not merely bounded."""

_GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "servers": ("Worst servers", "server"),
    "links": ("Worst links", "host || ' → ' || server"),
    "clients": ("Worst clients", "host"),
    "releases": ("Releases", "release"),
    "hours": ("Worst hours (UTC)", "strftime(hour AT TIME ZONE 'UTC', '%Y-%m-%d %H:00')"),
}
"""Section -> (title, expression by which connections are grouped)."""

_FIGURES: Final = (
    "count(*) AS connections, avg(bad::INTEGER) AS bad_share, "
    "sum(lost) / nullif(sum(sent), 0) AS loss_share, "
    "sum(retransmissions) / nullif(sum(copies), 0) AS resent_share, "
    "quantile_cont(lag_ms, 0.95) AS lag_p95_ms, max(badness) AS badness"
)
_COLUMNS: Final = "connections, bad_share, loss_share, resent_share, lag_p95_ms"
_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 1.0)


@contextmanager
def opened(path: str) -> Iterator[Answers]:
    """Open a dataset for queries.

    Raises:
        CaptureFileError: there is no dataset, or it is damaged.
        UsageError: its name is a pattern to DuckDB, or it contains a link.

    """
    import duckdb  # noqa: PLC0415 - an extra

    if schema_of(path) != SCHEMA:
        raise CaptureFileError(f"{path}: a dataset of another schema than {SCHEMA}")
    if glob.has_magic(path):
        raise UsageError(f"{path}: DuckDB would treat this name as a pattern")
    refuse_links(path)
    with duckdb.connect(":memory:") as base:
        # DuckDB would download extensions that are not installed.
        base.execute("SET TimeZone = 'UTC'; SET autoinstall_known_extensions = false")
        try:
            yield Answers(base, path)
        except duckdb.Error as error:
            raise CaptureFileError(f"{path}: {str(error).splitlines()[0]}") from error


class Answers:
    """Answers questions about a dataset."""

    def __init__(self, base: Any, path: str) -> None:
        self._base = base
        for table in TABLES:
            base.execute(f"CREATE VIEW {table} AS {_select(Path(path), table)}")
        base.execute(_LINKS)

    def measures(self) -> dict[str, float | None]:
        """Return the figures of MEASURES over the whole dataset; None = unknown."""
        figures = ", ".join(f"{text} AS '{name}'" for name, (_, text) in MEASURES.items())
        (row,) = self._rows(f"SELECT {figures} FROM links")
        (failed,) = self._rows("SELECT count(*) FROM captures WHERE status = 'failed'")
        return {**dict(zip(MEASURES, row, strict=True)), "failed": failed[0]}

    def sections(self, limit: int) -> Iterator[Section]:
        """Yield the sections of the summary, each with at most `limit` rows."""
        yield self._section(
            "captures",
            "Captures (UTC)",
            "SELECT status, count(*) AS captures, sum(connections)::BIGINT AS connections, "
            "sum(frames)::BIGINT AS frames, sum(octets)::BIGINT AS bytes, "
            "min(started) AT TIME ZONE 'UTC' AS first, max(ended) AT TIME ZONE 'UTC' AS last "
            "FROM captures GROUP BY status ORDER BY status",
        )
        for name, (title, key) in _GROUPS.items():
            one = name.removesuffix("s")
            yield self._section(
                name,
                title,
                f"SELECT {one}, {_COLUMNS} FROM (SELECT {key} AS {one}, {_FIGURES} "
                "FROM links GROUP BY 1) ORDER BY badness DESC, bad_share DESC, "
                f"connections DESC, {one} LIMIT {limit}",
            )
        yield self._section(
            "endings",
            "Endings",
            "SELECT ended_how AS ending, cause, count(*) AS connections, "
            "count(*) / sum(count(*)) OVER () AS of_all_share "
            f"FROM links GROUP BY ALL ORDER BY connections DESC, ending, cause LIMIT {limit}",
        )
        yield self._distributions()
        yield self._section(
            "findings",
            "Findings",
            "SELECT code, severity, count(DISTINCT (capture, connection)) AS connections, "
            "sum(found)::BIGINT AS found FROM (SELECT code, severity, capture, connection, "
            "max(repeats) AS found FROM findings GROUP BY ALL) GROUP BY ALL "
            f"ORDER BY connections DESC, code LIMIT {limit}",
        )
        yield self._section(
            "failed",
            "Failed captures",
            f"SELECT path, error FROM captures WHERE status = 'failed' ORDER BY path LIMIT {limit}",
        )

    def _distributions(self) -> Section:
        found: list[tuple[Any, ...]] = []
        for name in ("loss_share", "lag_ms"):
            figures = ", ".join(f"quantile_cont({name}, {at})" for at in _QUANTILES)
            (row,) = self._rows(f"SELECT count({name}), {figures} FROM links")
            found.append((name, *row))
        columns = ("figure", "known_of", "p50", "p90", "p95", "p99", "max")
        return Section("distributions", "Distributions over connections", columns, found)

    def against(self, other: Self, limit: int) -> Iterator[Section]:
        """Yield how the figures changed since another dataset."""
        now, then = self.measures(), other.measures()
        rows = [(name, then[name], now[name], rise(then[name], now[name])) for name in MEASURES]
        yield Section("changes", "Changes", ("figure", "then", "now", "change"), rows)
        query = f"SELECT server, {_FIGURES} FROM links GROUP BY server"
        before = {row[0]: row for row in other._rows(query)}
        both = ((before[row[0]], row) for row in self._rows(query) if row[0] in before)
        changed = [
            (new[0], old[1], new[1], *(rise(old[at], new[at]) for at in (2, 3, 5)))
            for old, new in both
        ]
        changed.sort(key=lambda row: (*(-(row[at] or 0.0) for at in (3, 4, 5)), row[0]))
        columns = ("server", "then", "now", "bad_rise_share", "loss_rise_share", "lag_rise_ms")
        yield Section("regressions", "Servers that got worse first", columns, changed[:limit])

    def _section(self, name: str, title: str, query: str) -> Section:
        found = self._base.execute(query)
        columns = tuple(column[0] for column in found.description)
        return Section(name, title, columns, found.fetchall())

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._base.execute(query).fetchall()
        return found


def rise(then: float | None, now: float | None) -> float | None:
    """Return how much a figure rose; None if either value is unknown."""
    return None if then is None or now is None else now - then


def _select(path: Path, table: str) -> str:
    """Return the query for a table, which has no rows if there are no files."""
    parts = table in PARTITIONED
    folder, files = path / table, "*/*/*.parquet" if parts else "*.parquet"
    # DuckDB fails on a pattern that no file matches.
    if any(folder.glob(files)):
        text = str(folder / files).replace("'", "''")
        if not parts:
            return f"SELECT * FROM read_parquet('{text}', union_by_name = true)"
        # A capture counts once its own row exists, not while its files are being moved.
        return (
            f"SELECT * FROM read_parquet('{text}', union_by_name = true, hive_partitioning = true, "
            "hive_types = {'day': DATE, 'protocol': VARCHAR}) "
            "SEMI JOIN (SELECT capture FROM captures) USING (capture)"
        )
    columns = [f"NULL::{_TYPES[each.kind]} AS {each.name}" for each in TABLES[table]]
    columns += ["NULL::DATE AS day", "NULL::VARCHAR AS protocol"] if parts else []
    return f"SELECT {', '.join(columns)} WHERE false"
