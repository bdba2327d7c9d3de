//! Writes idle logs byte by byte, so that a test can put anything anywhere. Pages are plain unless
//! the test changes them. Numbers are field ids in parquet-format's `parquet.thrift`.

pub const PLAIN: i64 = 0;
pub const RLE: i64 = 3;
pub const BIT_PACKED: i64 = 4;
pub const DELTA: i64 = 5;
pub const DICTIONARY: i64 = 8;
pub const DATA_PAGE: i64 = 0;
pub const DICTIONARY_PAGE: i64 = 2;
pub const DATA_PAGE_V2: i64 = 3;

/// How many rows [`Log::new`] has.
pub const ROW_COUNT: i64 = 3;

#[derive(Clone)]
pub struct Page {
    pub page_type: i64,
    pub value_count: i64,
    pub encoding: i64,
    pub level_encoding: i64,
    /// The sizes in the header; `None` for the true length.
    pub unpacked_byte_count: Option<i64>,
    pub packed_byte_count: Option<i64>,
    pub body: Vec<u8>,
}

#[derive(Clone)]
pub struct Chunk {
    pub name: &'static str,
    pub physical_type: i64,
    pub is_nullable: bool,
    pub codec: i64,
    pub row_count: i64,
    pub pages: Vec<Page>,
    /// The values in the footer; `None` for the true ones.
    pub offset: Option<i64>,
    pub byte_count: Option<i64>,
    /// For 32-bit columns.
    pub range: Option<[i32; 2]>,
    /// The declared width of the column's integers.
    pub integer_width: Option<u8>,
}

#[derive(Clone)]
pub struct Log {
    pub json: Option<String>,
    pub row_count: i64,
    pub group_row_count: i64,
    pub chunks: Vec<Chunk>,
    /// The number of columns nested in the schema's first one.
    pub nested_count: i64,
    /// Whether the group lacks the last column.
    pub is_last_chunk_missing: bool,
    /// Inserted before the footer's end.
    pub footer_extra: Vec<u8>,
}

pub fn page(encoding: i64, body: Vec<u8>) -> Page {
    Page {
        page_type: DATA_PAGE,
        value_count: ROW_COUNT,
        encoding,
        level_encoding: RLE,
        unpacked_byte_count: None,
        packed_byte_count: None,
        body,
    }
}

pub fn dictionary(value_count: i64, body: Vec<u8>) -> Page {
    Page { page_type: DICTIONARY_PAGE, value_count, ..page(PLAIN, body) }
}

/// A length, followed by that many bytes.
pub fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

