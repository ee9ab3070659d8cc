"""The folder of a dataset, and how results appear in it.

    captures/KEY.parquet                               one row, written last: the capture is done
    captures/failed-KEY.parquet                        one row with an error; retried by each run
    TABLE/day=2026-01-31/protocol=NAME/KEY.parquet     the rows of one capture, or KEY-0.parquet,
                                                       KEY-1.parquet ... if several workers read it
    _staging/                                          files that are being written
    _survey.json                                       settings of all runs

KEY is a hash of the capture's content, so a capture that is finished twice replaces files by equal
ones. Files are written in `_staging` and renamed when complete. The row in `captures` is renamed
last; rows of captures without it, left by a run that was killed, are deleted by the next run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from netdissect._version import __version__
from netdissect.model.closing import Closing
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.files import read_text
from netdissect.model.survey import Outcome
from netdissect.survey.sources import last_file
from netdissect.survey.tables import PARTITIONED, SCHEMA, TABLES, arrow_schema, row_of

MAX_DAYS = 16
"""Days of one capture that get folders of their own; the rows of further days have no day."""
MAX_SETTINGS_OCTETS = 65_536
"""Size of the settings file at most."""
ROW_GROUP = 16_384
"""Rows of one file that are collected before they are written."""
MAX_LOOSE = 512
"""Rows of all files together that are kept as Python objects."""
MAX_PACKED = 8_000_000
"""Bytes of rows of all files together that are kept as Arrow tables."""

FEW_ROWS = 256
"""Files with fewer rows have neither compression nor statistics, which cost more than they save for
each of forty columns.
"""

Drafts = list[tuple[str, str]]
"""Files that are complete: (path, final place in the dataset)."""

_NONE = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for the partition of rows without a value."""
_SETTINGS = "_survey.json"


