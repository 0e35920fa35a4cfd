//! The configuration file: any text is a configuration, or an error with a line that it has.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = supervisor::config::parse(text) {
        assert!(error.line <= text.lines().count() + 1, "{error} of {text:?}");
        assert!(!error.what.is_empty());
    }
});
