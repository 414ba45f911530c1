//! The managers against the real things: programs, SQLite, PostgreSQL, terraform and tofu.

mod command;
mod compose;
mod pack;
mod postgres;
mod sqlite;
mod support;
mod terraform;
