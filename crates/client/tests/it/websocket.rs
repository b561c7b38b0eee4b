//! The usual way: answers over WebSockets, several at once, steered, cancelled and dropped.

use std::time::Duration;

use api::responses::EventKind;
use client::{Client, ClientError, Transport};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::*;

#[tokio::test]
async fn events_come_in_order_and_the_connection_is_reused() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.api_key = Some("k".to_owned());
    options.headers = vec![("x-own".to_owned(), "1".to_owned())];
    let client = Client::new(options).unwrap();
    let script = async {
        let upgrade = server.accept().await;
        assert_eq!(upgrade.headers["authorization"], "Bearer k");
        assert_eq!(upgrade.headers["x-own"], "1");
        let mut peer = upgrade.upgrade(Kind::Flint).await;
        let create = peer.answer("resp_1", &["a", "b", "c"]).await;
        assert_eq!(create, json!({"type": "response.create", "model": "m", "input": "one"}));
        let create = peer.answer("resp_2", &["d"]).await;
        assert_eq!(create["input"], "two");
        assert_eq!(create["stream_id"], Value::Null, "an answer alone needs no name");
    };
    let user = async {
        assert_eq!(client.connect().await.unwrap(), Transport::WebSocket);
        let mut answer = client.respond(ask("one")).await.unwrap();
        assert_eq!(answer.transport(), Transport::WebSocket);
        for number in 0..5 {
            assert_eq!(next(&mut answer).await.sequence_number, number);
        }
        assert!(answer.next().await.is_none());
        assert_eq!(answer.response_id(), Some("resp_1"));
        let response = client.respond(ask("two")).await.unwrap().finish().await.unwrap();
        assert_eq!((response.id.as_str(), response.usage.unwrap().total_tokens), ("resp_2", 5));
    };
    play(script, user).await;
}

#[tokio::test]
async fn two_answers_share_a_flint_socket_and_do_not_mix() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        let first = peer.receive().await.unwrap();
        peer.say_on(&first["stream_id"], created("resp_1")).await;
        let second = peer.receive().await.unwrap();
        assert_ne!(first["stream_id"], second["stream_id"]);
        peer.say_on(&second["stream_id"], created("resp_2")).await;
        for number in 1..4 {
            peer.say_on(&first["stream_id"], delta(number, "x")).await;
            peer.say_on(&second["stream_id"], delta(number, "y")).await;
        }
        peer.say_on(&second["stream_id"], ended("resp_2", 4, "completed")).await;
        peer.say_on(&first["stream_id"], ended("resp_1", 4, "completed")).await;
    };
    let user = async {
        let mut one = client.respond(ask("one")).await.unwrap();
        let mut two = client.respond(ask("two")).await.unwrap();
        assert_eq!(text(&mut one).await.unwrap(), "xxx");
        assert_eq!(text(&mut two).await.unwrap(), "yyy");
    };
    play(script, user).await;
}

#[tokio::test]
async fn answers_of_another_server_get_a_socket_each_and_return_to_their_own() {
    let (server, client) = alone().await;
    let script = async {
        let mut first = server.socket(Kind::Other).await;
        let create = first.receive().await.unwrap();
        assert_eq!(create["stream_id"], Value::Null);
        first.say(created("resp_1")).await;
        let mut second = server.socket(Kind::Other).await;
        second.answer("resp_2", &["y"]).await;
        first.say(ended("resp_1", 1, "completed")).await;
        let create = second.answer("resp_3", &["z"]).await;
        assert_eq!(create["previous_response_id"], "resp_2", "the connection that knows the response");
    };
    let user = async {
        let mut one = client.respond(ask("one")).await.unwrap();
        let mut two = client.respond(ask("two")).await.unwrap();
        assert_eq!(text(&mut two).await.unwrap(), "y");
        assert_eq!(text(&mut one).await.unwrap(), "");
        let request = json!({"model": "m", "input": "three", "previous_response_id": "resp_2"});
        assert_eq!(text(&mut client.respond(request).await.unwrap()).await.unwrap(), "z");
    };
    play(script, user).await;
}

