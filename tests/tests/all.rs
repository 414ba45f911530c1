//! The integration tests: one binary, one PostgreSQL server, many places.

mod alerts;
mod api;
mod audit;
mod changes;
mod chaos;
mod crashes;
mod credentials;
mod docs;
mod faults;
mod hostile;
mod life;
mod logs;
mod pool_races;
mod races;
mod rights;
mod secrets;
mod sharing;
mod sharing_races;
mod states;
mod story;
mod traces;
mod upgrades;
