//! A run's chain, as somebody may have changed it: never a panic, and a chain that holds has the lines it says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Ok((lines, _)) = supervisor::chain::read(text) {
        assert_eq!(lines.len(), text.iter().filter(|byte| **byte == b'\n').count());
    }
});
