//! `kernel/idlewise_governor.c`: in a replay, the kernel module's source file decides as the ports
//! of menu and its variants do.

use crate::{OwnFile, json, root};

#[test]
fn decides_by_each_rule_as_the_port_does() {
    let source = std::fs::read_to_string(root().join("kernel/idlewise_governor.c")).unwrap();
    // The compiler can only read the file's folder.
    let symbols = std::fs::read_to_string(root().join("kernel/governor_symbols.h")).unwrap();
    let source = source.replace("#include \"governor_symbols.h\"", &symbols);
    for (rule, port) in ["menu-6.12", "menu-6.12+min", "menu-6.12+safe-range"].iter().enumerate() {
        let initial = format!("static unsigned int rule = {rule};");
        let file =
            OwnFile::new("governor.c", source.replace("static unsigned int rule;", &initial));
        let governors = ["--governor", port, "--governor", file.path(), "--kernel", "6.12"];
        let machines = ["--machine", "spr", "--machine", "milan"];
        let results = json(&[&["replay", "--json"], &machines[..], &governors[..]].concat());
        let rows = results["rows"].as_array().unwrap();
        assert!(rows.len() >= 4, "{results}");
        for pair in rows.chunks(2) {
            let [mut ours, mut its] = [pair[0].clone(), pair[1].clone()];
            for row in [&mut ours, &mut its] {
                row.as_object_mut().unwrap().remove("governor");
            }
            assert_eq!(ours, its, "rule {rule}");
        }
    }
}
