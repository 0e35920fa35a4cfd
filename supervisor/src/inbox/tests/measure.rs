//! Figures, not properties: `cargo test --release -p supervisor --lib -- --ignored --nocapture measure`.

use std::time::Instant;

use super::*;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "figures"]
fn what_a_submit_costs() {
    for mode in ["WAL", "TRUNCATE", "DELETE", "PERSIST"] {
        for length in [1_000, 100_000, 1_000_000] {
            let dir =
                tempfile::tempdir_in(std::env::var("MEASURE_DIR").unwrap_or("/var/tmp".into())).unwrap();
            let mut inbox = Inbox::open(dir.path()).unwrap();
            inbox.bounds = Bounds { bytes: u64::MAX, bytes_of_peer: u64::MAX, ..inbox.bounds };
            inbox.connection.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
            let text = "x".repeat(length);
            let times = (0..200)
                .map(|number| {
                    let begun = Instant::now();
                    submit(&mut inbox, "p", &format!("i{number}"), &text).unwrap();
                    begun.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            println!("{mode:9} {length:8} bytes: {:.2} ms", median(times));
        }
    }
}

#[test]
#[ignore = "figures"]
fn what_an_open_costs() {
    for (tasks, length) in [(1_000, 1_000), (100_000, 200), (100_000, 5_000)] {
        let dir = tempfile::tempdir_in(std::env::var("MEASURE_DIR").unwrap_or("/var/tmp".into())).unwrap();
        let mut inbox = Inbox::open(dir.path()).unwrap();
        let text = "x".repeat(length);
        let sha256: [u8; 32] = Sha256::digest(&text).into();
        inbox
            .change(|transaction| {
                for number in 0..tasks {
                    let row =
                        "INSERT INTO interaction (id, peer, state, submitted, ended, task_bytes, task_sha256)
                               VALUES (?, ?, 'answered', 1, 2, ?, ?)";
                    let peer = format!("peer{}", number % 100);
                    transaction.execute(row, (format!("interaction{number}"), peer, length, sha256))?;
                    transaction
                        .execute("INSERT INTO task VALUES (last_insert_rowid(), ?)", [text.as_bytes()])?;
                    transaction.execute("INSERT INTO answer VALUES (last_insert_rowid(), ?)", [&text])?;
                    let run = "INSERT INTO run (id, interaction, way, started, ended, record)
                               VALUES (?, last_insert_rowid(), 'sandbox', 1, 2, ?)";
                    transaction.execute(run, (format!("run{number}"), "r".repeat(900)))?;
                }
                Ok(())
            })
            .unwrap();
        drop(inbox);
        let begun = Instant::now();
        let inbox = Inbox::open(dir.path()).unwrap();
        let open = begun.elapsed();
        let check = |what: &str| {
            let begun = Instant::now();
            let word: String = inbox.connection.query_row(what, [], |row| row.get(0)).unwrap();
            assert_eq!(word, "ok");
            begun.elapsed()
        };
        println!(
            "{tasks} tasks of {length}: open {open:?}, quick_check {:?}, of the table alone {:?}",
            check("PRAGMA quick_check"),
            check("PRAGMA quick_check(interaction)"),
        );
    }
}
