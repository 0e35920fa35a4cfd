//! `anet inbox`: the interactions, newest first.

use std::io::Write;
use std::time::SystemTime;

use ipc_proto::control::{MAX_ROWS, Row, State, ToNode};
use ipc_proto::{Aid, Code};
use supervisor::error::Trouble;

use crate::arguments::{Anet, Inbox};
use crate::linux::print;
use crate::node::{Client, Failure, Patience, Places};
use crate::page::{Page, Screen, json};
use crate::table::{Column, Table};
use crate::time::{age, seconds_since};

/// How many rows people get where they do not say how many.
const USUAL: usize = 50;

const COLUMNS: [Column; 5] = [
    Column { title: "INTERACTION", least: 17, spare: 0 },
    Column { title: "PEER", least: 6, spare: 2 },
    Column { title: "STATE", least: 11, spare: 0 },
    Column { title: "CODE", least: 8, spare: 3 },
    Column { title: "AGE", least: 3, spare: 1 },
];

/// Which rows are wanted.
#[derive(Debug, Default)]
struct Filter {
    state: Option<State>,
    peer: Option<Aid>,
    most: Option<usize>,
}

pub(crate) fn perform(anet: &Anet, inbox: &Inbox) -> Result<u8, Trouble> {
    let mut filter = filter(inbox)?;
    if !anet.json {
        filter.most = filter.most.or(Some(USUAL));
    }
    let mut client = Client::connect(Places::chosen(anet)?)?;
    let (rows, more) = collect(&mut client, &filter)?;
    if anet.json {
        print(&json(&rows))?;
        return Ok(0);
    }
    print(&page(&rows, Screen::look(), SystemTime::now()).whole())?;
    if more && inbox.count.is_none() {
        let _ = writeln!(std::io::stderr(), "anet: older ones are left out; see more with -n COUNT");
    }
    Ok(0)
}

fn filter(inbox: &Inbox) -> Result<Filter, Trouble> {
    let bad = |what: String| Trouble::new(Code::BadOption, what);
    let state = inbox.state.as_ref().map(|text| {
        State::parse(text).ok_or_else(|| {
            let names: Vec<&str> = State::ALL.into_iter().map(State::as_str).collect();
            bad(format!("--state {text}: no such state; there are {}", names.join(" ")))
        })
    });
    let peer =
        inbox.peer.as_ref().map(|text| text.parse().map_err(|error| bad(format!("--peer {text}: {error}"))));
    Ok(Filter { state: state.transpose()?, peer: peer.transpose()?, most: inbox.count })
}

/// The rows, page by page, and whether there are more of them.
fn collect(client: &mut Client, filter: &Filter) -> Result<(Vec<Row>, bool), Failure> {
    let mut rows: Vec<Row> = Vec::new();
    let mut before = None;
    loop {
        let page: Vec<Row> =
            client.ask(|node| node.document(&ToNode::Inbox { before, most: MAX_ROWS }, Patience::Prompt))?;
        // A page that goes nowhere would be asked for again for ever.
        let next =
            page.iter().map(|row| row.number).min().filter(|next| before.is_none_or(|before| *next < before));
        let wanted = page.into_iter().filter(|row| {
            filter.state.is_none_or(|state| row.state == state)
                && filter.peer.as_ref().is_none_or(|peer| row.peer == peer.as_str())
        });
        for row in wanted {
            if filter.most.is_some_and(|most| rows.len() >= most) {
                return Ok((rows, true));
            }
            rows.push(row);
        }
        if next.is_none() {
            return Ok((rows, false));
        }
        before = next;
    }
}

fn page(rows: &[Row], screen: Screen, now: SystemTime) -> Page {
    let mut table = Table::new(&COLUMNS);
    for row in rows {
        table.row(vec![
            row.id.clone(),
            row.peer.clone(),
            row.state.as_str().to_owned(),
            row.code.clone().unwrap_or_default(),
            age(seconds_since(&row.submitted, now)),
        ]);
    }
    let mut page = Page::new(screen);
    page.table(&table);
    page
}

