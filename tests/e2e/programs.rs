//! Real programs fetch from servers in the box, through the proxy.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tests::harness;
use tests::internet::{Internet, Request, Response};
use tests::person::{Person, Who};

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A host that serves these files, by their paths.
fn serve(net: &Internet, name: &str, files: HashMap<String, Vec<u8>>) {
    let files = Arc::new(files);
    net.https(name, move |request: &Request| match files.get(request.path()) {
        Some(body) => Response::ok(body.clone()),
        None => Response::not_found(),
    });
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn available(program: &str, args: &[&str]) -> bool {
    let found = Command::new(program).args(args).output().is_ok_and(|output| output.status.success());
    if !found {
        harness::skip(&format!("fetching with {program}"), "it is not installed");
    }
    found
}

/// Everything below a directory, by paths that begin with a prefix.
fn tree(dir: &Path, prefix: &str, files: &mut HashMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().expect("type").is_dir() {
            tree(&entry.path(), &path, files);
        } else {
            files.insert(path, fs::read(entry.path()).expect("file"));
        }
    }
}

#[test]
fn curl_downloads_and_uploads() {
    let Some(net) = Internet::new() else { return };
    let big: Vec<u8> = (0..5_000_000u32).map(|n| (n.wrapping_mul(7919) >> 8) as u8).collect();
    let sum = format!("{:x}", Sha256::digest(&big));
    net.https("files.example.com", move |request| match request.method.as_str() {
        "POST" | "PUT" => Response::ok(format!("{:x}", Sha256::digest(&request.body))),
        _ => Response::ok(big.clone()),
    });
    for who in Who::all() {
        let person = Person::new(*who);
        let script = "set -e; curl -sS -o big https://files.example.com/big; sha256sum < big; \
                      curl -sS -T big https://files.example.com/up; echo; \
                      curl -sS --http1.1 --tls-max 1.2 https://files.example.com/big | sha256sum";
        let outcome =
            person.sh(["--allow", "files.example.com"], script).within(&net).output().expect_code(0);
        let sums: Vec<&str> =
            outcome.stdout.split(|b| *b == b'\n').filter_map(|l| std::str::from_utf8(l).ok()).collect();
        assert_eq!(
            sums[..3].iter().map(|l| l.trim_end_matches("  -")).collect::<Vec<_>>(),
            [&sum, &sum, &sum],
            "{outcome}"
        );
    }
}

#[test]
fn git_clones_over_https() {
    if !available("/usr/bin/git", &["--version"]) {
        return;
    }
    let Some(net) = Internet::new() else { return };
    let dir = tempfile::tempdir().expect("directory");
    let git = |args: &[&str]| {
        let identity =
            ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"];
        run(Command::new("/usr/bin/git")
            .args(identity)
            .args(args)
            .current_dir(dir.path())
            .env("HOME", "/nonexistent"));
    };
    git(&["init", "-q", "project"]);
    fs::write(dir.path().join("project/README"), "from the box\n").expect("file");
    git(&["-C", "project", "add", "README"]);
    git(&["-C", "project", "commit", "-q", "-m", "first"]);
    git(&["clone", "-q", "--bare", "project", "bare.git"]);
    // The protocol of plain files: what a static server offers.
    git(&["-C", "bare.git", "update-server-info"]);
    let mut files = HashMap::new();
    tree(&dir.path().join("bare.git"), "/project.git", &mut files);
    serve(&net, "git.example.com", files);
    for who in Who::all() {
        let person = Person::new(*who);
        let script = "git clone -q https://git.example.com/project.git && cat project/README";
        let call = person.sh(["--allow", "git.example.com"], script).within(&net);
        call.output().expect_out("from the box");
        // Another host is another matter.
        let call = person.sh(["--allow", "other.example.com"], script).within(&net);
        assert_ne!(call.output().code(), 0);
    }
}

#[test]
fn pip_installs_from_an_index() {
    if !available("/usr/bin/python3", &["-m", "pip", "--version"]) {
        return;
    }
    let Some(net) = Internet::new() else { return };
    let dir = tempfile::tempdir().expect("directory");
    // A wheel is a zip file with these members.
    let make = "import zipfile, sys\n\
                z = zipfile.ZipFile(sys.argv[1], 'w')\n\
                z.writestr('boxed.py', 'print(\"a wheel from the box\")\\n')\n\
                i = 'boxed-1.0.dist-info/'\n\
                z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: boxed\\nVersion: 1.0\\n')\n\
                z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                z.writestr(i + 'RECORD', 'boxed.py,,\\n' + i + 'METADATA,,\\n' + i + 'WHEEL,,\\n' + i + 'RECORD,,\\n')\n\
                z.close()\n";
    let wheel = dir.path().join("wheel");
    run(Command::new("/usr/bin/python3").args(["-c", make]).arg(&wheel));
    let wheel = fs::read(wheel).expect("wheel");
    let sum = format!("{:x}", Sha256::digest(&wheel));
    let page = format!(
        "<a href=\"https://files.example.com/boxed-1.0-py3-none-any.whl#sha256={sum}\">boxed-1.0-py3-none-any.whl</a>"
    );
    net.https("index.example.com", move |request| match request.path() {
        "/simple/boxed/" => Response::ok(page.clone()).header("Content-Type", "text/html"),
        _ => Response::not_found(),
    });
    serve(&net, "files.example.com", HashMap::from([("/boxed-1.0-py3-none-any.whl".to_owned(), wheel)]));
    for who in Who::all() {
        let person = Person::new(*who);
        let options = [
            "--allow",
            "index.example.com",
            "--allow",
            "files.example.com",
            "--env",
            "PIP_CERT=/etc/ssl/certs/ca-certificates.crt",
        ];
        let script = "set -e; /usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --target lib \
                      --index-url https://index.example.com/simple boxed; PYTHONPATH=lib /usr/bin/python3 -c 'import boxed'";
        let outcome = person.sh(options, script).within(&net).output().expect_code(0);
        assert_eq!(outcome.out(), "a wheel from the box", "{outcome}");
    }
}