#[tokio::test]
async fn answers_that_start_together_open_one_socket() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        for number in 0..4 {
            peer.answer(&format!("resp_{number}"), &["x"]).await;
        }
    };
    let user = async {
        let one = || async { client.respond(ask("q")).await.unwrap().finish().await.unwrap() };
        tokio::join!(one(), one(), one(), one());
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_steered_answer_continues_with_its_successor() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        peer.say(delta(1, "old ")).await;
        let steer = peer.receive().await.unwrap();
        assert_eq!(steer, json!({"type": "response.steer", "previous_response_id": "resp_1", "input": "be brief"}));
        let state = json!({"id": "steer_1", "previous_response_id": "resp_1"});
        peer.say(json!({"type": "response.steer.accepted", "steer": state})).await;
        peer.say(ended("resp_1", 2, "incomplete")).await;
        for event in whole("resp_2", &["new"]) {
            peer.say(event).await;
        }
        peer.answer("resp_3", &["next"]).await;
    };
    let user = async {
        let mut answer = client.respond(ask("q")).await.unwrap();
        answer.steer("be brief".into()).await.unwrap();
        assert_eq!(text(&mut answer).await.unwrap(), "old new");
        assert_eq!(answer.response_id(), Some("resp_2"));
        assert!(matches!(answer.steer("more".into()).await, Err(ClientError::NotSteerable { .. })));
        let mut next = client.respond(ask("q")).await.unwrap();
        assert_eq!(text(&mut next).await.unwrap(), "next", "the lane is free again");
    };
    play(script, user).await;
}

#[tokio::test]
async fn cancel_goes_to_the_lane_and_the_last_event_follows() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        let other = peer.receive().await.unwrap();
        let lane = other["stream_id"].clone();
        peer.say_on(&lane, created("resp_2")).await;
        let cancel = peer.receive().await.unwrap();
        assert_eq!(cancel, json!({"type": "response.cancel", "stream_id": lane}));
        peer.say_on(&lane, ended("resp_2", 1, "incomplete")).await;
        peer.say(ended("resp_1", 1, "completed")).await;
    };
    let user = async {
        let mut kept = client.respond(ask("kept")).await.unwrap();
        let mut stopped = client.respond(ask("stopped")).await.unwrap();
        next(&mut stopped).await;
        stopped.cancel().await;
        let last = next(&mut stopped).await;
        assert!(matches!(last.kind, EventKind::Incomplete { .. }));
        assert!(stopped.next().await.is_none());
        text(&mut kept).await.unwrap();
    };
    play(script, user).await;
}

#[tokio::test]
async fn dropping_an_answer_cancels_it_and_leaves_the_others_alone() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Flint).await;
        let dropped = peer.receive().await.unwrap()["stream_id"].clone();
        peer.say_on(&dropped, created("resp_2")).await;
        let cancel = peer.receive().await.unwrap();
        assert_eq!(cancel, json!({"type": "response.cancel", "stream_id": dropped}));
        let third = peer.receive().await.unwrap()["stream_id"].clone();
        assert!(third != dropped && !third.is_null(), "the lane is not used while the server is not done with it");
        peer.say_on(&dropped, delta(1, "stray")).await;
        peer.say_on(&dropped, ended("resp_2", 2, "incomplete")).await;
        for event in whole("resp_3", &["z"]) {
            peer.say_on(&third, event).await;
        }
        peer.say(delta(1, "x")).await;
        peer.say(ended("resp_1", 2, "completed")).await;
    };
    let user = async {
        let mut kept = client.respond(ask("kept")).await.unwrap();
        drop(client.respond(ask("dropped")).await.unwrap());
        let mut third = client.respond(ask("third")).await.unwrap();
        assert_eq!(text(&mut third).await.unwrap(), "z");
        assert_eq!(text(&mut kept).await.unwrap(), "x");
    };
    play(script, user).await;
}

#[tokio::test]
async fn dropping_an_answer_of_another_server_closes_its_socket() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.begun(Kind::Other).await;
        assert_eq!(peer.receive().await, None, "such a server stops when the connection closes");
    };
    let user = async { drop(client.respond(ask("q")).await.unwrap()) };
    play(script, user).await;
    drop(client);
}

