//! What the run asked of its model, as the broker reports it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ipc_proto::broker::{KeyState, MAX_RULE, ModelLimits, ModelTotals, RequestReport, UpstreamTrouble};
use ipc_proto::job::{KeySource, ModelJob};
use ipc_proto::limits::{LimitName, Limits};
use ipc_proto::proxy::{Class, Decision, DialReport, Reason};
use ipc_proto::upstream::Scheme;
use ipc_proto::{Code, RunId, Upstream};
use serde_json::{Value, json};

use super::egress::Taken;
use super::numbered::Numbered;
use super::violations::Violations;
use crate::error::Trouble;
use crate::record::{Egress, MAX_EGRESS};

/// The most rules that are counted by name.
const MAX_RULES: usize = 128;

/// What is kept of a request until its end.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Counted so far.
    bytes_out: u64,
    /// It is in the chain.
    listed: bool,
}

/// The requests of one run.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) totals: ModelTotals,
    numbers: Numbered<Begun>,
    seen: usize,
    seen_refused: usize,
    /// Beyond what is listed.
    pub(super) omitted: u64,
    bytes_out: u64,
    bytes_in: u64,
    went_out: u64,
    addresses: Vec<IpAddr>,
    dials: usize,
    /// Answers of the service that were errors, by status.
    statuses: BTreeMap<u16, u64>,
    /// What went wrong on the way, by name.
    troubles: BTreeMap<&'static str, (UpstreamTrouble, u64)>,
    /// What was refused, by rule.
    pub(super) refused: BTreeMap<String, u64>,
}

impl Requests {
    /// Takes one report.
    pub(super) fn report(&mut self, report: &RequestReport, violations: &mut Violations) -> Taken {
        let well_formed = report.rule.len() <= MAX_RULE
            && report.rule.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            // Only what goes out has anything more to say.
            && (report.ended || report.decision == Decision::Allow);
        let Ok(known) = self.numbers.known(report.request, report.ended) else { return Taken::Contradiction };
        let is_first = known.is_none();
        let begun = known.unwrap_or_else(|| self.begin(report));
        if !well_formed || report.bytes_out < begun.bytes_out {
            return Taken::Contradiction;
        }
        self.bytes_out = self.bytes_out.saturating_add(report.bytes_out - begun.bytes_out);
        let kept = Begun { bytes_out: report.bytes_out, ..begun };
        if self.numbers.keep(report.request, report.ended, kept).is_err() {
            return Taken::Contradiction;
        }
        if is_first && report.bytes_out > 0 {
            self.went_out += 1;
        }
        if report.decision == Decision::Deny {
            let interface = report.interface.map_or(Value::Null, |interface| json!(interface));
            let interface = interface.as_str().unwrap_or("model").to_owned();
            violations.push("model", format!("{interface} {}", report.rule));
            self.refuse(&report.rule);
        }
        if report.ended && report.decision != Decision::Deny {
            self.bytes_in = self.bytes_in.saturating_add(report.bytes_in);
            if let Some(trouble) = report.trouble {
                self.troubles.entry(trouble.as_str()).or_insert((trouble, 0)).1 += 1;
            } else if report.decision == Decision::Allow && report.status >= 400 {
                *self.statuses.entry(report.status).or_default() += 1;
            }
        }
        if begun.listed { Taken::Listed } else { Taken::Counted }
    }

    /// What goes out and what is refused are listed up to a bound each: thousands of refusals must not hide what went out.
    fn begin(&mut self, report: &RequestReport) -> Begun {
        let seen = if report.decision == Decision::Deny { &mut self.seen_refused } else { &mut self.seen };
        *seen += 1;
        let listed = *seen <= MAX_EGRESS;
        self.omitted += u64::from(!listed);
        Begun { bytes_out: 0, listed }
    }

    fn refuse(&mut self, rule: &str) {
        // The broker's rules are some dozens; whoever makes up more of them is not listened to.
        if self.refused.len() < MAX_RULES || self.refused.contains_key(rule) {
            *self.refused.entry(rule.to_owned()).or_default() += 1;
        }
    }

    /// What was refused, and how to allow it where a limit did (ASK-3); empty where nothing was.
    pub(super) fn refusals(&self, run: RunId) -> String {
        let mut text = String::new();
        let total: u64 = self.refused.values().sum();
        if total == 0 {
            return text;
        }
        let plural = if total == 1 { "" } else { "s" };
        let _ = writeln!(text, "anet: run {run}: refused {total} request{plural} to the model");
        for (rule, count) in &self.refused {
            let _ = write!(text, "anet:   {rule}");
            if *count > 1 {
                let _ = write!(text, " ({count} times)");
            }
            if let Some(limit) = rule.strip_prefix("limit_") {
                let _ = write!(text, "; to raise it: --limit {limit}=N");
            }
            text.push('\n');
        }
        text
    }

    /// Takes the report of a connection to the service.
    pub(super) fn dialled(&mut self, report: &DialReport) -> Taken {
        self.dials += 1;
        if report.decision == Decision::Allow {
            self.addresses.clone_from(&report.addresses);
        }
        if self.dials > MAX_EGRESS { Taken::Counted } else { Taken::Listed }
    }

