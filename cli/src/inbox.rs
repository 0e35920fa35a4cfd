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
