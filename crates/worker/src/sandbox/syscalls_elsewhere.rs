//! On other architectures there is no list of system calls yet, and nothing pretends that there is.

use std::io;

pub struct Filters;

impl Filters {
    pub fn new(_memory_counted: bool) -> Result<Self, String> {
        Err(format!("there is no filter for {}", std::env::consts::ARCH))
    }

    pub fn install(&self) -> io::Result<()> {
        Ok(())
    }
}
