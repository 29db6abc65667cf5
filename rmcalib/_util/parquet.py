"""Read Parquet files whose size is checked first: a few kilobytes can claim to hold gigabytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["opened_parquet"]

_ROWS, _ROWS_PER_BYTE = 1_000_000, 20
_BYTES, _BYTES_PER_BYTE = 2**30, 100


@contextlib.contextmanager
def opened_parquet(content: bytes, where: str) -> Iterator[Any]:
    """Yield the `pyarrow.parquet.ParquetFile` of a content that does not grow beyond reason when it is read.

    Allowed are a million rows and 20 more for each byte of the file, and one gigabyte and 100 times the file.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(
            pyarrow.BufferReader(content), page_checksum_verification=True
        ) as file:
            about = file.metadata
            size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            if about.num_rows > _ROWS + _ROWS_PER_BYTE * len(content):
                raise ValueError(
                    f"{where}: {about.num_rows:,} rows in {len(content):,} bytes; not read, because "
                    "memory would not suffice: save it again, in several files"
                )
            if size > _BYTES + _BYTES_PER_BYTE * len(content):
                raise ValueError(
                    f"{where}: {len(content):,} bytes would become {size:,}; not read, because memory "
                    "would not suffice: save it again with less compression"
                )
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{where}: not a readable Parquet file: {first}") from error