    /// The service among the hosts that the run reached: one line for what went out, one for each way in which it failed.
    pub(super) fn egress(&self, upstream: &Upstream) -> Vec<Egress> {
        let line = |decision, reason, bytes_out, bytes_in| Egress {
            host: upstream.host().to_string(),
            port: upstream.port(),
            class: Class::Model,
            decision,
            reason,
            addresses: self.addresses.clone(),
            bytes_out,
            bytes_in,
        };
        let reached = (self.went_out > 0)
            .then(|| line(Decision::Allow, Reason::Configured.as_str(), self.bytes_out, self.bytes_in));
        reached
            .into_iter()
            .chain(self.troubles.keys().copied().map(|why| line(Decision::Fail, why, 0, 0)))
            .collect()
    }

    /// What the operator is told of a service that failed, a line each; empty where it did not.
    pub(super) fn failures(&self, run: RunId, model: &ModelJob) -> String {
        let mut text = String::new();
        let upstream = &model.upstream;
        let times = |count: u64| if count == 1 { String::new() } else { format!(", {count} times") };
        for (status, count) in &self.statuses {
            let advice = match status {
                401 | 403 => format!(": it does not take the key; {}", replace_key(&model.key)),
                429 => ": too many requests, or none left, for this key".to_owned(),
                404 => ": it may not know the model; name another with --model".to_owned(),
                500.. => ": the service itself failed; try again later".to_owned(),
                _ => String::new(),
            };
            let _ = writeln!(text, "anet: run {run}: {upstream} answered {status}{}{advice}", times(*count));
        }
        for (trouble, count) in self.troubles.values() {
            let _ = writeln!(text, "anet: run {run}: {upstream}: {}{}", explain(*trouble), times(*count));
        }
        text
    }
}

/// What went wrong, in words, with its name.
fn explain(trouble: UpstreamTrouble) -> String {
    let what = match trouble {
        UpstreamTrouble::Untrusted => "its certificate is not one that this system's store vouches for",
        UpstreamTrouble::Silent => {
            "it was silent for too long, and the request was given up; api_timeout_seconds in anet.toml says how long is \
             waited"
        }
        UpstreamTrouble::Cut => "it ended the connection before its answer was whole",
        UpstreamTrouble::Malformed => "what it answered is no HTTP that can be passed on",
        UpstreamTrouble::Filtered => "its content filter took the task or the answer away",
        UpstreamTrouble::Empty => {
            "its answer has no text; a model that thinks may have spent all of its tokens on that, so see output_tokens"
        }
        UpstreamTrouble::TooLong => "its answer is over 1 MiB, and was not taken; ask for a shorter one",
        UpstreamTrouble::NoCompletion => {
            "what it answered is no chat completion; see whether api_base names a service that is compatible with OpenAI's"
        }
        UpstreamTrouble::Unreachable(reason) if is_address(reason) => {
            "its address may not be reached; if it is one of your own network, set api_base_private = true in anet.toml"
        }
        UpstreamTrouble::Unreachable(_) => "it could not be reached",
    };
    format!("{what} ({})", trouble.as_str())
}

/// Whether the service was refused for where it is.
fn is_address(reason: Reason) -> bool {
    reason.as_str().starts_with("address_")
}

/// What to do about a key that is not one, or that the service does not take.
pub(super) fn replace_key(key: &KeySource) -> String {
    match key {
        KeySource::None => "it needs one: anet credential set NAME, and --credential NAME".to_owned(),
        KeySource::Variable(variable) => format!("put another into {variable}"),
        KeySource::Stored(name) => format!("store another with anet credential set {name}"),
    }
}

/// The limits that the broker counts, out of all that hold.
/// What the broker was started with has to serve.
pub(crate) fn check_broker(model: &ModelJob, key: KeyState, roots: u32) -> Result<(), Trouble> {
    let why = match key {
        KeyState::Ready | KeyState::None if roots > 0 || model.upstream.scheme() == Scheme::Http => {
            return Ok(());
        }
        KeyState::Ready | KeyState::None => {
            "this system has no store of certificate authorities, so no service can be verified; install one: sudo apt \
             install ca-certificates"
        }
        KeyState::Empty => "the model's key is empty",
        KeyState::Malformed => {
            "the model's key has a space or a character that no key has, or is too long for one"
        }
    };
    let why = match key {
        KeyState::Ready | KeyState::None => why.to_owned(),
        KeyState::Empty | KeyState::Malformed => format!("{why}; {}", replace_key(&model.key)),
    };
    Err(Trouble::new(Code::NoApiKey, why))
}

