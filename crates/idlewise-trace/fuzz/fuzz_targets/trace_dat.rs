#![no_main]

idlewise_trace_fuzz::importer!(idlewise_trace::import::trace_dat::TraceDat);
