//! Connections that break: before, during and after a response, and peers that are dead without saying so.

use std::time::Duration;

use client::{Client, ClientError, Transport};
use futures_util::StreamExt;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;

use crate::support::*;

fn interrupted(error: &ClientError) -> (Option<&str>, u64) {
    match error {
        ClientError::Interrupted { response_id, events_seen, .. } => (response_id.as_deref(), *events_seen),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_broken_socket_is_resumed_without_losing_or_doubling_an_event() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        peer.say(delta(1, "a")).await;
        peer.say(delta(2, "b")).await;
        drop(peer);
        let mut resume = server.accept().await;
        assert_eq!(resume.line, "GET /v1/responses/resp_1?stream=true&starting_after=2 HTTP/1.1");
        resume.begin_events().await;
        // A server that starts one event too early, and whose connection breaks as well.
        resume.event(delta(2, "b")).await;
        resume.event(delta(3, "c")).await;
        drop(resume);
        let mut resume = server.accept().await;
        resume.reply(404, "", "{}").await;
        let mut resume = resume.again().await.expect("the server may not have noticed the break yet");
        assert!(resume.line.contains("starting_after=3"), "{}", resume.line);
        resume.events([delta(4, "d"), ended("resp_1", 5, "completed")]).await;
        server.socket(Kind::Flint).await.answer("resp_2", &["e"]).await;
    };
    let user = async {
        let mut answer = client.respond(ask("one")).await.unwrap();
        assert_eq!(text(&mut answer).await.unwrap(), "abcd");
        let mut answer = client.respond(ask("two")).await.unwrap();
        assert_eq!(answer.transport(), Transport::WebSocket, "the next one goes by WebSocket again");
        assert_eq!(text(&mut answer).await.unwrap(), "e");
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_break_after_any_event_changes_nothing_for_the_reader() {
    let all = whole("resp_1", &["a", "b", "c", "d"]);
    for cut in 1..all.len() {
        let (server, client) = alone().await;
        let script = async {
            let mut peer = server.socket(Kind::Flint).await;
            peer.receive().await.unwrap();
            for event in &all[..cut] {
                peer.say(event.clone()).await;
            }
            drop(peer);
            let mut resume = server.accept().await;
            assert!(resume.line.contains(&format!("starting_after={} ", cut - 1)), "{}", resume.line);
            resume.events(all[cut..].to_vec()).await;
        };
        let user = async {
            let mut answer = client.respond(ask("q")).await.unwrap();
            let mut numbers = Vec::new();
            while let Some(event) = answer.next().await {
                numbers.push(event.unwrap().sequence_number);
            }
            numbers
        };
        assert_eq!(play(script, user).await.1, [0, 1, 2, 3, 4, 5], "cut after {cut} events");
    }
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_interrupted() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        peer.say(delta(1, "a")).await;
    };
    let user = async {
        let request = json!({"model": "m", "input": "q", "store": false});
        let mut answer = client.respond(request).await.unwrap();
        let error = text(&mut answer).await.unwrap_err();
        assert_eq!(interrupted(&error), (Some("resp_1"), 2));
        assert!(answer.next().await.is_none());
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_server_that_cannot_resume_interrupts() {
    let json = "content-type: application/json\r\n";
    for (status, headers, body, times) in [(404, "", "{}", 4), (400, "", "{}", 1), (200, json, "{}", 1)] {
        let (server, client) = alone().await;
        let script = async {
            let peer = server.begun(Kind::Other).await;
            drop(peer);
            let mut resume = server.accept().await;
            for time in 1..=times {
                resume.reply(status, headers, body).await;
                if time < times {
                    resume = resume.again().await.expect("it is tried again");
                }
            }
        };
        let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap_err() };
        let (_, error) = play(script, user).await;
        assert_eq!(interrupted(&error), (Some("resp_1"), 1));
    }
}

#[tokio::test]
async fn a_hole_in_the_resumed_stream_is_not_hidden() {
    let (server, client) = alone().await;
    let script = async {
        let peer = server.begun(Kind::Flint).await;
        drop(peer);
        server.accept().await.events([delta(2, "b"), ended("resp_1", 3, "completed")]).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap_err() };
    let (_, error) = play(script, user).await;
    assert_eq!(interrupted(&error), (Some("resp_1"), 1));
}

#[tokio::test]
async fn dropping_a_resumed_answer_cancels_it_by_name() {
    let (server, client) = alone().await;
    let script = async {
        let peer = server.begun(Kind::Flint).await;
        drop(peer);
        let mut resume = server.accept().await;
        resume.begin_events().await;
        resume.event(delta(1, "a")).await;
        let mut cancel = server.accept().await;
        assert_eq!(cancel.line, "POST /v1/responses/resp_1/cancel HTTP/1.1");
        cancel.reply(200, "", "{}").await;
    };
    let user = async {
        let mut answer = client.respond(ask("q")).await.unwrap();
        next(&mut answer).await;
        next(&mut answer).await;
        drop(answer);
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_warm_socket_that_died_unnoticed_is_replaced() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        peer.answer("resp_1", &["a"]).await;
        peer.receive().await.expect("the second request");
        drop(peer);
        server.socket(Kind::Flint).await.answer("resp_2", &["b"]).await;
    };
    let user = async {
        text(&mut client.respond(ask("one")).await.unwrap()).await.unwrap();
        text(&mut client.respond(ask("two")).await.unwrap()).await.unwrap()
    };
    assert_eq!(play(script, user).await.1, "b");
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_dead() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.timeouts.ping_after = Duration::from_millis(100);
    options.timeouts.pong_within = Duration::from_millis(100);
    let client = Client::new(options).unwrap();
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        // Reading the bare stream takes the pings without answering them; it ends when the client gives up.
        let mut bytes = Vec::new();
        peer.socket.get_mut().read_to_end(&mut bytes).await.unwrap();
        server.accept().await.events([delta(1, "a"), ended("resp_1", 2, "completed")]).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn a_peer_that_answers_pings_may_take_its_time() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.timeouts.ping_after = Duration::from_millis(2);
    options.timeouts.pong_within = Duration::from_secs(20);
    let client = Client::new(options).unwrap();
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        peer.receive().await.unwrap();
        let mut pings = 0;
        while pings < 5 {
            if let Some(Ok(Message::Ping(_))) = peer.socket.next().await {
                pings += 1;
            }
        }
        for event in whole("resp_1", &["a"]) {
            peer.say(event).await;
        }
        peer
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn a_silent_stream_of_events_is_dead() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.transport = Transport::Sse;
    options.timeouts.sse_idle = Duration::from_millis(200);
    let client = Client::new(options).unwrap();
    let script = async {
        let mut post = server.accept().await;
        post.begin_events().await;
        post.event(created("resp_1")).await;
        let mut resume = server.accept().await;
        resume.events([delta(1, "a"), ended("resp_1", 2, "completed")]).await;
        drop(post);
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn nobody_there_is_said_with_a_hint() {
    let (server, client) = alone().await;
    drop(server);
    let error = client.respond(ask("q")).await.err().unwrap();
    assert!(matches!(&error, ClientError::Connect { hint, .. } if hint.contains("flint serve")), "{error}");
}
