//! `anet doctor`: whether a sandboxed turn could run now, and what to do where it could not.

mod checks;
mod node;
mod setup;

use ipc_proto::Code;
use serde_json::{Value, json as value};
use supervisor::chain::rfc3339;
use supervisor::error::Trouble;
use supervisor::explain;
use supervisor::guard::{self, Host};

use self::checks::{Check, Weight};
use self::node::Asked;
use crate::arguments::{Anet, Doctor};
use crate::linux::print;
use crate::page::{Page, Screen, Tone, json};

/// The profile, as the package ships it.
const PROFILE: &str = include_str!("../../packaging/apparmor/anet-bwrap");

/// Whether a sandbox stands: when that was found, where it is known, or why it does not.
type Verdict = Result<Option<String>, Trouble>;

/// Checks, prints, and says by its status whether a sandboxed turn can run.
pub(crate) fn perform(anet: &Anet, doctor: &Doctor) -> Result<u8, Trouble> {
    if doctor.apparmor_profile {
        print(PROFILE)?;
        return Ok(0);
    }
    if let Some(text) = &doctor.explain {
        return explain_code(anet, text);
    }
    let report = Report::make(anet);
    print(&if anet.json { json(&report.document()) } else { report.page(Screen::look()).whole() })?;
    Ok(u8::from(!report.is_good()))
}

fn explain_code(anet: &Anet, text: &str) -> Result<u8, Trouble> {
    let Some(code) = Code::parse(text) else {
        let known: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        return Err(Trouble::new(
            Code::BadOption,
            format!("--explain {text}: no such code; there are {}", known.join(" ")),
        ));
    };
    if anet.json {
        let sentence = explain::sentence(code);
        print(&json(&value!({ "code": code.as_str(), "sentence": sentence, "warning": code.is_warning() })))?;
    } else {
        print(&format!("{code}: {}\n", explain::sentence(code)))?;
    }
    Ok(0)
}

/// All that was found.
struct Report {
    host: Host,
    /// The running node, if one answered.
    node: Option<Asked>,
    sandbox: Verdict,
    checks: Vec<Check>,
}

impl Report {
    fn make(anet: &Anet) -> Report {
        let host = Host::look();
        let asked = node::ask(anet);
        let node = asked.as_ref().ok().and_then(Option::as_ref);
        let sandbox = match node.and_then(Asked::verdict) {
            Some(verdict) => verdict,
            None => guard::check(anet.config.as_deref()).map(|checked| Some(rfc3339(checked.at))),
        };
        let mut checks = checks::host(&host, node, &sandbox);
        checks.push(node::check(&asked));
        checks.extend(setup::checks(anet, node));
        Report { host, node: asked.ok().flatten(), sandbox, checks }
    }

    fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.weight() != Weight::Failure)
    }

    fn page(&self, screen: Screen) -> Page {
        let mut page = Page::new(screen);
        for check in &self.checks {
            let (tone, mark) = match check.weight() {
                Weight::Good => (Tone::Plain, "ok"),
                Weight::Note => (Tone::Plain, "note"),
                Weight::Warning => (Tone::Warning, "warning"),
                Weight::Failure => (Tone::Bad, "FAILED"),
            };
            let code = check.code.map(|code| format!("{code}: ")).unwrap_or_default();
            page.labelled(tone, check.name, &format!("{mark:<7}  {code}{}", check.sentence));
        }
        page
    }

    fn document(&self) -> Value {
        let (code, sentence) = match &self.sandbox {
            Ok(_) => (Value::Null, Value::Null),
            Err(trouble) => (trouble.code.as_str().into(), checks::sentence(&self.host, trouble).into()),
        };
        let (limits, landlock) = match &self.node {
            Some(node) => (node.sandbox.limits.clone(), node.sandbox.landlock_abi),
            None => (checks::limits(&self.host).to_owned(), self.host.landlock),
        };
        let row = |check: &Check| {
            let ok = check.weight() != Weight::Failure;
            let code = check.code.map(Code::as_str);
            value!({ "name": check.name, "ok": ok, "weight": check.weight().as_str(), "code": code, "sentence": check.sentence })
        };
        let warnings = self.checks.iter().filter(|check| check.weight() == Weight::Warning);
        let warning =
            |check: &Check| value!({ "code": check.code.map(Code::as_str), "sentence": check.sentence });
        value!({
            "sandbox": {
                "available": self.sandbox.is_ok(), "code": code, "sentence": sentence, "limits": limits,
                "landlock_abi": landlock, "checked": self.sandbox.as_ref().ok(),
            },
            "good": self.is_good(),
            "node": self.node.as_ref().map(|node| value!({ "version": node.status.version, "mode": node.status.mode })),
            "kernel": self.host.kernel,
            "bwrap": self.host.bwrap,
            "checks": self.checks.iter().map(row).collect::<Vec<Value>>(),
            "warnings": warnings.map(warning).collect::<Vec<Value>>(),
        })
    }
}