fn plain32(values: [i32; 3]) -> Page {
    page(PLAIN, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn plain64(values: [i64; 3]) -> Page {
    page(PLAIN, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

impl Log {
    /// A readable log with three gaps of CPU 1.
    pub fn new() -> Self {
        let chunk = |name, physical_type, is_nullable, pages| Chunk {
            name,
            physical_type,
            is_nullable,
            codec: 0,
            row_count: ROW_COUNT,
            pages,
            offset: None,
            byte_count: None,
            range: None,
            integer_width: None,
        };
        // Two of three values: levels 1, 0, 1; deltas 700, 900.
        let sleep_length = [&prefixed(&[3, 0b101])[..], &deltas(&[700, 900])].concat();
        let names = [prefixed(b"timer"), prefixed(b"ipi")].concat();
        let mut cpu = chunk("cpu", 1, false, vec![plain32([1, 1, 1])]);
        cpu.range = Some([1, 1]);
        let recorded_state = [&prefixed(&[6, 1])[..], &[2, 0, 0, 0].repeat(3)].concat();
        Log {
            json: Some(
                r#"{"format_version":1,"created_by":"","source":{"format":"","byte_count":0,
                "event_count":0},"cpus":[],"unknown_columns":[],"doubts":[]}"#
                    .to_owned(),
            ),
            row_count: ROW_COUNT,
            group_row_count: ROW_COUNT,
            chunks: vec![
                cpu,
                chunk("start_ns", 2, false, vec![plain64([10, 20, 30])]),
                chunk("gap_ns", 2, false, vec![page(DELTA, deltas(&[5, 6, 7]))]),
                chunk("sleep_length_ns", 2, true, vec![page(DELTA, sleep_length)]),
                chunk("tick_stopped", 0, false, vec![page(PLAIN, vec![0b010])]),
                chunk("ran_task", 0, false, vec![page(RLE, prefixed(&[6, 1]))]),
                chunk(
                    "wake_reason",
                    6,
                    false,
                    vec![dictionary(2, names), page(DICTIONARY, vec![1, 3, 0b001])],
                ),
                chunk("recorded_state", 1, true, vec![page(PLAIN, recorded_state)]),
            ],
            nested_count: 0,
            is_last_chunk_missing: false,
            footer_extra: Vec::new(),
        }
    }

    pub fn chunk(&mut self, name: &str) -> &mut Chunk {
        self.chunks.iter_mut().find(|chunk| chunk.name == name).expect("a column of Log::new")
    }

    /// The last page of a column.
    pub fn page(&mut self, name: &str) -> &mut Page {
        self.chunk(name).pages.last_mut().expect("every column has a page")
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"PAR1".to_vec();
        let mut footer = Thrift::default();
        footer.int(1, 1);
        footer.list(2, 1 + self.chunks.len());
        footer.element(|root| {
            root.bytes(4, b"idle_gap");
            root.int(5, self.chunks.len() as i64);
        });
        for (index, chunk) in self.chunks.iter().enumerate() {
            footer.element(|element| {
                element.int(1, chunk.physical_type);
                element.int(3, i64::from(chunk.is_nullable));
                element.bytes(4, chunk.name.as_bytes());
                if index == 0 && self.nested_count > 0 {
                    element.int(5, self.nested_count);
                }
                if let Some(width) = chunk.integer_width {
                    element.nested(10, |logical| {
                        logical.nested(10, |integer| {
                            integer.byte(1, width);
                            integer.flag(2, false);
                        });
                    });
                }
            });
        }
        footer.int(3, self.row_count);
        let chunks = &self.chunks[..self.chunks.len() - usize::from(self.is_last_chunk_missing)];
        footer.list(4, 1);
        footer.element(|group| {
            group.list(1, chunks.len());
            for chunk in chunks {
                let start = bytes.len() as i64;
                bytes.extend(chunk.pages.iter().flat_map(Page::bytes));
                let byte_count = bytes.len() as i64 - start;
                group.element(|element| {
                    element.int(2, 0);
                    element.nested(3, |metadata| {
                        metadata.int(1, chunk.physical_type);
                        metadata.list_of(2, 5, 0);
                        metadata.list_of(3, 8, 1);
                        metadata.element_bytes(chunk.name.as_bytes());
                        metadata.int(4, chunk.codec);
                        metadata.int(5, chunk.row_count);
                        metadata.int(6, byte_count);
                        metadata.int(7, chunk.byte_count.unwrap_or(byte_count));
                        metadata.int(9, chunk.offset.unwrap_or(start));
                        if let Some([min, max]) = chunk.range {
                            metadata.nested(12, |statistics| {
                                statistics.bytes(5, &max.to_le_bytes());
                                statistics.bytes(6, &min.to_le_bytes());
                            });
                        }
                    });
                });
            }
            group.int(2, 0);
            group.int(3, self.group_row_count);
        });
        if let Some(json) = &self.json {
            footer.list(5, 1);
            footer.element(|pair| {
                pair.bytes(1, b"idlewise");
                pair.bytes(2, json.as_bytes());
            });
        }
        footer.bytes.extend(&self.footer_extra);
        footer.bytes.push(0);
        bytes.extend(&footer.bytes);
        bytes.extend((footer.bytes.len() as u32).to_le_bytes());
        bytes.extend(b"PAR1");
        bytes
    }
}

impl Page {
    fn bytes(&self) -> Vec<u8> {
        let mut header = Thrift::default();
        header.int(1, self.page_type);
        header.int(2, self.unpacked_byte_count.unwrap_or(self.body.len() as i64));
        header.int(3, self.packed_byte_count.unwrap_or(self.body.len() as i64));
        match self.page_type {
            DICTIONARY_PAGE => header.nested(7, |page| {
                page.int(1, self.value_count);
                page.int(2, self.encoding);
            }),
            DATA_PAGE_V2 => header.nested(8, |page| {
                page.int(1, self.value_count);
                page.int(2, 0);
                page.int(3, self.value_count);
                page.int(4, self.encoding);
                page.int(5, 0);
                page.int(6, 0);
            }),
            _ => header.nested(5, |page| {
                page.int(1, self.value_count);
                page.int(2, self.encoding);
                page.int(3, self.level_encoding);
                page.int(4, RLE);
            }),
        }
        header.bytes.push(0);
        [header.bytes, self.body.clone()].concat()
    }
}

/// DELTA_BINARY_PACKED in blocks of 128 values in 4 parts, with all deltas in 16 bits.
fn deltas(values: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0x80, 0x01, 4, values.len() as u8];
    bytes.extend(zigzag(values[0]));
    bytes.extend([0, 16, 0, 0, 0]);
    bytes.extend(values.windows(2).flat_map(|pair| ((pair[1] - pair[0]) as u16).to_le_bytes()));
    bytes.resize(bytes.len() + (33 - values.len()) * 2, 0);
    bytes
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub fn zigzag(value: i64) -> Vec<u8> {
    varint((value << 1 ^ value >> 63) as u64)
}

/// A struct in Thrift's compact protocol, without its end marker.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    last_id: u8,
}

impl Thrift {
    fn head(&mut self, id: u8, kind: u8) {
        self.bytes.push((id - self.last_id) << 4 | kind);
        self.last_id = id;
    }

    fn flag(&mut self, id: u8, value: bool) {
        self.head(id, if value { 1 } else { 2 });
    }

    fn byte(&mut self, id: u8, value: u8) {
        self.head(id, 3);
        self.bytes.push(value);
    }

    fn int(&mut self, id: u8, value: i64) {
        self.head(id, 6);
        self.bytes.extend(zigzag(value));
    }

    fn bytes(&mut self, id: u8, value: &[u8]) {
        self.head(id, 8);
        self.element_bytes(value);
    }

    fn element_bytes(&mut self, value: &[u8]) {
        self.bytes.extend(varint(value.len() as u64));
        self.bytes.extend(value);
    }

    fn nested(&mut self, id: u8, fill: impl FnOnce(&mut Thrift)) {
        self.head(id, 12);
        self.element(fill);
    }

    /// A list of structs.
    fn list(&mut self, id: u8, count: usize) {
        self.list_of(id, 12, count);
    }

    fn list_of(&mut self, id: u8, kind: u8, count: usize) {
        self.head(id, 9);
        self.bytes.push(0xf0 | kind);
        self.bytes.extend(varint(count as u64));
    }

    fn element(&mut self, fill: impl FnOnce(&mut Thrift)) {
        let mut element = Thrift::default();
        fill(&mut element);
        self.bytes.extend(element.bytes);
        self.bytes.push(0);
    }
}
