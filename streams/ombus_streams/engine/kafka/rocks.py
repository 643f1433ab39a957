"""RocksDB as the store uses it: options that bound a process, and one open database a partition.

Every option that decides about memory, files or durability is set here; what rocksdict defaults
to is a block cache of its own for every database.
"""

import threading
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBufferManager,
)

from ombus_streams.engine.kafka.store_errors import store_error
from ombus_streams.runtime.folders import make_private

_MIB: Final = 1 << 20
_BLOOM_BITS: Final = 10
"""One look-up of an absent key in a hundred reads a block; most keys a fold asks for are new."""
_FILTER_OF_BUFFER: Final = 0.005
"""Of a write buffer, for a filter of its keys: to look a new one up is not to search the buffer."""
_ARENA_BLOCK: Final = 16 << 10
"""What the smallest write buffer takes, next to its filter: they are small in an idle partition."""
_KEPT_LOGS: Final = 2
_TABLES_BEFORE_COMPACTION: Final = 8
"""Of the youngest: a fold writes many small ones, and merging earlier writes them more often."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the databases of one process may take."""

    cache_bytes: int = 64 * _MIB
    """Blocks, indexes, filters and write buffers of all partitions together."""
    buffers_bytes: int = 48 * _MIB
    """Write buffers of all partitions together; above it the fullest are written out."""
    buffer_bytes: int = 8 * _MIB
    """The write buffer of one partition."""
    wal_bytes: int = 64 * _MIB
    """Of one partition: what a restart reads again at most."""
    max_open_files: int = 128
    """Of one partition."""


class Memory:
    """The memory all databases of a process share: open them with the same one."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._cache = Cache(self.bounds.cache_bytes)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self.bounds.buffers_bytes, False, self._cache
        )
        self._open: list[Rdict] = []
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """How much of the cache is in use, write buffers included."""
        return self._cache.get_usage()

    def options(self) -> Options:
        """Return the options of one database.

        The WAL is on and not synced: a killed process loses nothing; a power cut may take the
        last batches, never a part of one, and they are folded again from the log.
        """
        bounds, blocks, options = self.bounds, BlockBasedOptions(), Options(raw_mode=True)
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(blocks)
        options.create_if_missing(True)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(bounds.buffer_bytes)
        options.set_max_write_buffer_number(2)
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(_FILTER_OF_BUFFER)
        options.set_arena_block_size(_ARENA_BLOCK)
        options.set_level_zero_file_num_compaction_trigger(_TABLES_BEFORE_COMPACTION)
        options.set_max_open_files(bounds.max_open_files)
        options.set_max_total_wal_size(bounds.wal_bytes)
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_compression_type(DBCompressionType.lz4())
        options.set_bottommost_compression_type(DBCompressionType.zstd())
        options.set_keep_log_file_num(_KEPT_LOGS)
        options.set_paranoid_checks(True)
        return options

    def open(self, path: Path) -> Rdict:
        """Open or create the database at ``path``; one process has it open at a time.

        Raises:
            StoreOwned: it is open elsewhere.
            StoreError: the disk refused, or what lies there is no database.
        """
        try:
            make_private(path.parent)
            rows = Rdict(str(path), self.options())
        except Exception as error:
            raise store_error(path, error) from error
        with self._lock:
            self._open.append(rows)
        return rows

    def close(self, rows: Rdict) -> None:
        """Close a database that ``open`` gave. Idempotent."""
        with self._lock:
            self._open = [each for each in self._open if each is not rows]
        rows.close()

    def relieve(self) -> None:
        """Have the fullest write buffers written out, if all together exceed their bound.

        RocksDB itself writes out those of the database that is being written, and of no other:
        what lies in the idle ones would grow with their number.
        """
        if self._buffers.get_usage() <= self.bounds.buffers_bytes:
            return
        # One that cannot be written out says so at its own next batch: this one is written.
        with self._lock, suppress(Exception):
            sizes = [(_buffered(rows), rows) for rows in self._open]
            excess = sum(size for size, _ in sizes) - self.bounds.buffers_bytes * 7 // 8
            for size, rows in sorted(sizes, key=itemgetter(0), reverse=True):
                if excess <= 0:
                    return
                rows.flush(wait=False)
                excess -= size

    def open_to_read(self, path: Path) -> Rdict:
        """Open the database as it stands now, whoever writes to it; it never changes here."""
        try:
            return Rdict(str(path), self.options(), access_type=AccessType.read_only(False))
        except Exception as error:
            raise store_error(path, error) from error


def _buffered(rows: Rdict) -> int:
    """Return the bytes that nobody has begun to write out."""
    return rows.property_int_value("rocksdb.cur-size-active-mem-table") or 0
