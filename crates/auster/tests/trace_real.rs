//! `auster trace` on real Open vSwitch: a few packets of the script that compares it with
//! `ofproto/trace` and with what hosts receive.

use std::process::Command;

#[test]
fn traces_are_those_of_open_vswitch_and_packets_come_out_where_they_say() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/trace");
    let arguments = ["--auster", env!("CARGO_BIN_EXE_auster"), "--cases", "45"];
    let output = Command::new(script).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{script}: {e}: run scripts/setup"));
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{errors}");
    assert!(report.contains("45 packets"), "{report}");
    assert!(report.contains("delivered"), "{report}");
}
