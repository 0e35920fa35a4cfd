//! Tables and wrapped text of a given width, counted in columns of a terminal.

use supervisor::error::one_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: usize = 2;
/// What stands for text that was left out.
const CUT: char = '…';

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its head.
    pub(crate) title: &'static str,
    /// It is not cut to less than this; what is shorter is not cut at all.
    pub(crate) least: usize,
    /// Where there is no room the highest goes first; 0: it stays.
    pub(crate) spare: u8,
}

/// Rows below heads.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    columns: &'a [Column],
    rows: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(columns: &'a [Column]) -> Table<'a> {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| one_line(cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Head and rows, none wider than the room; nothing where there are no rows.
    pub(crate) fn lines(&self, room: Option<usize>) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let widths = self.widths(room);
        let head: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(String::as_str).collect::<Vec<&str>>());
        std::iter::once(head).chain(rows).map(|cells| line(&cells, &widths)).collect()
    }

    /// How wide each column is; none: it has no room.
    fn widths(&self, room: Option<usize>) -> Vec<Option<usize>> {
        let natural = self.columns.iter().enumerate().map(|(at, column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
            cells.chain([column.title.width()]).max().unwrap_or(0)
        });
        let mut widths: Vec<Option<usize>> = natural.map(Some).collect();
        let Some(room) = room else { return widths };
        loop {
            let shown = widths.iter().flatten();
            let wanted = shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1);
            let Some(over) = wanted.checked_sub(room).filter(|over| *over > 0) else { return widths };
            // First the widest gives what it can; then a column goes.
            let cuttable = |(at, width): (usize, &Option<usize>)| {
                let width = (*width)?;
                let least = self.columns.get(at)?.least;
                (width > least).then_some((width, at, least))
            };
            if let Some((width, at, least)) = widths.iter().enumerate().filter_map(cuttable).max() {
                // One after the other, so that two of the same kind stay equal.
                let others = widths.iter().enumerate().filter_map(cuttable).filter(|other| other.1 != at);
                let next = others.map(|other| other.0).max().unwrap_or(0);
                let cut = over.min(width - least).min((width - next.min(width)).max(1));
                if let Some(Some(width)) = widths.get_mut(at) {
                    *width -= cut;
                }
                continue;
            }
            let spare = self
                .columns
                .iter()
                .zip(&widths)
                .enumerate()
                .filter(|(_, (column, width))| column.spare > 0 && width.is_some());
            let Some((at, _)) = spare.max_by_key(|(_, (column, _))| column.spare) else { return widths };
            if let Some(width) = widths.get_mut(at) {
                *width = None;
            }
            // What the others gave for it comes back to them.
            for (at, width) in widths.iter_mut().enumerate() {
                if width.is_some() {
                    let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
                    let title = self.columns.get(at).map_or(0, |column| column.title.width());
                    *width = cells.chain([title]).max();
                }
            }
        }
    }
}

fn line(cells: &[&str], widths: &[Option<usize>]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let Some(width) = *width else { continue };
        let cell = cut(cell, width);
        text.push_str(&cell);
        text.extend(std::iter::repeat_n(' ', width - cell.width().min(width) + GAP));
    }
    text.trim_end().to_owned()
}

/// The text, or its beginning with a mark where it has no room.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut left = width.saturating_sub(1);
    for letter in text.chars() {
        let needs = letter.width().unwrap_or(0);
        if needs > left {
            break;
        }
        left -= needs;
        short.push(letter);
    }
    if width > 0 {
        short.push(CUT);
    }
    short
}

/// The text in lines that have room: broken between words, and within one only where it fills a line by itself.
pub(crate) fn wrapped(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room.map(|room| room.max(1)) else { return vec![text.to_owned()] };
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let between = usize::from(!line.is_empty());
        if line.width() + between + word.width() <= room {
            line.extend(std::iter::repeat_n(' ', between));
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for letter in word.chars() {
            if line.width() + letter.width().unwrap_or(0) > room {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { title: "A", least: 4, spare: 0 },
        Column { title: "B", least: 3, spare: 2 },
        Column { title: "C", least: 2, spare: 1 },
    ];

    fn lines(rows: &[[&str; 3]], room: Option<usize>) -> Vec<String> {
        let mut table = Table::new(&COLUMNS);
        for row in rows {
            table.row(row.iter().map(|cell| (*cell).to_owned()).collect());
        }
        table.lines(room)
    }

    /// Wide letters take two columns, and a cut never splits one.
    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn words_are_wrapped_whole() {
        assert_eq!(wrapped("one two three", Some(7)), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", Some(3)), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("one two", None), ["one two"]);
        assert_eq!(wrapped("", Some(5)), [""]);
    }

    /// The widest gives first; what can be spared goes before anything that cannot.
    #[test]
    fn columns_give_way() {
        let row = [["aaaaaaaa", "bbbbbb", "cc"]];
        assert_eq!(lines(&row, None)[1], "aaaaaaaa  bbbbbb  cc");
        assert_eq!(lines(&row, Some(18))[1], "aaaaa…  bbbbbb  cc");
        assert_eq!(lines(&row, Some(13))[1], "aaa…  bb…  cc");
        assert_eq!(lines(&row, Some(12))[1], "aaaaaaaa  cc");
        assert_eq!(lines(&row, Some(8))[1], "aaa…  cc".trim_end());
        assert_eq!(lines(&row, Some(5))[1], "aaaa…");
        assert_eq!(lines(&[], Some(5)), Vec::<String>::new());
    }

    proptest! {
        /// Whatever stands in it, a table with room for what must stay fits, and every column starts at one place.
        #[test]
        fn a_table_fits(cells in prop::collection::vec("\\PC{0,30}", 3..12), room in 4usize..100) {
            let rows: Vec<[&str; 3]> = cells.chunks_exact(3).map(|row| [row[0].as_str(), row[1].as_str(), row[2].as_str()]).collect();
            for line in lines(&rows, Some(room)) {
                prop_assert!(line.width() <= room, "{room}: {line:?}");
            }
        }

        /// Nothing is lost by wrapping but the spaces at line ends, and every line fits where its letters do.
        #[test]
        fn wrapping_loses_nothing(text in "[a-z日 ]{0,80}", room in 2usize..40) {
            let lines = wrapped(&text, Some(room));
            prop_assert!(lines.iter().all(|line| line.width() <= room), "{lines:?}");
            prop_assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
    }
}
