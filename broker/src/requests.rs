//! One request, from its head to its answer: a step a function, in the order in which they are taken.
//!
//! What needs no body is decided before the body is read, what needs no connection before one is asked for, and nothing goes
//! out that was not counted, debited and reported first.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming as AgentBody;
use ipc_proto::broker::UpstreamTrouble;
use ipc_proto::proxy::Reason;
use tokio::time::timeout;

use crate::answer::{self, Answer};
use crate::policy::{self, Headers, Interface, Refusal, Route, Rule, seconds};
use crate::report::Report;
use crate::room::Room;
use crate::run::{Bodies, Run};
use crate::upstream::{Incoming, Outgoing, Upstreams};

/// How long a body may take.
pub const BODY_TIME: Duration = Duration::from_secs(60);

/// How much of bodies all runs together may have under way, in KiB, beside what each may have: half of the data that the
/// process may have at all (the manifest's limit). What else it needs for them is one body's at a time. Enough for a few
/// requests of each of some dozens of runs; with more each waits for those before it.
const ROOM: u32 = 512 * 1024;

/// What every request of every run needs.
pub struct Service {
    /// The model's service.
    pub upstreams: Upstreams,
    /// Whose it is.
    pub whose: policy::Service,
    /// Whether it can be asked: there is a key, or it needs none.
    pub has_key: bool,
    /// Memory for bodies, of all runs together.
    pub room: Room,
}

impl Service {
    /// A service that nobody has asked yet.
    #[must_use]
    pub fn new(upstreams: Upstreams, whose: policy::Service, has_key: bool) -> Service {
        Service { upstreams, whose, has_key, room: Room::new(ROOM) }
    }
}

/// Answers an agent's request. `refused`: its head was, and the request stands in for it.
pub async fn serve(
    service: &Service,
    run: Rc<Run>,
    request: Request<AgentBody>,
    refused: Option<Refusal>,
) -> Response<Answer> {
    run.may_ask().await;
    let mut report = Report::new(Rc::clone(&run));
    let mut interface = None;
    let result = match refused {
        Some(refusal) => Err(Failure::Refused(refusal)),
        None => answer(service, &run, request, &mut report, &mut interface).await,
    };
    match result {
        Ok(Answered::Here(body)) => {
            report.answered_here();
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
            answer::whole(StatusCode::OK, headers, body)
        }
        Ok(Answered::Service(interface, incoming)) => {
            report.answered(incoming.status);
            answer::streamed(&run, interface, *incoming, report)
        }
        Err(Failure::Refused(refusal)) => {
            report.refused(&refusal);
            answer::refusal(&run, interface, &refusal)
        }
        Err(Failure::Trouble(trouble)) => {
            let refusal = refusal_of(trouble, run.silence);
            report.answered(refusal.status);
            report.failed(trouble);
            answer::refusal(&run, interface, &refusal)
        }
    }
}

/// Who answers.
enum Answered {
    /// We do.
    Here(Vec<u8>),
    /// The service does.
    Service(Interface, Box<Incoming>),
}

/// Why there is no answer of the service.
#[derive(Debug)]
pub enum Failure {
    /// A rule of ours.
    Refused(Refusal),
    /// It went out, and nothing came back.
    Trouble(UpstreamTrouble),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

async fn answer(
    service: &Service,
    run: &Rc<Run>,
    request: Request<AgentBody>,
    report: &mut Report,
    asked: &mut Option<Interface>,
) -> Result<Answered, Failure> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let (route, headers) = policy::head(&run.policy, &head.method, target, &head.headers)?;
    let (interface, keep_beta) = match route {
        Route::Model(interface, keep_beta) => (interface, keep_beta),
        Route::Models => return Ok(Answered::Here(policy::models(&run.policy))),
    };
    *asked = Some(interface);
    report.is_for(interface);

    let question = Question { interface, keep_beta, headers };
    before_the_body(service, run)?;
    let length = length_of(&body)?;
    run.check_body(length)?;
    // The run's own first: whoever waits for that keeps nobody else waiting.
    let room = (run.room_for(length).await, service.room.take(length).await);
    let body = read(body, length).await?;
    let incoming = ask(service, run, question, body, report).await?;
    drop(room);
    Ok(Answered::Service(interface, Box::new(incoming)))
}