#[tokio::test]
async fn error_envelopes_become_typed_errors_and_the_socket_stays() {
    let (server, client) = alone().await;
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        peer.receive().await.unwrap();
        let error = json!({"type": "invalid_request_error", "code": "previous_response_not_found", "message": "no",
                           "param": "previous_response_id"});
        peer.say(json!({"type": "error", "status": 400, "error": error})).await;
        peer.answer("resp_2", &["x"]).await;
    };
    let user = async {
        let error = client.respond(ask("one")).await.err().unwrap();
        let ClientError::BadRequest { code, param, .. } = &error else { panic!("{error}") };
        assert_eq!(code.as_deref(), Some("previous_response_not_found"));
        assert_eq!(param.as_deref(), Some("previous_response_id"));
        client.respond(ask("two")).await.unwrap().finish().await.unwrap();
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_failed_response_is_an_event_and_as_a_whole_an_error() {
    let (server, client) = alone().await;
    let failed = json!({"type": "response.failed", "sequence_number": 1, "response": {"id": "r", "status": "failed",
                        "error": {"code": "context_length_exceeded", "message": "9000 tokens"}}});
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        for _ in 0..2 {
            peer.receive().await.unwrap();
            peer.say(created("r")).await;
            peer.say(failed.clone()).await;
        }
    };
    let user = async {
        let mut answer = client.respond(ask("one")).await.unwrap();
        next(&mut answer).await;
        assert!(matches!(next(&mut answer).await.kind, EventKind::Failed { .. }));
        assert!(answer.next().await.is_none());
        let error = client.respond(ask("two")).await.unwrap().finish().await.unwrap_err();
        assert!(matches!(error, ClientError::ContextTooLong { .. }), "{error}");
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_slow_reader_is_cut_off_and_does_not_stop_the_others() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.limits.unread_events = 4;
    options.timeouts.stall_max = Duration::from_millis(10);
    let client = Client::new(options).unwrap();
    let (done, slow_may_read) = oneshot::channel::<()>();
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        peer.receive().await.unwrap();
        peer.say(created("resp_slow")).await;
        let lane = peer.receive().await.unwrap()["stream_id"].clone();
        for number in 1..20 {
            peer.say(delta(number, "x")).await;
        }
        for event in whole("resp_2", &["y", "y"]) {
            peer.say_on(&lane, event).await;
        }
        let cancel = peer.receive().await.unwrap();
        assert_eq!(cancel, json!({"type": "response.cancel"}), "the slow one's, on the default lane");
        slow_may_read.await.unwrap();
    };
    let user = async {
        let mut slow = client.respond(ask("slow")).await.unwrap();
        let mut other = client.respond(ask("other")).await.unwrap();
        assert_eq!(text(&mut other).await.unwrap(), "yy");
        let error = text(&mut slow).await.unwrap_err();
        assert!(matches!(error, ClientError::TooSlow { limit: 4 }), "{error}");
        done.send(()).unwrap();
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_worn_out_connection_is_replaced_without_the_caller_noticing() {
    let (server, client) = alone().await;
    let script = async {
        let mut old = server.socket(Kind::Flint).await;
        old.receive().await.unwrap();
        let error = json!({"code": "websocket_connection_limit_reached", "message": "60 minutes"});
        old.say(json!({"type": "error", "status": 400, "error": error})).await;
        server.socket(Kind::Flint).await.answer("resp_1", &["x"]).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "x");
}

#[tokio::test]
async fn a_private_unix_socket_serves_as_well() {
    let server = Server::unix();
    let client = server.client();
    let script = async {
        let upgrade = server.accept().await;
        assert_eq!(upgrade.headers["host"], "localhost");
        let mut peer = upgrade.upgrade(Kind::Flint).await;
        peer.answer("resp_1", &["x"]).await;
        let mut models = server.accept().await;
        assert_eq!((models.line.as_str(), models.headers["host"].as_str()), ("GET /v1/models HTTP/1.1", "localhost"));
        models.reply(200, "", r#"{"data":[]}"#).await;
    };
    let user = async {
        assert_eq!(text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap(), "x");
        assert_eq!(client.models().await.unwrap(), json!({"data": []}));
    };
    play(script, user).await;
}

#[tokio::test]
async fn more_answers_than_allowed_are_refused_here() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.limits.answers = 1;
    let client = Client::new(options).unwrap();
    let script = async { server.begun(Kind::Flint).await };
    let user = async {
        let _answer = client.respond(ask("one")).await.unwrap();
        assert!(matches!(client.respond(ask("two")).await, Err(ClientError::TooMany { limit: 1 })));
    };
    play(script, user).await;
}
