//! What holds for a run: its limits, its budget, and which hosts are none that it may reach.

use ipc_proto::job::Budget;
use ipc_proto::limits::{LimitName, Limits, OUTPUT_TOKENS};
use ipc_proto::{Code, Upstream};

use super::model::Model;
use super::request::RunRequest;
use crate::config::Config;
use crate::error::Trouble;

/// MOD-3: an answer has some tokens, and nobody raises the cap for a task of somebody else.
pub(super) fn check_output_tokens(request: &RunRequest, limits: &Limits) -> Result<(), Trouble> {
    let most = if request.untrusted { OUTPUT_TOKENS } else { u64::MAX };
    match limits.get(LimitName::OutputTokens) {
        Some(tokens) if tokens == 0 || tokens > most => Err(Trouble::new(
            Code::BadOption,
            format!(
                "output_tokens is {tokens}, and an answer has 1 to {OUTPUT_TOKENS} tokens; only a run of your own, without \
                 --untrusted, may have more"
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Limits and budgets: none for the operator's own command but those that are named; all of them with `--untrusted`,
/// where the configuration and then the options stand above the defaults.
pub(super) fn bounds(request: &RunRequest, config: &Config) -> (Limits, Budget) {
    let mut limits = Limits::none();
    let mut budget = Budget::default();
    if request.untrusted {
        limits = Limits::untrusted();
        limits.set(LimitName::WallClock, config.auto_reply.api_timeout_seconds.saturating_mul(1000));
        for (name, value) in config.auto_reply.sandbox.limits.values() {
            limits.set(name, value);
        }
    }
    for (name, value) in &request.limits {
        limits.set(*name, *value);
    }
    if let Some(timeout) = request.timeout {
        limits.set(LimitName::WallClock, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    }
    if request.untrusted {
        let table = &config.auto_reply.sandbox.budget;
        let usual = Budget::untrusted(limits.get(LimitName::WallClock));
        budget = Budget {
            destinations: table.destinations.or(usual.destinations),
            bytes_out: table.bytes_out.map(|size| size.0).or(usual.bytes_out),
            window: table.window.map(|time| time.0).or(usual.window),
        };
    }
    budget.destinations = request.budget_destinations.or(budget.destinations);
    budget.bytes_out = request.budget_bytes_out.or(budget.bytes_out);
    budget.window = request.budget_window.or(budget.window);
    (limits, budget)
}

/// EGR-2: the service that is configured as the model's is no host to tunnel to, whatever its name.
pub(super) fn refuse_the_model_service(
    request: &RunRequest,
    config: &Config,
    model: Option<&Model>,
) -> Result<(), Trouble> {
    let configured = config.auto_reply.api_base.parse::<Upstream>().ok();
    let services = configured.iter().chain(model.map(|model| &model.job.upstream));
    let hosts: Vec<String> = services.map(|upstream| upstream.host().to_string()).collect();
    match request.hosts.iter().find(|allowed| hosts.iter().any(|host| allowed.as_str() == host)) {
        Some(allowed) => Err(Trouble::new(
            Code::BadHost,
            format!("--allow {allowed}: {}", ipc_proto::host::HostError::ModelService),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::request;
    use super::*;

    /// LIM: a plain run has only what is named; an untrusted one all, and options stand above.
    #[test]
    fn limits_are_those_that_were_asked_for() {
        let mut request = request();
        let config = Config::default();
        assert_eq!(bounds(&request, &config), (Limits::none(), Budget::default()));
        request.untrusted = true;
        request.limits = vec![(LimitName::TunnelsOpen, 3)];
        let (limits, budget) = bounds(&request, &config);
        assert_eq!(limits.get(LimitName::TunnelsOpen), Some(3));
        assert_eq!(limits.get(LimitName::TunnelsTotal), Some(256));
        assert_eq!(limits.get(LimitName::WallClock), Some(180_000));
        assert!(check_output_tokens(&request, &limits).is_ok());
        for (untrusted, tokens, fits) in [
            (true, 8192, true),
            (true, 8193, false),
            (true, 0, false),
            (false, 99_999, true),
            (false, 0, false),
        ] {
            let request = RunRequest { untrusted, ..request.clone() };
            let mut limits = Limits::none();
            limits.set(LimitName::OutputTokens, tokens);
            assert_eq!(check_output_tokens(&request, &limits).is_ok(), fits, "{untrusted} {tokens}");
        }
        assert_eq!(
            (budget.destinations, budget.bytes_out, budget.window),
            (Some(16), Some(33_554_432), Some(180_000))
        );
    }
}
