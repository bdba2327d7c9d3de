"""Rewrites an idle log as other programs do; see README.md."""
import sys

import pandas  # noqa: F401, PyArrow uses it
import pyarrow as pa
import pyarrow.parquet as pq

src, out = sys.argv[1:3]
table = pq.read_table(src).slice(0, 40)
pq.write_table(table, out + "/snappy.parquet", compression="snappy")
pq.write_table(table, out + "/page-v2.parquet", compression="zstd", data_page_version="2.0")
table.to_pandas().to_parquet(out + "/pandas.parquet")
pq.write_table(table.replace_schema_metadata(None), out + "/metadata-lost.parquet", compression="zstd")
pq.write_table(pa.Table.from_pandas(table.to_pandas()).replace_schema_metadata(table.schema.metadata), out + "/nullable.parquet", compression="zstd")
pq.write_table(table, out + "/delta-strings.parquet", compression="zstd", use_dictionary=False, column_encoding={"wake_reason": "DELTA_BYTE_ARRAY"})
# docs/rewritten-logs.md
schema = pq.read_schema(src)
for name in ["pandas", "snappy"]:
    rewritten = pq.read_table(out + f"/{name}.parquet", columns=schema.names)
    pq.write_table(rewritten.cast(schema), out + f"/{name}-converted.parquet", compression="zstd", row_group_size=65536)
