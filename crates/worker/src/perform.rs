//! One job from its order to its completion.

use std::{any::Any, collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use conductor_api::worker::{Claim, JobOrder, JobResult, LinkError, LinkResult, Task, WorkerLink};
use conductor_domain::work::{Done, Failure, Level};
use conductor_managers::{Described, Manager, Registry, TemplateSource};
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, sleep, sleep_until, timeout},
};

use tracing::Instrument;

use crate::{
    container::Container,
    job::{Halt, Halting, Handed, JobContext, JobFolder, Layout, try_out},
    limits::Limits,
    log::{LogBook, Masker},
    report::{Backoff, Reporter},
    run::{Clock, GuardKeeper},
    state_server::StateServer,
};

/// The guard kills at once what nobody waits for; if even that takes longer, it is not up to us any more.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A job that this worker now owns.
pub struct Taken {
    pub order: JobOrder,
    pub halting: Arc<Halting>,
}

/// What all jobs of a worker share.
pub struct Performer {
    pub link: Arc<dyn WorkerLink>,
    pub registry: Registry,
    pub layout: Layout,
    pub guard: Arc<GuardKeeper>,
    pub container: Option<Container>,
    pub states: Arc<StateServer>,
    pub settings: Arc<BTreeMap<String, String>>,
    pub clock: Clock,
    /// Held while a template's files are fetched, so that they are fetched once.
    pub unpacking: Mutex<()>,
}

impl Performer {
    pub async fn perform(&self, Taken { mut order, halting }: Taken) {
        let claim = order.claim;
        let handed = Arc::new(Handed::new(std::mem::take(&mut order.credentials), &self.settings));
        let mut secrets: Vec<&str> = match &order.task {
            Task::Step(step) => step.secrets.iter().map(String::as_str).collect(),
            Task::Describe { .. } | Task::Test { .. } => Vec::new(),
        };
        secrets.extend(handed.secrets());
        let book = Arc::new(LogBook::new(self.clock.clone(), Masker::new(secrets)));
        let (journaled, journal) = watch::channel(0);
        let (link, pages) = (self.link.clone(), book.clone());
        let reporter = Arc::new(Reporter { link, claim, book: pages, halting: halting.clone(), journaled });
        // The answer may have been long on its way: then the lease is checked before anything is touched.
        if !halting.is_fresh() && !reporter.renew().await {
            return;
        }
        let (finish, over) = oneshot::channel();
        let reporting = tokio::spawn({
            let reporter = reporter.clone();
            async move { reporter.run(over).await }
        });
        let result = self.carry_out(order, &handed, &halting, &book, journal).await;
        drop(finish);
        if let Err(error) = reporting.await {
            tracing::error!(operation.id = %claim.operation, %error, "a job's reports were dropped");
        }
        if halting.halted() == Some(Halt::Lost) {
            tracing::warn!(operation.id = %claim.operation, "operation lost to another worker");
            return;
        }
        let result = result.unwrap_or_else(|failure| JobResult::Failed(told(failure, &halting, &book)));
        reporter.complete(result).await;
    }

