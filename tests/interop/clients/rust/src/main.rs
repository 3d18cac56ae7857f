//! A busy program that profiles itself with the crate `pyroscope`: URL and KEY of the collector, how many seconds it is busy.
use std::time::{Duration, Instant};

use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
use pyroscope::pyroscope::PyroscopeAgentBuilder;

#[inline(never)]
fn count_in_rust(until: Instant) -> u64 {
    let mut sum = 0u64;
    while Instant::now() < until {
        for i in 0..100_000u64 {
            sum = sum.wrapping_add(i * i);
        }
    }
    sum
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let busy = |seconds: f64| count_in_rust(Instant::now() + Duration::from_secs_f64(seconds));
    let seconds: f64 = arguments[3].parse().unwrap();
    let backend = pprof_backend(PprofConfig { sample_rate: 100 }, BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(&arguments[1], "rust.shop", 100, "pyroscope-rs", "2.1.5", backend)
        .basic_auth("pyroscope", &arguments[2])
        .tags(vec![("version", "1.4"), ("region", "eu")])
        .upload_interval(Duration::from_secs(1))
        .build()
        .unwrap()
        .start()
        .unwrap();
    let (add, remove) = agent.tag_wrapper();
    println!("{}", busy(seconds / 2.0));
    add("part".into(), "tagged".into()).unwrap();
    println!("{}", busy(seconds / 2.0));
    remove("part".into(), "tagged".into()).unwrap();
    agent.stop().unwrap().shutdown();
}
