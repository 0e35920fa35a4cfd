//! A node and its model: an agent that asks it through the broker, and the `openai` backend, in which the node asks itself
//! (SEL-3).

use serde_json::json;
use tests::internet::Internet;
use tests::model::Service;
use tests::node::{Node, PATIENCE, shell_agent, until};
use tests::person::Who;
use tests::processes;

use crate::model::{COMPATIBLE, KEY, MODEL, person_with_key, proper, store};
use crate::node_basics::code_of;

/// The model of the configuration, with the key that is stored under the service's name.
fn model(service: &Service) -> String {
    format!("api_base = \"{}\"\nmodel = \"{MODEL}\"", service.base())
}

/// MOD-1, MOD-2: an agent of a node asks with a placeholder, the service hears the operator's key; the answer is the peer's.
#[test]
fn an_agent_of_a_node_reaches_its_model() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let service = Service::compatible(&net, COMPATIBLE, KEY);
        let person = person_with_key(*who);
        store(&person, COMPATIBLE, KEY);
        let mut node = Node::serving(&person, Some(&net), &shell_agent(&model(&service), ""));
        let script = r#"curl -sS "$ANET_MODEL_URL/v1/chat/completions" -H 'Content-Type: application/json' \
            -d '{"model":"m","messages":[{"role":"user","content":"[[text:Good day]]"}]}' | grep -o 'Good day'; env | grep -c canary"#;
        let script = format!("{script}; true");
        // Two runs of two peers, one broker: each is its own.
        std::thread::scope(|scope| {
            for peer in ["p1", "p2"] {
                let (node, script) = (&node, &script);
                scope.spawn(move || node.ask(peer, script).expect_out("Good day\n0"));
            }
        });
        let requests = service.take();
        assert_eq!(requests.len(), 2);
        for request in &requests {
            proper(request, COMPATIBLE, MODEL);
            assert!(request.head.iter().any(|line| line.contains(KEY)), "MOD-1");
        }
        let id = node.inbox()[0]["id"].as_str().expect("an id").to_owned();
        assert!(
            node.show(&id).to_string().contains("\\\"requests\\\":1")
                || node.show(&id).to_string().contains("\"requests\":1")
        );
        assert!(!node.log().contains(KEY), "MOD-11");
        let evidence = node.evidence();
        assert!(
            evidence.iter().all(|r| !r.to_string().contains(KEY) && !r.to_string().contains("Good day")),
            "EVI-4"
        );
        node.stop();
    }
}

/// SEL-3: the `openai` backend: the node asks the service and starts no program; it counts for untrusted peers all the same.
#[test]
fn the_openai_backend_answers_without_a_program() {
    let Some(net) = Internet::new() else { return };
    for who in Who::all() {
        let service = Service::compatible(&net, COMPATIBLE, KEY);
        let person = person_with_key(*who);
        store(&person, COMPATIBLE, KEY);
        let text =
            shell_agent(&format!("backend = \"openai\"\n{}", model(&service)), "runs_per_peer_per_day = 2");
        let node = Node::serving(&person, Some(&net), &text);
        let programs = |node: &Node| -> Vec<processes::Process> {
            node.tree().into_iter().filter(|p| !p.name.starts_with("anet")).collect()
        };
        // A node tries its sandbox when it comes up; that has ended before anything is asked.
        node.wait_status("the sandbox was tried", |s| s["sandbox"]["checked"].is_string());
        until("no program runs", PATIENCE, || {
            let programs = programs(&node);
            if programs.is_empty() { Ok(()) } else { Err(format!("{programs:?}")) }
        });
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| node.ask("p1", "[[slow]][[text:Good day]]"));
            while !asked.is_finished() {
                assert_eq!(programs(&node), [], "SEL-3: no program is started");
            }
            asked.join().expect("the client").expect_out("Good day");
        });
        let requests = service.take();
        assert_eq!(requests.len(), 1);
        proper(&requests[0], COMPATIBLE, MODEL);
        assert!(String::from_utf8_lossy(&requests[0].body).contains("Good day"), "the task is what is asked");
        node.ask("friend", "[[text:For free]]").expect_out("For free");
        node.ask("p1", "[[text:Twice]]").expect_out("Twice");
        let used = node.status()["day"]["runs"]["used"].clone();
        assert_eq!(used, json!(2), "SEL-3, RUN-1: {}", node.status());
        let outcome = node.ask("p1", "[[text:Thrice]]").expect_code(75);
        assert_eq!(code_of(&outcome), "budget", "SEL-3: {outcome}");
        assert_eq!(service.take().len(), 2, "what is refused asks nobody");
        let id = node.inbox().iter().find(|r| r["peer"] == "friend").expect("a row")["id"].clone();
        let story = node.show(id.as_str().expect("an id"));
        assert_eq!(story["runs"][0]["way"], "openai", "{story}");
        node.verify().expect_code(0);
    }
}

