#![no_main]

idlewise_trace_fuzz::importer!(idlewise_trace::import::text::FtraceText);
