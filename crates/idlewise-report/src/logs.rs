//! The logs of a sweep, as `idlewise lab sweep plan` lists them once for all who work on it.

use parquet::errors::ParquetError;

use crate::columns::LOG;
use crate::parquet::ParquetColumns;
use crate::{Column, Table};

/// A log of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRow {
    /// Its name in results.
    pub name: String,
    /// A path or a URL; `None`: it is built in.
    pub url: Option<String>,
    /// The SHA-256 of its file, or why there is none.
    pub sha256: Option<String>,
    /// Why the file could not be read.
    pub failure: Option<String>,
    /// What else is known of it.
    pub about: LogAbout,
}

/// What is known of a log's file besides its content's hash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogAbout {
    /// The length of its file.
    pub byte_count: Option<u64>,
    /// What its server says of the content, which changes with it.
    pub version: Option<String>,
    /// Its idle gaps; `None` of recordings, which would have to be converted.
    pub gap_count: Option<u64>,
    /// Its CPUs.
    pub cpu_count: Option<u64>,
    /// The recorded kernel's CONFIG_HZ.
    pub hz: Option<u64>,
}

const SHA256: &str = "log_sha256";
const URL: &str = "url";

/// Returns the columns of the table.
pub fn columns() -> Vec<Column<LogRow>> {
    type C = Column<LogRow>;
    vec![
        C::new(LOG, |row| row.name.as_str().into()),
        C::text(URL, "url", |row| row.url.clone().into())
            .means("Where it is, a path or a URL; absent: it is built in."),
        C::text(SHA256, "sha256", |row| row.sha256.clone().into())
            .means("The SHA-256 of its file; absent if that could not be read."),
        C::text("failure", "failure", |row| row.failure.clone().into())
            .means("Why the file could not be read; absent if it was."),
        C::count("byte_count", "bytes", |row| row.about.byte_count.into())
            .means("The length of its file in bytes."),
        C::text("version", "version", |row| row.about.version.clone().into()).means(
            "What its server says of the content; absent of files and without such a server.",
        ),
        C::count("gap_count", "gaps", |row| row.about.gap_count.into())
            .means("Its idle gaps; absent of recordings, which would have to be converted."),
        C::count("cpu_count", "CPUs", |row| row.about.cpu_count.into()).means("Its CPUs."),
        C::count("hz", "HZ", |row| row.about.hz.into()).means("The recorded kernel's CONFIG_HZ."),
    ]
}

/// Returns the table as a Parquet file.
pub fn to_file(rows: &[LogRow]) -> Vec<u8> {
    Table::new("", &columns(), rows).to_parquet(None)
}

/// Reads a file of [`to_file`]. Other columns may be missing, or there may be more, but not where a log is and its hash.
///
/// # Errors
/// Fails if it is not one, with what is missing.
pub fn of_file(file: Vec<u8>) -> Result<Vec<LogRow>, ParquetError> {
    let columns = ParquetColumns::of(file)?;
    if let Some(id) = [LOG.id, URL, SHA256].into_iter().find(|id| !columns.has(id)) {
        return Err(ParquetError::General(format!("it has no column '{id}'")));
    }
    let row = |row: usize| {
        let text = |id| columns.text(id, row).map(str::to_owned);
        let count = |id| columns.count(id, row);
        LogRow {
            name: text(LOG.id).unwrap_or_default(),
            url: text(URL),
            sha256: text(SHA256),
            failure: text("failure"),
            about: LogAbout {
                byte_count: count("byte_count"),
                version: text("version"),
                gap_count: count("gap_count"),
                cpu_count: count("cpu_count"),
                hz: count("hz"),
            },
        }
    };
    Ok((0..columns.row_count()).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn a_table_comes_back() {
        let rows = [
            LogRow { name: "a".to_owned(), sha256: Some("1".to_owned()), ..LogRow::default() },
            LogRow {
                name: "b".to_owned(),
                url: Some("s3://b/b".to_owned()),
                failure: Some("no".to_owned()),
                about: LogAbout {
                    byte_count: Some(1),
                    version: Some("v".to_owned()),
                    gap_count: Some(u64::MAX),
                    cpu_count: Some(2),
                    hz: Some(250),
                },
                sha256: None,
            },
        ];
        assert_eq!(of_file(to_file(&rows)).unwrap(), rows);
        let other = Table::new("", &[Column::new(LOG, |_: &u8| Value::Absent)], [1]);
        let fault = of_file(other.to_parquet(None)).unwrap_err().to_string();
        assert!(fault.contains("no column 'url'"), "{fault}");
    }
}