/// What is asked, but for its body.
#[derive(Debug)]
pub struct Question {
    /// Which interface.
    pub interface: Interface,
    /// Whether `?beta=true` stays.
    pub keep_beta: bool,
    /// The headers that go on.
    pub headers: Headers,
}

/// What can be said without the body.
///
/// # Errors
/// No key, or no request left.
pub fn before_the_body(service: &Service, run: &Run) -> Result<(), Refusal> {
    if !service.has_key {
        return Err(Refusal::plain(Rule::NoKey));
    }
    run.check_requests()
}

/// Rewrites a body whose length was checked, counts the request, has it debited, reports it, and sends it. Whoever asks here
/// is told the head of the answer.
///
/// # Errors
/// The refusal, or what went wrong on the way.
pub async fn ask(
    service: &Service,
    run: &Rc<Run>,
    question: Question,
    body: Bytes,
    report: &mut Report,
) -> Result<Incoming, Failure> {
    let Question { interface, keep_beta, headers } = question;
    let asked = length(&body);
    let rewritten = policy::body(interface, &run.policy, &headers, &body)?;
    // Nobody needs both while the service thinks.
    drop(body);
    let body = Bytes::from(rewritten.bytes);
    let place = run.enter_request(Bodies { asked, outgoing: length(&body) })?;
    let outgoing = Outgoing { interface, keep_beta, headers: headers.forward, body };
    let bytes = service.upstreams.wire_size(&outgoing);
    run.debit(report.number(), bytes).await?;
    place.goes();
    report.goes_out(bytes);
    service.upstreams.send(outgoing, run.silence).await.map_err(Failure::Trouble)
}

fn length(body: &Bytes) -> u64 {
    u64::try_from(body.len()).unwrap_or(u64::MAX)
}

/// How long the body is: a head without a length has none.
fn length_of(body: &AgentBody) -> Result<u64, Refusal> {
    match http_body::Body::size_hint(body).exact() {
        Some(0) | None => Err(Refusal::plain(Rule::BodyMissing)),
        Some(length) => Ok(length),
    }
}

/// Reads a body that was found short enough.
async fn read(mut body: AgentBody, length: u64) -> Result<Bytes, Refusal> {
    let early = || Refusal::of(Rule::BodyMalformed, "it ended early");
    let most = usize::try_from(length).unwrap_or(usize::MAX);
    let gather = async {
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| early())?.into_data() else { return Err(early()) };
            if piece.len() > most.saturating_sub(whole.len()) {
                return Err(early());
            }
            // Copied, and not kept as it came: a piece of one byte holds all of the buffer that it was read into, so that a
            // body that drips in would take thousands of times its size.
            whole.extend_from_slice(&piece);
        }
        Ok(Bytes::from(whole))
    };
    timeout(BODY_TIME, gather)
        .await
        .unwrap_or_else(|_| Err(Refusal::of(Rule::BodyTimeout, &seconds(BODY_TIME))))
}

/// What the agent is told when the service fails: always an answer, never a wait without end (MOD-11).
#[must_use]
pub fn refusal_of(trouble: UpstreamTrouble, silence: Duration) -> Refusal {
    match trouble {
        UpstreamTrouble::Unreachable(
            reason @ (Reason::ConnectFailed | Reason::ConnectTimeout | Reason::DnsIncomplete),
        ) => Refusal::of(Rule::UpstreamUnreachable, reason.as_str()),
        // The name or the address is wrong, and stays so until the operator has changed it.
        UpstreamTrouble::Unreachable(reason) => Refusal::of(Rule::UpstreamAddress, reason.as_str()),
        UpstreamTrouble::Untrusted => {
            Refusal::of(Rule::UpstreamTls, "its certificate is for another name, not trusted, or out of date")
        }
        UpstreamTrouble::Silent => Refusal::of(Rule::UpstreamTimeout, &seconds(silence)),
        UpstreamTrouble::Cut => Refusal::plain(Rule::UpstreamClosed),
        UpstreamTrouble::Malformed => Refusal::of(Rule::UpstreamMalformed, "it is no HTTP"),
        // Nobody looks into an agent's answers for these.
        UpstreamTrouble::Filtered
        | UpstreamTrouble::Empty
        | UpstreamTrouble::TooLong
        | UpstreamTrouble::NoCompletion => Refusal::of(Rule::UpstreamMalformed, trouble.as_str()),
    }
}

/// An answer after which nothing more is read from the agent.
#[must_use]
pub fn and_close(mut answer: Response<Answer>) -> Response<Answer> {
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
