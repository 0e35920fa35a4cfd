//! A command line in one argument: a JSON array, or words as a shell would split them.

/// Why text is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordsError {
    #[error(
        "what begins with [ is a JSON array of strings, such as [\"/usr/bin/python3\", \"/opt/agent.py\"]"
    )]
    NoJson,
    #[error("a quotation mark is not closed")]
    Open,
    #[error("nothing follows the last backslash")]
    Backslash,
    #[error(
        "$ ` | & ; < > ( ) mean nothing here, since no shell reads them; quote them with '...', or name sh -c yourself"
    )]
    Shell,
}

/// The words; none of empty text.
pub(super) fn words(text: &str) -> Result<Vec<String>, WordsError> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|_| WordsError::NoJson);
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(WordsError::Open)? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(WordsError::Open)? {
                        '"' => break,
                        '$' | '`' => return Err(WordsError::Shell),
                        // As a shell: within these marks a backslash is itself before anything else.
                        '\\' => match letters.next().ok_or(WordsError::Open)? {
                            letter @ ('"' | '\\' | '$' | '`') => word.push(letter),
                            '\n' => {}
                            letter => word.extend(['\\', letter]),
                        },
                        letter => word.push(letter),
                    }
                }
            }
            '\\' => {
                let letter = letters.next().ok_or(WordsError::Backslash)?;
                word.get_or_insert_default().push(letter);
            }
            '$' | '`' | '|' | '&' | ';' | '<' | '>' | '(' | ')' => return Err(WordsError::Shell),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLI: `--command` takes a JSON array, or words with a shell's quotation marks and nothing else of a shell.
    #[test]
    fn a_command_line_is_split_as_a_shell_would() {
        for (text, wanted) in [
            ("", &[][..]),
            ("  ", &[]),
            ("/bin/sh -c 'echo a  b'", &["/bin/sh", "-c", "echo a  b"]),
            (r#"a "b \" \n c"d ''"#, &["a", "b \" \\n cd", ""]),
            (r"a\ b \'", &["a b", "'"]),
            (r#" ["/bin/sh", "-c", "echo '$x'"]"#, &["/bin/sh", "-c", "echo '$x'"]),
            ("agent '{task}'", &["agent", "{task}"]),
            ("[]", &[]),
        ] {
            assert_eq!(
                words(text).as_deref(),
                Ok(&wanted.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
        for (text, wanted) in [
            ("a 'b", WordsError::Open),
            ("a \"b", WordsError::Open),
            ("a \\", WordsError::Backslash),
            ("[1]", WordsError::NoJson),
            ("[\"a\"", WordsError::NoJson),
            ("echo $HOME", WordsError::Shell),
            ("a | b", WordsError::Shell),
            ("echo \"`id`\"", WordsError::Shell),
        ] {
            assert_eq!(words(text), Err(wanted), "{text}");
        }
    }
}
