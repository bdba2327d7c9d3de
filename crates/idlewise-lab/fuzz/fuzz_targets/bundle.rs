//! Reads any bytes as the archive in a bundle, and as its file of sums. Whatever is taken must be a file below the
//! folder, once, within the limits, and must be what packing the same files gives.
#![no_main]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use idlewise_lab::bundle::{Limits, Sums, pack, unpack, unpack_tar};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { file_count: 8, byte_count: 4_096 };

fuzz_target!(|bytes: &[u8]| {
    let mut taken: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let files = unpack_tar(bytes, LIMITS, &mut |path, byte_count, content| {
        let mut parts = Path::new(path.as_str()).components();
        assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{path}");
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        assert!(bytes.len() as u64 <= byte_count);
        assert!(taken.insert(path.to_string(), bytes).is_none(), "{path} twice");
        Ok(())
    });
    assert!(taken.len() <= LIMITS.file_count);
    assert!(taken.values().map(Vec::len).sum::<usize>() as u64 <= LIMITS.byte_count);
    match files {
        Err(error) => {
            let text = error.to_string();
            assert!(text.lines().count() == 1 && !text.contains(char::is_control), "{text:?}");
        }
        // The archive has only one form.
        Ok(files) => {
            let folder = tempfile::tempdir().expect("a folder");
            for (path, bytes) in &taken {
                let to = folder.path().join(path);
                std::fs::create_dir_all(to.parent().expect("a folder")).expect("no file is a folder");
                std::fs::write(to, bytes).expect("it is written");
            }
            let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
            let mut packed = Vec::new();
            pack(folder.path(), &paths, &mut packed).expect("it is packed");
            let mut again = Vec::new();
            zstd::Decoder::new(&packed[..]).expect("zstd").read_to_end(&mut again).expect("zstd");
            assert!(again == bytes);
            assert_eq!(unpack(&packed[..], LIMITS, &mut |_, _, _| Ok(())).expect("it is ours"), files);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(sums) = Sums::parse(text)
    {
        assert_eq!(Sums::parse(&sums.to_string()), Ok(sums));
    }
});
