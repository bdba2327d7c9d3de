//! Writes rows as an Arrow IPC file, which pandas, Polars and DuckDB read. Integers keep their
//! widths and nulls stay nulls. The log's metadata is JSON in the schema's metadata (`idlewise`).

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::{FirstStay, RowWriter, column_names};
use crate::IdleGap;
use crate::log::{LogMetadata, METADATA_KEY};

/// The most rows in a record batch.
const BATCH_ROW_COUNT: usize = 1 << 16;

/// Writes rows as an Arrow IPC file.
pub struct ArrowWriter<W: Write> {
    writer: FileWriter<W>,
    schema: SchemaRef,
    knows_tick_stops: bool,
    knows_tasks: bool,
}

impl<W: Write> ArrowWriter<W> {
    /// Creates a writer and writes the schema.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn new(output: W, metadata: &LogMetadata, governors: &[String]) -> io::Result<Self> {
        let json = serde_json::to_string(metadata).expect("metadata has only string keys");
        let schema = schema(governors, HashMap::from([(METADATA_KEY.to_owned(), json)]));
        let schema = Arc::new(schema);
        let writer = FileWriter::try_new(output, &schema).map_err(io_error)?;
        Ok(ArrowWriter {
            writer,
            schema,
            knows_tick_stops: !metadata.is_unknown("tick_stopped"),
            knows_tasks: !metadata.is_unknown("ran_task"),
        })
    }

    fn gap_arrays(&self, gaps: &[IdleGap]) -> [ArrayRef; 11] {
        let all = || gaps.iter();
        [
            Arc::new(UInt16Array::from_iter_values(all().map(|gap| gap.cpu))),
            Arc::new(Int64Array::from_iter_values(all().map(|gap| gap.start_ns))),
            Arc::new(UInt64Array::from_iter_values(all().map(|gap| gap.gap_ns))),
            Arc::new(all().map(|gap| gap.sleep_length_ns).collect::<UInt64Array>()),
            Arc::new(all().map(|gap| gap.next_tick_ns).collect::<UInt32Array>()),
            Arc::new(
                all()
                    .map(|gap| self.knows_tick_stops.then_some(gap.tick_stopped))
                    .collect::<BooleanArray>(),
            ),
            Arc::new(
                all().map(|gap| self.knows_tasks.then_some(gap.ran_task)).collect::<BooleanArray>(),
            ),
            Arc::new(StringArray::from_iter_values(all().map(|gap| gap.wake_reason.name()))),
            Arc::new(all().map(|gap| gap.latency_limit_ns).collect::<UInt64Array>()),
            Arc::new(all().map(|gap| gap.recorded_state).collect::<UInt8Array>()),
            Arc::new(all().map(|gap| gap.recorded_idle_ns).collect::<UInt64Array>()),
        ]
    }
}

fn schema(governors: &[String], metadata: HashMap<String, String>) -> Schema {
    let of_log = [
        (DataType::UInt16, false),
        (DataType::Int64, false),
        (DataType::UInt64, false),
        (DataType::UInt64, true),
        (DataType::UInt32, true),
        (DataType::Boolean, true),
        (DataType::Boolean, true),
        (DataType::Utf8, false),
        (DataType::UInt64, true),
        (DataType::UInt8, true),
        (DataType::UInt64, true),
    ];
    let of_governor = [(DataType::UInt8, false), (DataType::Utf8, false)];
    let types = of_log.into_iter().chain(of_governor.into_iter().cycle());
    let fields = column_names(governors).into_iter().zip(types);
    let fields = fields.map(|(name, (kind, is_nullable))| Field::new(name, kind, is_nullable));
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata)
}

impl<W: Write> RowWriter for ArrowWriter<W> {
    fn write(&mut self, gaps: &[IdleGap], first_stays: &[&[FirstStay]]) -> io::Result<()> {
        for (index, gaps) in gaps.chunks(BATCH_ROW_COUNT).enumerate() {
            let first = index * BATCH_ROW_COUNT;
            let rows = first..first + gaps.len();
            let of_governors =
                first_stays.iter().flat_map(|stays| stay_arrays(&stays[rows.clone()]));
            let columns = self.gap_arrays(gaps).into_iter().chain(of_governors).collect();
            let batch =
                RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io_error)?;
            self.writer.write(&batch).map_err(io_error)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.writer.finish().map_err(io_error)
    }
}

fn stay_arrays(stays: &[FirstStay]) -> [ArrayRef; 2] {
    [
        Arc::new(UInt8Array::from_iter_values(stays.iter().map(|stay| stay.state))),
        Arc::new(StringArray::from_iter_values(stays.iter().map(|stay| stay.verdict.name()))),
    ]
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}