class Dataset:
    """A dataset in a folder that all workers see."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.staging = self.path / "_staging"

    @contextmanager
    def opened(self, settings: Mapping[str, Any]) -> Iterator[Self]:
        """Create or continue the dataset, and lock it while the context is open.

        Raises:
            UsageError: it is not a dataset, has other settings, or is being written.
            CaptureFileError: it cannot be created.

        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{self.path} is no folder") from error
        except OSError as error:
            raise CaptureFileError(f"{self.path}: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_settings(settings)
            self._sweep()
            yield self
        except BlockingIOError as error:
            raise UsageError(f"another survey is writing to {self.path}") from error
        finally:
            os.close(descriptor)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        # As the file returns them: tuples are lists, for example.
        current = {"schema": SCHEMA, **json.loads(json.dumps(settings))}
        file = self.path / _SETTINGS
        if not file.exists():
            if any(self.path.iterdir()):
                raise UsageError(f"{self.path} is not empty and no dataset of a survey")
            self._write(file, json.dumps(current, indent=1, sort_keys=True).encode() + b"\n")
            return
        try:
            known = _settings(self.path)
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} is damaged: {error}") from error
        other = sorted(key for key in {*known, *current} if known.get(key) != current.get(key))
        if other:
            raise UsageError(
                f"{self.path} was made with another {', '.join(other)}; give another --out"
            )

    @staticmethod
    def _write(file: Path, octets: bytes) -> None:
        draft = file.with_name(f"{file.name}.new")
        draft.write_bytes(octets)
        draft.replace(file)

    def _sweep(self) -> None:
        """Delete what killed runs left behind: rows of captures that are not done."""
        refuse_links(self.path)
        shutil.rmtree(self.staging, ignore_errors=True)
        done = {file.stem for file in (self.path / "captures").glob("*.parquet")}
        for table in PARTITIONED:
            for file in (self.path / table).glob("*/*/*.parquet"):
                # Several workers write KEY-0, KEY-1 and so on for one capture.
                if file.stem.partition("-")[0] not in done:
                    file.unlink()

    def row_file(self, key: str) -> Path:
        """Return the file of a capture's row; if it exists, the capture is done."""
        return self.path / "captures" / f"{key}.parquet"

    def failure_file(self, path: str) -> Path:
        """Return the file of the row with the error of a source."""
        digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
        return self.row_file(f"failed-{digest[:32]}")

    def fail(self, outcome: Outcome) -> None:
        """Write the row of a failed source."""
        item = {
            "capture": outcome.capture,
            "path": outcome.path,
            "error": outcome.error,
            "status": outcome.status,
            "version": __version__,
            "file_bytes": outcome.octets or None,
        }
        with Staged(self, self.failure_file(outcome.path).stem) as staged:
            staged.add("captures", item)
            staged.commit()

    def rename(self, key: str, path: str) -> None:
        """Change the name of a capture."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        (row,) = pq.read_table(self.row_file(key)).to_pylist()
        if row["path"] != path:
            with Staged(self, key) as staged:
                staged.add_row("captures", {**row, "path": path})
                staged.commit()

    def drop_included(
        self, rotated: Mapping[str, Sequence[str]], kept: Collection[str]
    ) -> dict[str, str]:
        """Delete the rows of captures that are included in rotated ones: an earlier run has joined
        fewer of their files, or the newest was still written then. Return key -> name of each.

        Args:
            rotated: key of each rotated capture -> names of its files, without their folder.
            kept: keys of captures that are no earlier ones.

        """
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        columns = ["capture", "path", "parts"]
        tables = (pq.read_table(each, columns=columns) for each in self.path.glob("captures/*"))
        rows = {row["capture"]: row for table in tables for row in table.to_pylist()}
        parts = {key: json.loads(row["parts"] or "[]") for key, row in rows.items()}
        later = {part: key for key in rotated for part in parts[key]}
        included: dict[str, str] = {}
        for key, own in parts.items():
            whole = None if key is None or key in kept else later.get((own or [key])[0])
            if whole is None:
                continue
            others = set(own or [key]).difference(parts[whole])
            path = rows[key]["path"]
            if not others or (others == {own[-1]} and last_file(path) in rotated[whole]):
                self.row_file(key).unlink()
                included[key] = path
        if included:
            self._sweep()
        return included


@dataclass(slots=True)
class _Packed:
    """Rows of one file as Arrow tables."""

    tables: list[Any] = field(default_factory=list)
    octets: int = 0
    rows: int = 0


class Staged(Closing):
    """The rows of one capture, in files that appear in the dataset together."""

    def __init__(
        self, dataset: Dataset, key: str, share: int | None = None, folder: Path | None = None
    ) -> None:
        """Prepare the rows of a capture, or of one share of it, whose files are in `folder`."""
        self.dataset = dataset
        self.key = key
        self.name = key if share is None else f"{key}-{share}"
        self._staging = folder or dataset.staging
        self.beyond_days = 0
        """Rows whose day has no folder."""
        self._days: set[str] = set()
        self._rows: dict[str, list[dict[str, Any]]] = {}
        """Folder in the dataset -> rows of the file that will appear there; a string, as paths take
        a tenth of the time that a small capture takes.
        """
        self._loose = 0
        """Number of rows in `_rows`."""
        self._packed: dict[str, _Packed] = {}
        """Earlier rows."""
        self._drafts: dict[str, str] = {}
        """Folder in the dataset -> file that will appear there."""
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._staging.mkdir(exist_ok=True)
        self._draft = str(self._staging / f"{self.name}-{uuid4().hex}")
        self._sealed = False
        return self

    def close(self) -> None:
        """Delete files that were not committed."""
        for writer in self._writers.values():
            writer.close()
        if not self._sealed:
            for draft in self._drafts.values():
                Path(draft).unlink(missing_ok=True)

    def add(self, table: str, item: dict[str, Any], **partition: str | None) -> None:
        """Add the row of an object to a partition, as `add_row`."""
        self.add_row(table, row_of(table, item), **partition)

    def add_row(
        self, table: str, row: dict[str, Any], day: str | None = None, protocol: str | None = None
    ) -> None:
        """Add a row to the partition of a day and protocol."""
        place = table
        if table in PARTITIONED:
            if day is not None and day not in self._days:
                if len(self._days) >= MAX_DAYS:
                    self.beyond_days += 1
                    day = None
                else:
                    self._days.add(day)
            named = _NONE if protocol is None else quote(protocol, safe="")
            place = f"{table}/day={day or _NONE}/protocol={named}"
        self._rows.setdefault(place, []).append(row)
        self._loose += 1
        # Rows as Python objects take ten times the memory of the same rows packed.
        if self._loose >= MAX_LOOSE:
            self._pack()
            packed = self._packed
            while sum(each.octets for each in packed.values()) > MAX_PACKED:
                self._flush(max(packed, key=lambda place: packed[place].octets))

    def _pack(self) -> None:
        """Convert the rows to Arrow tables, which take a tenth of the memory."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        # Arrow's own pool retains 50 MB of freed memory.
        pa.set_memory_pool(pa.system_memory_pool())
        for place, rows in self._rows.items():
            table = pa.Table.from_pylist(rows, schema=arrow_schema(_table(place)))
            packed = self._packed.setdefault(place, _Packed())
            packed.tables.append(table)
            packed.octets += table.nbytes
            packed.rows += len(rows)
            if packed.rows >= ROW_GROUP:
                self._flush(place)
        self._rows.clear()
        self._loose = 0

    def _flush(self, place: str, *, last: bool = False) -> None:
        """Write the packed rows of a file as one row group."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        table = pa.concat_tables(self._packed.pop(place).tables).combine_chunks()
        if place not in self._writers:
            # Not every reader (fastparquet) accepts an empty dictionary.
            names = [
                each.name for each in TABLES[_table(place)]
                if each.kind == "name" and table[each.name].null_count < len(table)
            ]  # fmt: skip
            draft = self._drafts[place] = f"{self._draft}-{len(self._drafts)}"
            few = last and table.num_rows < FEW_ROWS
            self._writers[place] = pq.ParquetWriter(
                draft,
                table.schema,
                compression="none" if few else "zstd",
                use_dictionary=names,
                write_statistics=not few,
            )
        self._writers[place].write_table(table)

    def end_files(self) -> None:
        """Finish all current files; further rows start new ones."""
        self._pack()
        for place in {**self._writers, **self._packed}:
            if place in self._packed:
                self._flush(place, last=True)
            self._writers.pop(place).close()  # one by one: each holds buffers

    def seal(self) -> Drafts:
        """Finish the files and keep them in place, for `commit` of another instance."""
        self.end_files()
        self._sealed = True
        return [(draft, f"{place}/{self.name}.parquet") for place, draft in self._drafts.items()]

    def commit(self, others: Iterable[Drafts] = ()) -> None:
        """Move the files into the dataset, and those that others sealed; `captures` last."""
        own = self.seal()
        # If a move fails, `close` deletes what remains.
        self._sealed = False
        drafts = [draft for each in (*others, own) for draft in each]
        for draft, place in sorted(drafts, key=lambda draft: draft[1].startswith("captures/")):
            target = self.dataset.path / place
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(draft).replace(target)
            except FileNotFoundError:
                if not target.exists():  # else an earlier attempt has moved it
                    raise


def _table(place: str) -> str:
    """Return the table of a folder in the dataset."""
    return place.partition("/")[0]


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a dataset.

    Raises:
        OSError: they cannot be read.
        ValueError: they are invalid.

    """
    try:
        found = json.loads(read_text(folder / _SETTINGS, MAX_SETTINGS_OCTETS))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if isinstance(found, dict):
        return found
    raise ValueError("no object")


def refuse_links(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder with links, so that nothing outside of it is read, written or deleted.

    Raises:
        UsageError: there is a link.

    """
    for inner, folders, names in os.walk(folder):
        for name in (*folders, *names):
            place = os.path.join(inner, name)  # noqa: PTH118 - of as many as there are captures
            if os.path.islink(place):  # noqa: PTH114 - as above
                raise UsageError(f"{place}: a link; a dataset holds none")


def schema_of(path: str) -> int:
    """Return the version of a dataset's tables.

    Raises:
        CaptureFileError: there is no dataset.

    """
    try:
        return int(_settings(Path(path))["schema"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CaptureFileError(f"{path}: no dataset of a survey") from error
