//! `anet doctor`: whether a sandboxed command could run now, and what to do where it could not.

use ipc_proto::Code;
use serde_json::{Value, json};
use supervisor::error::Trouble;
use supervisor::explain;
use supervisor::guard::{self, Host};

use crate::arguments::{Anet, Doctor};
use crate::linux::print;

/// The profile, as the package ships it.
const PROFILE: &str = include_str!("../../packaging/apparmor/anet-bwrap");

/// One check and how it went.
struct Check {
    name: &'static str,
    code: Option<Code>,
    sentence: String,
}

/// Checks, prints, and says by its status whether a sandbox can run.
pub(crate) fn perform(anet: &Anet, doctor: &Doctor) -> Result<u8, Trouble> {
    if doctor.apparmor_profile {
        print(PROFILE)?;
        return Ok(0);
    }
    if let Some(text) = &doctor.explain {
        return explain_code(anet, text);
    }
    let host = Host::look();
    let sandbox = guard::check(anet.config.as_deref());
    let checks = checks(&host, &sandbox);
    let available = sandbox.is_ok();
    print(&if anet.json { document(&host, &checks, &sandbox) } else { table(&checks) })?;
    Ok(u8::from(!available))
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
        print(&format!(
            "{}\n",
            json!({ "code": code.as_str(), "sentence": explain::sentence(code), "warning": code.is_warning() })
        ))?;
    } else {
        print(&format!("{code}: {}\n", explain::sentence(code)))?;
    }
    Ok(0)
}

fn checks(host: &Host, sandbox: &Result<guard::Checked, Trouble>) -> Vec<Check> {
    let good = |name, sentence: String| Check { name, code: None, sentence };
    let mut checks = vec![good("kernel", format!("Linux {}", host.kernel))];
    checks.push(match &host.bwrap {
        Some(version) => good("bubblewrap", version.clone()),
        None => Check {
            name: "bubblewrap",
            code: Some(Code::NoBwrap),
            sentence: explain::sentence(Code::NoBwrap).into(),
        },
    });
    checks.push(match host.landlock {
        0 => good("landlock", "the kernel has none: the sandbox has one wall less".into()),
        abi if abi < 6 => {
            good("landlock", format!("version {abi}: files, but neither abstract sockets nor signals"))
        }
        abi => good("landlock", format!("version {abi}")),
    });
    if let Some(apparmor) = &host.apparmor {
        checks.push(good("apparmor", apparmor_sentence(apparmor, sandbox.is_ok())));
    }
    checks.push(if host.control_groups {
        good("limits", "memory and tasks can be limited".into())
    } else {
        let code = Code::NoCgroupLimits;
        Check { name: "limits", code: Some(code), sentence: explain::sentence(code).into() }
    });
    checks.push(match sandbox {
        Ok(_) => good("sandbox", "a sandbox was started and tried: every wall stands".into()),
        Err(trouble) => {
            Check { name: "sandbox", code: Some(trouble.code), sentence: sentence(host, trouble) }
        }
    });
    checks
}

/// PLT-3: never a second profile for bubblewrap.
fn apparmor_sentence(apparmor: &guard::ApparmorBlock, works: bool) -> String {
    let mut parts = Vec::new();
    if let Some(profile) = &apparmor.confined_by {
        parts.push(format!("this session is confined by the profile {profile}"));
    }
    match (&apparmor.bwrap_profile, apparmor.restricts_user_namespaces, works) {
        (Some(file), _, true) => {
            parts.push(format!("{} has a profile for bubblewrap, and it suffices", file.display()));
        }
        (Some(file), _, false) => parts.push(format!(
            "{} has a profile for bubblewrap: a second would break both; see the sandbox check",
            file.display()
        )),
        (None, true, _) => parts.push("user namespaces are restricted and bubblewrap has no profile".into()),
        (None, false, _) if apparmor.confined_by.is_some() => {}
        (None, false, _) => parts.push("enabled, and does not restrict user namespaces".into()),
    }
    parts.join("; ")
}

/// PLT-3: where bubblewrap has a profile already, nobody is told to install one.
fn sentence(host: &Host, trouble: &Trouble) -> String {
    let profile = host.apparmor.as_ref().and_then(|apparmor| apparmor.bwrap_profile.as_deref());
    let general = explain::sentence(trouble.code);
    match (trouble.code, profile, trouble.sentence.strip_prefix(general)) {
        (Code::UsernsBlocked, Some(file), Some(detail)) => format!(
            "an AppArmor policy keeps bubblewrap from making its namespaces, although {0} has a profile for it; see \
             that it is loaded (sudo apparmor_parser -r {0}) and grants userns{detail}",
            file.display()
        ),
        _ => trouble.sentence.clone(),
    }
}

fn table(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.code {
            None => "ok",
            Some(code) if code.is_warning() => "warning",
            Some(_) => "FAILED",
        };
        let code = check.code.map(|code| format!("{code}: ")).unwrap_or_default();
        text.push_str(&format!("{mark:<8} {:<11} {code}{}\n", check.name, check.sentence));
    }
    text
}

fn document(host: &Host, checks: &[Check], sandbox: &Result<guard::Checked, Trouble>) -> String {
    let (code, sentence) = match sandbox {
        Ok(_) => (Value::Null, Value::Null),
        Err(trouble) => (trouble.code.as_str().into(), sentence(host, trouble).into()),
    };
    let checked = sandbox.as_ref().ok().map(|checked| supervisor::chain::rfc3339(checked.at));
    let warnings: Vec<Value> = (checks.iter())
        .filter_map(|check| check.code.filter(|code| code.is_warning()))
        .map(|code| json!({ "code": code.as_str(), "sentence": explain::sentence(code) }))
        .collect();
    let rows: Vec<Value> = (checks.iter())
        .map(|check| {
            let ok = check.code.is_none_or(Code::is_warning);
            let code = check.code.map(Code::as_str);
            json!({ "name": check.name, "ok": ok, "code": code, "sentence": check.sentence })
        })
        .collect();
    let document = json!({
        "sandbox": {
            "available": sandbox.is_ok(), "code": code, "sentence": sentence,
            "limits": if host.control_groups { "full" } else { "partial" },
            "landlock_abi": host.landlock, "checked": checked,
        },
        "kernel": host.kernel,
        "bwrap": host.bwrap,
        "checks": rows,
        "warnings": warnings,
    });
    format!("{document}\n")
}
