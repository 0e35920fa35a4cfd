//! A request to a model through the broker, beside one straight to the same service and one through a well-known gateway.
//! The service, the client and everything between are on this machine's loopbacks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tests::person::{Person, Who};

use crate::median;

/// Requests of one series.
const REQUESTS: usize = 400;
/// Series of each way, in turn.
const ROUNDS: usize = 5;
/// What an agent sends in the middle of its work, in bytes.
const PROMPT: usize = 40_000;
/// Connections that ask at once, for requests a second.
const TOGETHER: usize = 8;
/// How often the broker's memory is looked at while it serves, and how long apart.
const LOOKS: usize = 20;
const APART: Duration = Duration::from_millis(15);
/// Pieces of a streamed answer.
const PIECES: usize = 20;
/// Where the run's endpoint is.
const ENDPOINT: &str = "127.0.0.1:61081";
const GATEWAY: &str = "127.0.0.1:61400";

/// Microseconds of one series.
#[derive(Default)]
struct Series {
    whole: Vec<f64>,
    first: Vec<f64>,
    passing: Vec<f64>,
    rate: Vec<f64>,
}

/// The rows of model requests.
pub(crate) fn print() {
    let service = serve();
    let person = Person::new(Who::Root);
    let bench = person.path("anet-bench");
    std::fs::copy(std::env::current_exe().unwrap(), &bench).unwrap();
    let gateway = Gateway::start(service);
    let (mut direct, mut ours, mut theirs) = (Series::default(), Series::default(), Series::default());
    let (mut memory, mut broker) = (0.0, 0.0f64);
    for _ in 0..ROUNDS {
        take(&mut direct, &ask(Command::new(&bench), &service.to_string(), "/v1"));
        let base = format!("http://{service}/v1");
        let bench = bench.to_str().unwrap();
        let run =
            ["run", "--agent", "custom", "--api-base", &base, "--model", "bench", "--ro", bench, "--", bench];
        let looking = std::thread::spawn(|| (0..LOOKS).map(|_| look("anet-broker")).fold(0.0, f64::max));
        take(&mut ours, &ask(person.anet(run).command(), ENDPOINT, "/v1"));
        broker = broker.max(looking.join().unwrap());
        if let Some(gateway) = &gateway {
            take(&mut theirs, &ask(Command::new(bench), GATEWAY, "/v1"));
            memory = resident(gateway.0.id());
        }
    }
    let added = |series: &Series, at: fn(&mut Vec<f64>) -> f64| {
        at(&mut series.whole.clone()) - at(&mut direct.whole.clone())
    };
    let row = |name: &str, series: &Series| {
        println!(
            "| {name} | {:.0} µs at the median, {:.0} µs at p99 ({:.0} µs direct); the first streamed byte is there after {:.0} \
             µs and passes in {:.0} µs ({:.0} and {:.0} direct); {:.2} × the requests a second of direct ({:.0}) | |",
            added(series, |values| percentile(values, 0.5)),
            added(series, |values| percentile(values, 0.99)),
            percentile(&mut direct.whole.clone(), 0.5),
            median(series.first.clone()),
            median(series.passing.clone()),
            median(direct.first.clone()),
            median(direct.passing.clone()),
            median(series.rate.clone()) / median(direct.rate.clone()),
            median(series.rate.clone()),
        );
    };
    row("a model request through the broker adds", &ours);
    println!("| the broker's memory meanwhile (PSS) | {broker:.1} MiB | |");
    match gateway {
        Some(_) => {
            row("the same for LiteLLM", &theirs);
            println!("| LiteLLM's memory | {:.0} MiB | |", memory);
        }
        None => println!("| the same for LiteLLM | not installed here | |"),
    }
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Has the client ask, and gives what it printed.
fn ask(mut command: Command, address: &str, prefix: &str) -> String {
    let output = command.args(["ask", address, prefix]).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn take(series: &mut Series, printed: &str) {
    for line in printed.lines() {
        let (kind, value) = line.split_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        match kind {
            "whole" => series.whole.push(value),
            "first" => series.first.push(value),
            "passing" => series.passing.push(value),
            _ => series.rate.push(value),
        }
    }
}

// ---- the client ------------------------------------------------------------------------------------------------

/// Asks and prints what it took.
pub(crate) fn client(words: &[&str]) {
    let [address, prefix] = words else { panic!("ask ADDRESS PREFIX") };
    let mut connection = Connection::open(address, prefix);
    for _ in 0..20 {
        connection.whole();
    }
    let mut print = String::new();
    for _ in 0..REQUESTS {
        print.push_str(&format!("whole {}\n", connection.whole()));
    }
    for _ in 0..REQUESTS / 4 {
        let (first, passing) = connection.streamed();
        print.push_str(&format!("first {first}\npassing {passing}\n"));
    }
    let started = Instant::now();
    let asking: Vec<_> = (0..TOGETHER)
        .map(|_| {
            let (address, prefix) = ((*address).to_owned(), (*prefix).to_owned());
            std::thread::spawn(move || {
                let mut connection = Connection::open(&address, &prefix);
                for _ in 0..REQUESTS / 4 {
                    connection.whole();
                }
            })
        })
        .collect();
    asking.into_iter().for_each(|thread| thread.join().unwrap());
    #[allow(clippy::cast_precision_loss)]
    let rate = (TOGETHER * (REQUESTS / 4)) as f64 / started.elapsed().as_secs_f64();
    println!("{print}rate {rate}");
}

struct Connection {
    stream: BufReader<TcpStream>,
    whole: Vec<u8>,
    streamed: Vec<u8>,
}

impl Connection {
    fn open(address: &str, prefix: &str) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = |stream: bool| {
            let prompt = "word ".repeat(PROMPT / 5);
            let body = format!(
                r#"{{"model":"bench","stream":{stream},"max_tokens":64,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
            );
            let mut request = format!(
                "POST {prefix}/chat/completions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer none\r\nContent-Type: \
                 application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            request.push_str(&body);
            request.into_bytes()
        };
        Connection { stream: BufReader::new(stream), whole: request(false), streamed: request(true) }
    }

    /// Microseconds of one request with its whole answer.
    fn whole(&mut self) -> f64 {
        let started = Instant::now();
        self.stream.get_mut().write_all(&self.whole).unwrap();
        self.answer(|_| {});
        started.elapsed().as_secs_f64() * 1e6
    }

    /// Microseconds until the first piece, and from its sending to its arrival.
    fn streamed(&mut self) -> (f64, f64) {
        let started = Instant::now();
        self.stream.get_mut().write_all(&self.streamed).unwrap();
        let mut first = None;
        self.answer(|piece| {
            if first.is_none() && piece.contains("sent=") {
                let sent: u64 = piece
                    .split("sent=")
                    .nth(1)
                    .and_then(|rest| rest.split('.').next())
                    .unwrap()
                    .parse()
                    .unwrap();
                #[allow(clippy::cast_precision_loss)]
                let passing = now().saturating_sub(sent) as f64 / 1e3;
                first = Some((started.elapsed().as_secs_f64() * 1e6, passing));
            }
        });
        first.unwrap()
    }

    /// Reads one answer, by its length or in chunks.
    fn answer(&mut self, mut piece: impl FnMut(&str)) {
        let (mut length, mut chunked) = (0, false);
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "the connection ended");
            let lower = line.to_ascii_lowercase();
            assert!(!lower.starts_with("http/1.1 ") || lower.starts_with("http/1.1 200"), "{line}");
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        while chunked {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).unwrap();
            piece(&String::from_utf8_lossy(&chunk));
            chunked = size > 0;
        }
    }
}

