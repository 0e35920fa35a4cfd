//! Prints docs/CODES.md: `cargo run -p cli --example codes > docs/CODES.md`.

fn main() {
    print!("{}", document());
}

/// Every code and every sentence that a refused program reads, from the code that says them.
pub(crate) fn document() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "# Codes\n\nMade from the code: `cargo run -p cli --example codes > docs/CODES.md`.\n\n## What anet says to the \
         operator\n\n`anet doctor --explain CODE` prints the same.\n\n| code | sentence |\n| --- | --- |\n",
    );
    for code in ipc_proto::Code::ALL {
        let warning = if code.is_warning() { " (warning)" } else { "" };
        let _ = writeln!(text, "| `{code}`{warning} | {} |", cell(supervisor::explain::sentence(*code)));
    }
    text.push_str(
        "\n## What a program in the sandbox reads from the egress proxy\n\nThe reason stands in the record, in \
         `Proxy-Status` (RFC 9209), and in the body, which begins with `anet:`. Without a status the tunnel is closed: the \
         client has begun its TLS handshake by then.\n\n| reason | status | error | sentence |\n| --- | --- | --- | --- |\n",
    );
    for refusal in proxy::refusal::Refusal::all() {
        let status = refusal.status.map(|status| status.to_string()).unwrap_or_default();
        let sentence = format!("anet: {}; {}", refusal.what, refusal.advice);
        let _ = writeln!(
            text,
            "| `{}` | {status} | `{}` | {} |",
            refusal.reason.as_str(),
            refusal.error,
            cell(&sentence)
        );
    }
    let _ = writeln!(
        text,
        "\nFor a name with upper-case letters `not_listed` says: {}",
        proxy::refusal::UPPER_CASE
    );
    text.push_str(
        "\n## What an agent reads from the model broker\n\nIn the error shape of the service, with the rule's name in the \
         sentence; `{}` stands for the thing that was refused. The record has the rule among the violations.\n\n\
         | rule | status | sentence |\n| --- | --- | --- |\n",
    );
    for rule in broker::policy::Rule::ALL {
        let _ = writeln!(text, "| `{rule}` | {} | {} |", rule.status().as_u16(), cell(&rule.sentence()));
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