#[cfg(test)]
mod tests {
    use ipc_proto::control::FromNode;
    use supervisor::chain::at_unix_ms;
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::node::fake::{Fake, row};

    /// A node with 2500 tasks of two peers, newest first.
    fn node() -> Fake {
        Fake::once(|caller| {
            caller.greet();
            while let Some((message, _)) = caller.hear() {
                let ToNode::Inbox { before, most } = message else { panic!("{message:?}") };
                let newest = before.unwrap_or(2501);
                let rows: Vec<Row> = (1..newest)
                    .rev()
                    .take(usize::from(most))
                    .map(|number| {
                        let state = if number % 5 == 0 { State::Refused } else { State::Answered };
                        row(number, if number % 2 == 0 { "even" } else { "odd" }, state)
                    })
                    .collect();
                caller.give(&FromNode::Document, &rows);
            }
        })
    }

    fn numbers(filter: &Filter) -> (Vec<u64>, bool) {
        let node = node();
        let mut client = Client::connect(node.places()).unwrap();
        let (rows, more) = collect(&mut client, filter).unwrap();
        drop(client);
        node.join();
        (rows.into_iter().map(|row| row.number).collect(), more)
    }

    /// CLI: all pages, newest first; by state, by peer, at most so many, and whether there are more.
    #[test]
    fn pages_are_put_together() {
        let all: Vec<u64> = (1..=2500).rev().collect();
        assert_eq!(numbers(&Filter::default()), (all.clone(), false));
        assert_eq!(numbers(&Filter { most: Some(3), ..Filter::default() }), (vec![2500, 2499, 2498], true));
        assert_eq!(numbers(&Filter { most: Some(2500), ..Filter::default() }), (all.clone(), false));
        assert_eq!(numbers(&Filter { most: Some(0), ..Filter::default() }), (vec![], true));
        let refused = Filter { state: Some(State::Refused), peer: Some("odd".parse().unwrap()), most: None };
        let wanted: Vec<u64> = all.into_iter().filter(|number| number % 10 == 5).collect();
        assert_eq!(numbers(&refused), (wanted, false));
    }

    /// A node that gives the same page for ever is not asked for ever.
    #[test]
    fn a_page_that_leads_nowhere_is_the_last() {
        let node = Fake::once(|caller| {
            caller.greet();
            while caller.hear().is_some() {
                caller.give(&FromNode::Document, &vec![row(7, "p", State::Queued)]);
            }
        });
        let mut client = Client::connect(node.places()).unwrap();
        let (rows, more) = collect(&mut client, &Filter::default()).unwrap();
        assert!(rows.len() <= 2 && !more, "{rows:?}");
        drop(client);
        node.join();
    }

    /// A table fits: what cannot be shown whole is cut or left out, the id never.
    #[test]
    fn the_table_fits() {
        let mut rows = vec![row(12, "alice@example.com:4711", State::Refused), row(9, "b", State::Answered)];
        rows[1].peer = "\x1b[2J\u{202e}日本語日本語日本語日本語".to_owned();
        let now = at_unix_ms(1_774_692_012_000);
        for columns in [40, 80, 200] {
            let screen = Screen { columns: Some(columns), rows: None, colour: false };
            let lines: Vec<String> = page(&rows, screen, now).lines().collect();
            assert_eq!(lines.len(), 3, "{lines:?}");
            for line in &lines {
                assert!(line.width() <= columns, "{columns}: {line:?}");
                assert!(!line.chars().any(supervisor::error::steers), "{line:?}");
            }
            assert!(lines[1].contains("i0000000000000012") && lines[1].contains("refused"), "{lines:?}");
            assert_eq!(lines[0].contains("CODE"), columns > 40, "{lines:?}");
        }
        let lines: Vec<String> = page(&rows, Screen::PLAIN, now).lines().collect();
        assert!(lines[1].ends_with("12s") && lines[1].contains("alice@example.com:4711"), "{lines:?}");
        assert_eq!(page(&[], Screen::PLAIN, now).whole(), "");
    }
}
