"""The records of one partition between two offsets, page by page."""

from collections.abc import Iterator

from ombus_streams.runtime.ports import EntryLog, LogRecord


def pages(
    log: EntryLog, partition: int, offset: int, end: int, max_records: int
) -> Iterator[list[LogRecord]]:
    """Yield what lies from ``offset`` to below ``end``; no page is empty.

    Offsets may lack a record: a transaction leaves markers, at the end of a partition, too. So the
    next offset is asked for and never counted, and a page without records is the end.
    """
    while offset < end:
        page = log.read(partition, offset, min(max_records, end - offset))
        if page and page[-1].offset >= end:
            page = [record for record in page if record.offset < end]
        if not page:
            return
        yield page
        offset = page[-1].offset + 1