/// Nanoseconds of a clock that is the same in every namespace.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

// ---- the service -----------------------------------------------------------------------------------------------

/// A chat service that answers at once.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_all(stream));
        }
    });
    address
}

fn answer_all(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        // Where it stands depends on who wrote the body.
        let text = String::from_utf8_lossy(&body);
        let streamed = text.contains(r#""stream":true"#) || text.contains(r#""stream": true"#);
        let answered =
            if streamed { stream_answer(stream.get_mut()) } else { whole_answer(stream.get_mut()) };
        if answered.is_err() {
            return;
        }
    }
}

fn whole_answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let content = "word ".repeat(100);
    let body = format!(
        r#"{{"id":"c1","object":"chat.completion","created":1,"model":"bench","choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":"{content}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}}}"#
    );
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all([head, body].concat().as_bytes())
}

fn stream_answer(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    for piece in 0..PIECES {
        let data = format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{{\"index\":0,\
             \"delta\":{{\"role\":\"assistant\",\"content\":\"sent={}. {piece}\"}},\"finish_reason\":null}}]}}\n\n",
            now()
        );
        stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())?;
        std::thread::sleep(Duration::from_micros(300));
    }
    let end = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{\"index\":0,\
               \"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    stream.write_all(format!("{:x}\r\n{end}\r\n0\r\n\r\n", end.len()).as_bytes())
}

// ---- the gateway -----------------------------------------------------------------------------------------------

/// LiteLLM's proxy, where it is installed.
struct Gateway(Child, #[allow(dead_code)] PathBuf);

impl Gateway {
    fn start(service: SocketAddr) -> Option<Gateway> {
        let path = std::env::var_os("PATH")?;
        let program =
            std::env::split_paths(&path).map(|part| part.join("litellm")).find(|path| path.is_file())?;
        let directory = std::env::temp_dir().join(format!("anet-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let config = directory.join("litellm.yaml");
        let text = format!(
            "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n      api_base: \
             http://{service}/v1\n      api_key: none\nlitellm_settings:\n  telemetry: false\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new(program)
            .args([
                "--config",
                config.to_str().unwrap(),
                "--host",
                "127.0.0.1",
                "--port",
                GATEWAY.rsplit(':').next().unwrap(),
            ])
            .current_dir(&directory)
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let gateway = Gateway(child, directory);
        wait_for(GATEWAY).then_some(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn wait_for(address: &str) -> bool {
    (0..120).any(|_| {
        std::thread::sleep(Duration::from_millis(500));
        TcpStream::connect(address).is_ok()
    })
}

/// MiB of the largest process of that name (PSS), after a moment.
fn look(name: &str) -> f64 {
    std::thread::sleep(APART);
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let named = processes
        .filter(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let sizes = named.filter_map(|path| {
        let text = std::fs::read_to_string(path.join("smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().to_owned();
        line.split(' ').next()?.parse::<f64>().ok()
    });
    sizes.fold(0.0, f64::max) / 1024.0
}

/// MiB of a process.
fn resident(pid: u32) -> f64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
