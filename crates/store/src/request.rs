//! Which request a transaction is part of: it stands with every event that is written for it.

use std::{future::Future, sync::Arc};

tokio::task_local! {
    static REQUEST: Arc<str>;
}

/// What is asked of the database in here is for this request.
pub async fn in_request<F: Future>(id: &str, work: F) -> F::Output {
    REQUEST.scope(id.into(), work).await
}

pub(crate) fn current() -> Option<Arc<str>> {
    REQUEST.try_with(Clone::clone).ok()
}