    async fn carry_out(
        &self,
        mut order: JobOrder,
        handed: &Arc<Handed>,
        halting: &Arc<Halting>,
        book: &Arc<LogBook>,
        journaled: watch::Receiver<u64>,
    ) -> Result<JobResult, Failure> {
        let limit = Instant::now() + Duration::from_millis(order.timeout_ms);
        let manager = self
            .registry
            .get(&order.manager)
            .ok_or_else(|| Failure::failed(format!("this worker has no manager `{}`", order.manager)))?;
        let limits = Limits::take(match &mut order.task {
            Task::Step(step) => &mut step.config,
            Task::Describe { config, .. } | Task::Test { config, .. } => config,
        })?;
        let folder = self.make_folder(order.claim).await?;
        handed.lay_out(&folder.work()).map_err(|error| {
            Failure::failed(format!("the files of an integration cannot be written: {error}"))
        })?;
        for name in &handed.missing {
            book.add_text(Level::Warn, &format!("the worker's environment has no `{name}` to pass on"));
        }
        let content = match &order.content {
            Some(digest) => Some(self.content(order.claim, digest, &folder, halting).await?),
            None => None,
        };
        let (alive, mut gone) = mpsc::channel(1);
        let context = JobContext {
            claim: order.claim,
            link: self.link.clone(),
            halting: halting.clone(),
            book: book.clone(),
            layout: self.layout.clone(),
            folder: folder.clone(),
            content,
            limits,
            container: self.container.clone(),
            handed: handed.clone(),
            guard: self.guard.clone(),
            settings: self.settings.clone(),
            states: self.states.clone(),
            door: Default::default(),
            alive,
            journaled,
        };
        let mut work = JoinSet::new();
        work.spawn(run_manager(manager, context, order.task).in_current_span());
        let outcome = watch_over(&mut work, halting, limit).await;
        work.shutdown().await;
        if timeout(GONE_WITHIN, gone.recv()).await.is_err() {
            tracing::error!(operation.id = %order.claim.operation, "programs of a job could not be ended");
        }
        // A lock never outlives its job: whoever took it is gone, or could not say that it is done.
        if self.states.left_locked(order.claim.operation) {
            let unlocked = persist(halting, || self.link.unlock_state(order.claim, None)).await;
            if let Err(error) = unlocked {
                tracing::warn!(operation.id = %order.claim.operation, %error, "the state stays locked");
            }
        }
        let result = match outcome {
            Ok(Outcome::Done(done)) => {
                let done = handed.seal(done, |text| book.mask(text));
                Ok(JobResult::Done(Box::new(done)))
            }
            Ok(Outcome::Described(described)) => self.keep(order.claim, described, halting).await,
            Err(failure) => Err(failure),
        };
        // Removing what a program left may take a while, and must be over before the end is told.
        let _ = spawn_blocking(move || drop(folder)).await;
        result
    }

    async fn make_folder(&self, claim: Claim) -> Result<Arc<JobFolder>, Failure> {
        let layout = self.layout.clone();
        match spawn_blocking(move || JobFolder::create(&layout, claim)).await {
            Ok(Ok(folder)) => Ok(Arc::new(folder)),
            Ok(Err(error)) => Err(Failure::transient(format!("the job's folder cannot be made: {error}"))),
            Err(error) => Err(panicked("making the job's folder", error)),
        }
    }

    /// The template's files, fetched and unpacked unless they are there.
    async fn content(
        &self,
        claim: Claim,
        digest: &str,
        folder: &Arc<JobFolder>,
        halting: &Halting,
    ) -> Result<PathBuf, Failure> {
        let path = self
            .layout
            .content(digest)
            .ok_or_else(|| Failure::failed(format!("`{digest}` is not a digest")))?;
        if path.is_dir() {
            return Ok(path);
        }
        let _alone = self.unpacking.lock().await;
        if path.is_dir() {
            return Ok(path);
        }
        let packed = persist(halting, || self.link.blob(claim, digest)).await.map_err(|failure| Failure {
            message: format!("the template's files: {}", failure.message),
            ..failure
        })?;
        let (layout, folder, digest) = (self.layout.clone(), folder.clone(), digest.to_owned());
        match spawn_blocking(move || layout.unpack(&folder, &digest, &packed)).await {
            Ok(unpacked) => {
                unpacked.map_err(|error| Failure::failed(format!("the template's files: {error}")))
            }
            Err(error) => Err(panicked("unpacking the template's files", error)),
        }
    }

    async fn keep(
        &self,
        claim: Claim,
        described: Described,
        halting: &Halting,
    ) -> Result<JobResult, Failure> {
        let content = match described.content {
            Some(packed) => {
                let body = bytes::Bytes::from(packed.bytes);
                persist(halting, || self.link.keep_blob(claim, &packed.digest, body.clone())).await?;
                Some(packed.digest)
            }
            None => None,
        };
        Ok(JobResult::Described { description: described.description, content })
    }
}