#[test]
fn npm_installs_from_a_registry() {
    if !available("npm", &["--version"]) {
        return;
    }
    let Some(net) = Internet::new() else { return };
    let dir = tempfile::tempdir().expect("directory");
    let package = dir.path().join("package");
    fs::create_dir(&package).expect("directory");
    fs::write(package.join("package.json"), json!({ "name": "boxed", "version": "1.0.0" }).to_string())
        .expect("file");
    fs::write(package.join("index.js"), "console.log('a package from the box')\n").expect("file");
    let archive = dir.path().join("boxed.tgz");
    run(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(dir.path()).arg("package"));
    let archive = fs::read(archive).expect("archive");
    let document = json!({
        "name": "boxed",
        "dist-tags": { "latest": "1.0.0" },
        "versions": { "1.0.0": {
            "name": "boxed", "version": "1.0.0",
            "dist": { "tarball": "https://npm.example.com/boxed/-/boxed-1.0.0.tgz" },
        } },
    });
    let files = HashMap::from([
        ("/boxed".to_owned(), document.to_string().into_bytes()),
        ("/boxed/-/boxed-1.0.0.tgz".to_owned(), archive),
    ]);
    serve(&net, "npm.example.com", files);
    for who in Who::all() {
        let person = Person::new(*who);
        let options =
            ["--allow", "npm.example.com", "--env", "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt"];
        let script = "set -e; echo '{}' > package.json; npm install --silent --no-audit --no-fund --no-update-notifier \
                      --registry https://npm.example.com/ boxed; node -e 'require(\"boxed\")'";
        let outcome =
            person.sh(options, script).within(&net).timeout(Duration::from_secs(120)).output().expect_code(0);
        assert!(outcome.out().contains("a package from the box"), "{outcome}");
    }
}

/// The directory of a Rust toolchain: `cargo` may be a shim that looks for one in the operator's home.
fn toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    root.join("bin/cargo").exists().then_some(root)
}

#[test]
fn cargo_fetches_from_a_registry() {
    let Some(toolchain) = toolchain() else {
        return harness::skip("fetching with cargo", "no toolchain");
    };
    let Some(net) = Internet::new() else { return };
    // Where every user can get at it.
    net.empty_dir_over("/opt");
    net.inside(|| fs::create_dir("/opt/rust").expect("a mount point"));
    net.bind(&toolchain, "/opt/rust");
    let dir = tempfile::tempdir().expect("directory");
    let krate = dir.path().join("boxed-1.0.0");
    fs::create_dir_all(krate.join("src")).expect("directory");
    let manifest = "[package]\nname = \"boxed\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    fs::write(krate.join("Cargo.toml"), manifest).expect("file");
    fs::write(krate.join("src/lib.rs"), "pub fn text() -> &'static str { \"a crate from the box\" }\n")
        .expect("file");
    let archive = dir.path().join("boxed.crate");
    run(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(dir.path()).arg("boxed-1.0.0"));
    let archive = fs::read(archive).expect("archive");
    let sum = format!("{:x}", Sha256::digest(&archive));
    let entry = json!({ "name": "boxed", "vers": "1.0.0", "deps": [], "cksum": sum, "features": {}, "yanked": false });
    let files = HashMap::from([
        ("/config.json".to_owned(), br#"{"dl": "https://crates.example.com/dl/{crate}/{version}"}"#.to_vec()),
        ("/bo/xe/boxed".to_owned(), format!("{entry}\n").into_bytes()),
        ("/dl/boxed/1.0.0".to_owned(), archive),
    ]);
    serve(&net, "crates.example.com", files);
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        for dir in ["src", ".cargo"] {
            fs::create_dir(work.join(dir)).expect("directory");
            person.give_work(&work.join(dir));
        }
        let manifest = "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                        [dependencies]\nboxed = { version = \"1\", registry = \"box\" }\n";
        person.write_work(&work.join("Cargo.toml"), manifest);
        person.write_work(&work.join("src/main.rs"), "fn main() { println!(\"{}\", boxed::text()) }\n");
        let config = "[registries.box]\nindex = \"sparse+https://crates.example.com/\"\n";
        person.write_work(&work.join(".cargo/config.toml"), config);
        let options = [
            "--here",
            "--ro",
            "/opt/rust",
            "--allow",
            "crates.example.com",
            "--env",
            &format!("CARGO_HTTP_CAINFO={CERTIFICATES}"),
            "--env",
            "PATH=/opt/rust/bin:/usr/bin:/bin",
        ];
        let call = person.sh(options, "cargo fetch -q && cargo run -q --offline").cwd(&work).within(&net);
        let outcome = call.timeout(Duration::from_secs(180)).output();
        assert_eq!((outcome.code(), outcome.out().as_str()), (0, "a crate from the box"), "{outcome}");
    }
}