/// SEL-3: it uses no sandbox, so it needs none.
#[test]
fn the_openai_backend_needs_no_bubblewrap() {
    let Some(net) = Internet::new() else { return };
    net.change_here("/usr/bin");
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    store(&person, COMPATIBLE, KEY);
    net.inside(|| std::fs::remove_file("/usr/bin/bwrap")).expect("remove");
    let text = shell_agent(&format!("backend = \"openai\"\n{}", model(&service)), "");
    let node = Node::serving(&person, Some(&net), &text);
    node.ask("p1", "[[text:Good day]]").expect_out("Good day");
}

/// MOD-11, SEL-3: a service that fails, is silent or says nothing is no answer; the node goes on, and a key that is wrong does not
/// show.
#[test]
fn a_failing_service_is_no_answer() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    store(&person, COMPATIBLE, KEY);
    let text =
        shell_agent(&format!("backend = \"openai\"\napi_timeout_seconds = 3\n{}", model(&service)), "");
    let node = Node::serving(&person, Some(&net), &text);
    for (n, order) in ["[[status:500]]", "[[status:401]]", "[[hang]]", "[[cut]]"].into_iter().enumerate() {
        let outcome = node.ask(&format!("p{n}"), &format!("{order}[[text:never]]")).expect_code(75);
        assert_eq!(code_of(&outcome), "agent_failed", "{order}: {outcome}");
        assert_eq!(outcome.out(), "", "{order}: {outcome}");
    }
    node.ask("p9", "[[text:On]]").expect_out("On");
    assert_eq!(node.status()["restarts"], 0, "{}", node.log());
    assert!(!node.log().contains(KEY), "MOD-11");
}

/// SBX-5 with a request under way: a node that dies while the model is asked leaves nothing, and the interaction is interrupted.
#[test]
fn a_node_that_dies_while_it_asks() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = person_with_key(Who::User);
    store(&person, COMPATIBLE, KEY);
    let text = shell_agent(&format!("backend = \"openai\"\n{}", model(&service)), "");
    let node = Node::serving(&person, Some(&net), &text);
    for name in ["broker", "supervisor", "proxy", "guard"] {
        let id = node.submit("p1", "[[hang]][[text:never]]");
        until("the service is asked", PATIENCE, || {
            if service.requests().is_empty() { Err(node.log()) } else { Ok(()) }
        });
        processes::signal(node.pids()[name], nix::sys::signal::Signal::SIGKILL);
        let story = node.wait_final(&id);
        assert_eq!(story["interaction"]["state"], "interrupted", "{name}: {story}");
        assert_eq!(node.status()["day"]["runs"]["used"], 0, "RUN-1: {name}");
        service.take();
    }
    node.ask("p1", "[[text:On]]").expect_out("On");
}

/// DIA-2: a missing key is a warning; the node serves, and says what to do.
#[test]
fn a_missing_key_is_a_warning() {
    let Some(net) = Internet::new() else { return };
    let service = Service::compatible(&net, COMPATIBLE, KEY);
    let person = tests::person::Person::new(Who::User);
    let node = Node::serving(&person, Some(&net), &shell_agent(&model(&service), ""));
    let status = node.wait_status("no_api_key", |s| s.to_string().contains("no_api_key"));
    assert!(status.to_string().contains("credential set"), "DIA-2: {status}");
    // Stored, it is taken up.
    store(&person, COMPATIBLE, KEY);
    until("the key is taken up", PATIENCE, || {
        let call = node.anet(["submit", "--peer", "friend", "--wait"]).stdin(
            "curl -sS \"$ANET_MODEL_URL/v1/chat/completions\" -H 'Content-Type: application/json' \
             -d '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"[[text:Good day]]\"}]}' | grep -o 'Good day'",
        );
        let outcome = call.timeout(PATIENCE).attempt();
        if outcome.code() == 0 && outcome.out() == "Good day" {
            Ok(())
        } else {
            Err(format!("{outcome}\n{}", node.log()))
        }
    });
}
