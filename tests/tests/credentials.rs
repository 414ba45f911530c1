//! Who may do what with an operation, and what a job is handed to do it with.

mod tokens;
