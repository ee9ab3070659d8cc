"""Reports that can be shown to strangers: addresses and names are replaced by words that stay the
same throughout; texts and bytes from packets are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from netdissect.model.reports import ConnectionReport
from netdissect.report.subject import Subject

_QUOTED = re.compile(r"“[^”]*”")


class Redactor:
    """Gives each address and each name a word of its own."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def word(self, secret: str, kind: str) -> str:
        """Return the word for a secret, such as `client-1`."""
        found = self._words.get(secret)
        if found is None:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            found = self._words[secret] = f"{kind}-{number}"
        return found

    def clean(self, text: str) -> str:
        """Return a sentence without quotations and without any known secret."""
        text = _QUOTED.sub("“…”", text)
        for secret in sorted(self._words, key=len, reverse=True):
            if secret and secret in text:  # compiling a thousand patterns takes minutes
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", self._words[secret], text)
        return text

    def subject(self, subject: Subject) -> Subject:
        """Return a connection without its secrets."""
        report = self._report(subject.report)
        records = [self._record(record) for record in subject.scene]
        frame = None if subject.frame is None else self._record(subject.frame)
        known = subject.diagnosis
        reasons = (known.ending.reason, (subject.report.close or {}).get("reason"),
                   subject.report.reject_reason)  # fmt: skip

        def clean(text: str) -> str:
            for reason in reasons:
                if isinstance(reason, str) and reason:
                    text = text.replace(reason, "…")
            return self.clean(text)

        diagnosis = replace(
            known,
            verdict=clean(known.verdict),
            cause=replace(known.cause, text=clean(known.cause.text)),
            ruled_out=tuple(map(clean, known.ruled_out)),
            names=(None, None),
        )
        return replace(subject, report=report, diagnosis=diagnosis, scene=records, frame=frame)

    def _report(self, report: ConnectionReport) -> ConnectionReport:
        client, server = self.word(report.client, "client"), self.word(report.server, "server")
        for endpoint, known in ((report.client, client), (report.server, server)):
            self._words.setdefault(endpoint.rpartition(":")[0].strip("[]"), known)
        for value in _texts(report.identity):
            self.word(value, "name")
        return replace(report, client=client, server=server)

    def _record(self, record: Any) -> Any:
        source = self._words.get(record.src) or self.word(record.src, "host")
        target = self._words.get(record.dst) or self.word(record.dst, "host")
        return record.with_endpoints(source, target)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
