//! Words on the wire, shared by command line, worker and server: the documents, the typed client and the worker
//! protocol.

pub mod client;
pub mod http;
pub mod state_protocol;
pub mod trace;
pub mod types;
pub mod webhook;
pub mod worker;
