//! Reads the log of a web server by a regular expression, and writes its lines as JSON, which it reads again.
//!
//! usage: logs ROUNDS
use std::collections::BTreeMap;
use std::fmt::Write;

use regex::Regex;
use serde_json::{json, Value};

/// A log of some thousand lines, the same each time.
fn log() -> String {
    let methods = ["GET", "GET", "GET", "HEAD", "POST"];
    let (mut text, mut random) = (String::new(), 1u32);
    for line in 0..4000u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (method, status) = (methods[(random >> 9) as usize % 5], if random >> 27 == 0 { 404 } else { 200 });
        writeln!(
            text,
            "10.{}.{}.{} - - [25/Nov/2026:10:{:02}:{:02} +0000] \"{} /articles/{}?page={} HTTP/1.1\" {} {} \"agent/{}.{}\"",
            random >> 24, random >> 16 & 255, random >> 8 & 255, line / 60 % 60, line % 60, method,
            random >> 13 & 1023, random >> 5 & 7, status, random >> 11, random >> 30, random >> 28 & 3
        )
        .expect("a String takes all");
        if line % 50 == 0 {
            text.push_str("-- restarted: \u{e9}t\u{e9} --\n");
        }
    }
    text
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
    let line = Regex::new(
        r#"^(?P<address>\d+\.\d+\.\d+\.\d+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<method>[A-Z]+) (?P<path>[^ ?]+)(?:\?(?P<query>\S*))? HTTP/[\d.]+" (?P<status>\d{3}) (?P<bytes>\d+) "(?P<agent>[^"]*)"$"#,
    )
    .expect("a regular expression");
    let text = log();
    let (mut bytes, mut skipped, mut paths) = (0u64, 0usize, BTreeMap::<String, u64>::new());
    for _ in 0..rounds {
        let mut written = String::new();
        for each in text.lines() {
            let found = match line.captures(each) {
                Some(found) => found,
                None => {
                    skipped += 1;
                    continue;
                }
            };
            let entry = json!({
                "address": &found["address"], "time": &found["time"], "method": &found["method"],
                "path": &found["path"], "query": found.name("query").map(|query| query.as_str()),
                "status": found["status"].parse::<u16>().expect("three digits"),
                "bytes": found["bytes"].parse::<u64>().expect("digits"), "agent": &found["agent"],
            });
            written.push_str(&entry.to_string());
            written.push('\n');
        }
        for each in written.lines() {
            let entry: Value = serde_json::from_str(each).expect("JSON");
            bytes += entry["bytes"].as_u64().expect("a number");
            *paths.entry(entry["path"].as_str().expect("a text").to_owned()).or_default() += 1;
        }
    }
    let (most, times) = paths.iter().max_by_key(|(path, times)| (**times, *path)).expect("a line");
    println!("{} bytes, {} lines skipped, {} paths, {} {} times", bytes, skipped, paths.len(), most, times);
}
