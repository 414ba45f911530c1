//! The guard alone, for this crate's tests: the product starts it as a hidden command of its one binary.

fn main() {
    conductor_worker::guard_main()
}
