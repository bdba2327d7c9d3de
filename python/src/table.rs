//! Tables, by Arrow's PyCapsule interface and as bytes.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};

/// Batches with one schema; at least one.
#[pyclass(frozen)]
pub struct Batches(Arc<[RecordBatch]>);

impl Batches {
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        Batches(batches.into())
    }
}

fn fail(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Batches {
    /// Batches of what [`Batches::bytes`] returned.
    #[staticmethod]
    fn of_bytes(bytes: &[u8]) -> PyResult<Self> {
        let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(fail)?;
        let empty = RecordBatch::new_empty(reader.schema());
        let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(fail)?;
        Ok(Batches::new(if batches.is_empty() { vec![empty] } else { batches }))
    }

    /// As a stream of Arrow's IPC format.
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let written = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.0[0].schema())?;
            self.0.iter().try_for_each(|batch| writer.write(batch))?;
            writer.into_inner()
        };
        Ok(PyBytes::new(py, &written().map_err(fail)?))
    }

    fn __len__(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0[0].schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The first rows, at most so many, as a list for each column.
    fn columns<'py>(&self, py: Python<'py>, row_count: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
        let columns = (0..self.0[0].num_columns()).map(|at| {
            let mut left = row_count;
            let list = PyList::empty(py);
            for batch in self.0.iter() {
                let part = batch.column(at).slice(0, left.min(batch.num_rows()));
                left -= part.len();
                append(&list, &part)?;
            }
            Ok(list)
        });
        columns.collect()
    }

    fn __arrow_c_stream__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        // Cloning a batch copies references to its columns.
        let batches: Vec<_> = self.0.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, self.0[0].schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Appends the values of a column, of any type that our tables have.
fn append(list: &Bound<'_, PyList>, column: &dyn Array) -> PyResult<()> {
    fn numbers<'py, T: ArrowPrimitiveType>(
        list: &Bound<'py, PyList>,
        column: &dyn Array,
    ) -> PyResult<()>
    where
        Option<T::Native>: IntoPyObject<'py>,
    {
        column.as_primitive::<T>().iter().try_for_each(|value| list.append(value))
    }
    match column.data_type() {
        DataType::UInt8 => numbers::<UInt8Type>(list, column),
        DataType::UInt16 => numbers::<UInt16Type>(list, column),
        DataType::UInt32 => numbers::<UInt32Type>(list, column),
        DataType::UInt64 => numbers::<UInt64Type>(list, column),
        DataType::Int64 => numbers::<Int64Type>(list, column),
        DataType::Float64 => numbers::<Float64Type>(list, column),
        DataType::Boolean => column.as_boolean().iter().try_for_each(|value| list.append(value)),
        DataType::Utf8 => column.as_string::<i32>().iter().try_for_each(|text| list.append(text)),
        DataType::Dictionary(..) => {
            let column = column.as_dictionary::<UInt32Type>();
            let texts = column.values().as_string::<i32>();
            let text = |key: Option<u32>| key.map(|key| texts.value(key as usize));
            column.keys().iter().try_for_each(|key| list.append(text(key)))
        }
        other => Err(PyValueError::new_err(format!("no table of ours has {other}"))),
    }
}