pub(super) fn model_limits(limits: &Limits) -> ModelLimits {
    ModelLimits {
        requests: limits.get(LimitName::ModelRequests),
        body: limits.get(LimitName::RequestBody),
        total: limits.get(LimitName::RequestTotal),
        connections: limits.get(LimitName::EndpointConnections),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use ipc_proto::broker::{Interface, ModelPolicy};

    fn job(base: &str) -> ModelJob {
        let policy = ModelPolicy { model: "m".to_owned().try_into().unwrap(), output_tokens: 1, silence: 1 };
        ModelJob {
            policy,
            upstream: base.parse().unwrap(),
            key: KeySource::Variable("OPENAI_API_KEY".into()),
        }
    }

    fn report(request: u32, decision: Decision, ended: bool) -> RequestReport {
        RequestReport {
            request,
            interface: Some(Interface::Messages),
            decision,
            rule: if decision == Decision::Deny { "tool_not_allowed".into() } else { String::new() },
            trouble: (decision == Decision::Fail).then_some(UpstreamTrouble::Silent),
            status: if ended { 200 } else { 0 },
            bytes_out: if decision == Decision::Deny { 0 } else { 100 },
            bytes_in: if ended { 50 } else { 0 },
            ended,
        }
    }

    /// BUD-6, MOD-11: what went out is in the record once, what failed by its name, what was refused as a violation.
    #[test]
    fn requests_are_counted_once() {
        let (mut requests, mut violations) = (Requests::default(), Violations::default());
        let upstream: Upstream = models::ANTHROPIC.parse().unwrap();
        let mut take = |report: &RequestReport| requests.report(report, &mut violations);
        assert_eq!(take(&report(1, Decision::Allow, false)), Taken::Listed);
        assert_eq!(take(&report(2, Decision::Deny, true)), Taken::Listed);
        assert_eq!(take(&report(1, Decision::Allow, true)), Taken::Listed);
        assert_eq!(take(&report(3, Decision::Allow, false)), Taken::Listed);
        assert_eq!(take(&report(3, Decision::Fail, true)), Taken::Listed);
        let lines = requests.egress(&upstream);
        let sums: Vec<(&str, u64, u64)> =
            lines.iter().map(|line| (line.reason, line.bytes_out, line.bytes_in)).collect();
        assert_eq!(sums, [("configured", 200, 100), ("upstream_timeout", 0, 0)]);
        assert_eq!(violations.list.len(), 1);
        assert_eq!(violations.list[0].detail, "messages tool_not_allowed");
        let told = requests.failures(RunId::new(1, [0; 4]), &job(models::ANTHROPIC));
        assert!(told.contains("silent for too long") && told.lines().count() == 1, "{told}");
        let told = requests.refusals(RunId::new(1, [0; 4]));
        assert!(told.contains("refused 1 request to the model\nanet:   tool_not_allowed\n"), "{told}");
    }

    /// BUD-6: thousands of refusals hide nothing that went out.
    #[test]
    fn refusals_do_not_hide_what_went_out() {
        let (mut requests, mut violations) = (Requests::default(), Violations::default());
        let many = u32::try_from(MAX_EGRESS).unwrap() + 10;
        for number in 1..=many {
            requests.report(&report(number, Decision::Deny, true), &mut violations);
        }
        assert_eq!(
            requests.report(&report(many + 1, Decision::Allow, false), &mut violations),
            Taken::Listed
        );
        assert_eq!(requests.report(&report(many + 1, Decision::Allow, true), &mut violations), Taken::Listed);
        assert_eq!(requests.omitted, 10);
        assert_eq!(requests.refused.get("tool_not_allowed"), Some(&u64::from(many)));
    }

    /// PRV-5: a broker that contradicts itself is found out.
    #[test]
    fn contradictions_are_seen() {
        let (mut requests, mut violations) = (Requests::default(), Violations::default());
        let mut take = |report: &RequestReport| requests.report(report, &mut violations);
        take(&report(1, Decision::Allow, true));
        assert_eq!(take(&report(1, Decision::Allow, true)), Taken::Contradiction);
        assert_eq!(take(&report(0, Decision::Allow, true)), Taken::Contradiction);
        assert_eq!(take(&report(2, Decision::Deny, false)), Taken::Contradiction);
        take(&report(3, Decision::Allow, false));
        assert_eq!(
            take(&RequestReport { bytes_out: 1, ..report(3, Decision::Allow, true) }),
            Taken::Contradiction
        );
        let rule = "Sk-ant".to_owned();
        assert_eq!(take(&RequestReport { rule, ..report(4, Decision::Deny, true) }), Taken::Contradiction);
    }

    /// USE-1: the operator reads what to do about it.
    #[test]
    fn failures_of_the_service_are_told() {
        let (mut requests, mut violations) = (Requests::default(), Violations::default());
        for (request, status) in [(1, 401), (2, 429), (3, 429), (4, 500)] {
            let failed = RequestReport { status, ..report(request, Decision::Allow, true) };
            assert_eq!(requests.report(&failed, &mut violations), Taken::Listed);
        }
        let told = requests.failures(RunId::new(1, [0; 4]), &job(models::OPENAI));
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[0].contains("answered 401: it does not take the key")
                && lines[0].ends_with("into OPENAI_API_KEY")
        );
        assert!(lines[1].contains("answered 429, 2 times"));
        assert!(lines[2].contains("answered 500"));
    }
}
