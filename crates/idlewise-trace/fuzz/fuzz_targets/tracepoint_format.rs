//! The input is a system's name, a line feed, a format text, a zero byte and a record. The text's
//! decoder reads the record in both byte orders; a block of such texts is parsed too.
#![no_main]

use idlewise_trace::ByteOrder;
use idlewise_trace::import::TracingData;
use idlewise_trace::tracepoint::{Decoder, EventFormat, Purpose};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = TracingData::parse(bytes);
    let mut parts = bytes.splitn(2, |&byte| byte == b'\n');
    let (Some(system), Some(rest)) = (parts.next(), parts.next()) else { return };
    let mut parts = rest.splitn(2, |&byte| byte == 0);
    let (Some(text), Some(record)) = (parts.next(), parts.next()) else { return };
    let (Ok(system), Some(format)) = (std::str::from_utf8(system), EventFormat::parse(text)) else {
        return;
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for purpose in Purpose::ALL {
            if let Ok(Some(decoder)) = Decoder::compile(system, &format, order, purpose) {
                let _ = decoder.decode(record, 3);
            }
        }
    }
});