enum Outcome {
    Done(Done),
    Described(Described),
}

async fn run_manager(manager: Arc<dyn Manager>, job: JobContext, task: Task) -> Result<Outcome, Failure> {
    match task {
        Task::Step(step) => {
            job.book.set_phase(step.kind.as_str());
            Ok(Outcome::Done(manager.run(&job, &step).await?))
        }
        Task::Test { command, config } => Ok(Outcome::Done(try_out(&job, &command, &config).await?)),
        Task::Describe { config, parameters } => {
            job.book.set_phase("describe");
            let source = TemplateSource { config, parameters, content: job.content.clone() };
            Ok(Outcome::Described(manager.describe(&job, &source).await?))
        }
    }
}

/// Waits for the manager; tells the job to stop when its time or its lease is over; drops the manager when it
/// does not come to an end.
async fn watch_over(
    work: &mut JoinSet<Result<Outcome, Failure>>,
    halting: &Halting,
    limit: Instant,
) -> Result<Outcome, Failure> {
    let mut halts = halting.halts();
    halts.mark_changed();
    let mut give_up: Option<Instant> = None;
    let mut lapsed = false;
    loop {
        let now = Instant::now();
        tokio::select! {
            Some(ended) = work.join_next() => return ended.unwrap_or_else(|error| Err(panicked("the manager", error))),
            () = sleep_until(limit), if halting.halted().is_none() => halting.halt(Halt::TimedOut),
            () = sleep_until(now + halting.until_deadline()), if !lapsed => {
                // It may have been moved on while this slept.
                if halting.until_deadline().is_zero() {
                    lapsed = true;
                    halting.halt(Halt::LeaseLost);
                    give_up = earlier(give_up, Instant::now() + halting.patience(Halt::LeaseLost));
                }
            }
            Ok(()) = halts.changed() => {
                if let Some(halt) = *halts.borrow_and_update() {
                    give_up = earlier(give_up, Instant::now() + halting.patience(halt));
                }
            }
            () = sleep_until(give_up.unwrap_or(now)), if give_up.is_some() => {
                let halt = halting.halted().unwrap_or(Halt::Cancelled);
                return Err(halt.failure());
            }
        }
    }
}

fn earlier(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// Repeats a call while nobody answers and the job is still ours to do.
async fn persist<T, F: Future<Output = LinkResult<T>>>(
    halting: &Halting,
    call: impl Fn() -> F,
) -> Result<T, Failure> {
    let (mut backoff, mut halts) = (Backoff::new(), halting.halts());
    loop {
        match call().await {
            Ok(value) => return Ok(value),
            Err(LinkError::Lost) => {
                halting.halt(Halt::Lost);
                return Err(Halt::Lost.failure());
            }
            Err(LinkError::Refused(message)) => return Err(Failure::failed(message)),
            Err(LinkError::Unreachable(message)) => tracing::debug!(%message, "nobody answered"),
        }
        tokio::select! {
            () = sleep(backoff.next()) => {}
            Ok(halt) = halts.wait_for(Option::is_some) => return Err(halt.unwrap_or(Halt::Cancelled).failure()),
        }
        if halting.until_deadline().is_zero() {
            return Err(Halt::LeaseLost.failure());
        }
    }
}

/// A failure as it may be shown: without secrets, and with our reason when it was us who stopped the job.
fn told(failure: Failure, halting: &Halting, book: &LogBook) -> Failure {
    Failure {
        code: halting.halted().map_or(failure.code, Halt::code),
        message: book.mask(&failure.message),
        hint: failure.hint.map(|hint| book.mask(&hint)),
    }
}

fn panicked(what: &str, error: JoinError) -> Failure {
    let said = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| "no reason given".to_owned(), |text| text.to_string())
        }
    };
    match error.try_into_panic() {
        Ok(panic) => Failure::failed(format!("{what} panicked: {}", said(panic))),
        Err(_) => Failure::transient(format!("{what} was dropped")),
    }
}
