//! Many answers at once over few lanes, read to random places and dropped there: no answer ever sees another's events.

use std::collections::BTreeMap;
use std::time::Duration;

use api::responses::EventKind;
use client::Client;
use serde_json::{Value, json};

use crate::support::*;

/// A small generator of numbers, so that a failure can be had again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// A response that runs on a lane of the scripted server.
struct Running {
    word: String,
    said: usize,
}

const WORDS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_dropped_anywhere_never_mix() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.limits.lanes = 4;
    options.limits.sockets = 8;
    options.transport = client::Transport::WebSocket;
    let client = Client::new(options).unwrap();
    let serve = async {
        loop {
            let peer = server.socket(Kind::Flint).await;
            tokio::spawn(serve(peer));
        }
    };
    let users = async {
        let tasks: Vec<_> = (0..10).map(|seed| tokio::spawn(user(client.clone(), seed))).collect();
        let mut finished = 0;
        for task in tasks {
            finished += task.await.unwrap();
        }
        assert!(finished > 50, "only {finished} answers were read to the end");
    };
    let limit = tokio::time::sleep(Duration::from_secs(60));
    tokio::select! {
        () = users => {}
        () = serve => unreachable!("it never ends"),
        () = limit => panic!("an answer hangs"),
    }
}

/// Asks twenty times. Returns how many answers were read to the end.
async fn user(client: Client, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let mut finished = 0;
    for turn in 0..20 {
        let word = format!("{seed}.{turn}");
        let mut answer = client.respond(ask(&word)).await.unwrap();
        let stop_after = dice.below(2 * (WORDS as u64 + 2));
        let mut words = 0;
        for _ in 0..stop_after {
            match answer.next().await {
                None => break,
                Some(event) => {
                    if let EventKind::TextDelta { delta, .. } = event.unwrap().kind {
                        assert_eq!(delta, word, "an event of another answer");
                        words += 1;
                    }
                }
            }
        }
        finished += usize::from(words == WORDS);
        assert!(words <= WORDS);
    }
    finished
}

/// Says one event after another on lanes in turn, and listens in between.
async fn serve(mut peer: Peer) {
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut dice = Dice(7);
    loop {
        let message = match running.len() {
            0 => peer.receive().await,
            _ => match tokio::time::timeout(Duration::ZERO, peer.receive()).await {
                Ok(message) => message,
                Err(_) => {
                    let index = dice.below(running.len() as u64) as usize;
                    let lane = running.keys().nth(index).unwrap().clone();
                    step(&mut peer, &mut running, lane).await;
                    continue;
                }
            },
        };
        let Some(message) = message else { return };
        let lane = message["stream_id"].as_str().unwrap_or_default().to_owned();
        if message["type"] == "response.create" {
            let word = message["input"].as_str().unwrap().to_owned();
            say(&mut peer, &lane, created(&format!("resp_{word}"))).await;
            assert!(!running.contains_key(&lane), "a lane in use was used again");
            running.insert(lane, Running { word, said: 0 });
        } else if let Some(response) = running.remove(&lane) {
            let last = ended(&format!("resp_{}", response.word), response.said + 1, "incomplete");
            say(&mut peer, &lane, last).await;
        } else {
            let error = json!({"code": "response_not_found", "message": "it has ended"});
            say(&mut peer, &lane, json!({"type": "error", "status": 404, "error": error})).await;
        }
    }
}

async fn step(peer: &mut Peer, running: &mut BTreeMap<String, Running>, lane: String) {
    let response = running.get_mut(&lane).unwrap();
    response.said += 1;
    if response.said <= WORDS {
        let event = delta(response.said, &response.word.clone());
        return say(peer, &lane, event).await;
    }
    let last = ended(&format!("resp_{}", response.word), response.said, "completed");
    running.remove(&lane);
    say(peer, &lane, last).await;
}

async fn say(peer: &mut Peer, lane: &str, event: Value) {
    let lane = if lane.is_empty() { Value::Null } else { lane.into() };
    peer.say_on(&lane, event).await;
}
