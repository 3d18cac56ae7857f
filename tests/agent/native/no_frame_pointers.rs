// Computes in functions whose names the threads' names say, as no_frame_pointers.cc does: callbacks of the standard
// library, trait objects, closures, recursion, and drops while a panic unwinds.
use std::hint::black_box;
use std::io::Write;
use std::panic;

#[inline(never)]
fn spin() {
    let mut sum = 0u64;
    for i in 0..3_000_000u64 {
        sum = black_box(sum.wrapping_add(i));
    }
    black_box(sum);
}

trait Step {
    fn call(&self, way: &[u8]);
}

struct Boxed;

impl Step for Boxed {
    #[inline(never)]
    fn call(&self, way: &[u8]) {
        go(way);
        black_box(());
    }
}

struct Dropped<'a>(&'a [u8]);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        go(self.0);
        black_box(());
    }
}

#[no_mangle]
#[inline(never)]
pub fn step_a(way: &[u8]) {
    go(way);
    black_box(());
}

#[no_mangle]
#[inline(never)]
pub fn step_b(way: &[u8]) {
    let memory = black_box([1u8; 3000]);
    go(way);
    black_box(memory);
}

#[no_mangle]
#[inline(never)]
pub fn step_c(way: &[u8]) {
    let mut first = true;
    let mut numbers: Vec<u32> = (0..100).collect();
    numbers.sort_by(|one, other| {
        if std::mem::take(&mut first) {
            go(way);
        }
        other.cmp(one)
    });
    black_box(numbers);
}

#[no_mangle]
#[inline(never)]
pub fn step_d(way: &[u8]) {
    let step: Box<dyn Step> = black_box(Box::new(Boxed));
    step.call(way);
    black_box(());
}

#[no_mangle]
#[inline(never)]
pub fn step_e(way: &[u8]) {
    let caught = panic::catch_unwind(|| {
        let _dropped = Dropped(way);
        panic::resume_unwind(Box::new(1));
    });
    black_box(caught.is_err());
}

#[inline(never)]
fn go(way: &[u8]) {
    match way.first() {
        Some(b'a') => step_a(&way[1..]),
        Some(b'b') => step_b(&way[1..]),
        Some(b'c') => step_c(&way[1..]),
        Some(b'd') => step_d(&way[1..]),
        Some(b'e') => step_e(&way[1..]),
        _ => spin(),
    }
    black_box(());
}

#[no_mangle]
#[inline(never)]
pub fn forever(way: &[u8]) {
    loop {
        go(way);
    }
}

static WAYS: [&str; 8] = ["a", "bab", "cac", "dad", "aea", "abcde", "edcba", ""];

fn main() {
    println!("busy");
    std::io::stdout().flush().unwrap();
    let threads: Vec<_> = WAYS
        .iter()
        .map(|way| std::thread::Builder::new().name(format!("w:{way}")).spawn(move || forever(way.as_bytes())).unwrap())
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
