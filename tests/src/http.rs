//! Talking to a server from a test: typed through the project's own client, or byte by byte.

use std::{
    future::Future,
    sync::OnceLock,
    time::{Duration, Instant},
};

use conductor_api::{
    client::{Client, ListFilter},
    http::HttpTransport,
    types::{Deployment, DeploymentRequest, DestroyRequest, Operation, Resource},
};
use reqwest::Method;
use serde_json::Value;
use tokio::{runtime::Runtime, task::JoinHandle};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().expect("a runtime")
    })
}

/// Test bodies are plain threads; what is asynchronous runs here.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    runtime().spawn(future)
}

/// An answer as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub kind: String,
    pub text: String,
    pub took: Duration,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Checks that this is a problem document with this status, and gives it.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.kind, "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], status);
        for field in ["type", "title", "detail"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "no {field}: {problem}");
        }
        problem
    }
}

/// A server and a token to talk to it with.
#[derive(Clone)]
pub struct Api {
    pub url: String,
    pub token: String,
    pub client: Client,
    raw: reqwest::Client,
}

impl Api {
    pub fn new(url: &str, token: &str) -> Self {
        // Built inside the runtime: the client looks for one.
        block_on(async {
            Self {
                url: url.to_owned(),
                token: token.to_owned(),
                client: HttpTransport::client(url, Some(token.to_owned())).expect("a client"),
                raw: reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("a client"),
            }
        })
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self::new(&self.url, token)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.raw.request(method, format!("{}{path}", self.url)).body(body);
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    /// Any request, whatever comes back.
    #[track_caller]
    pub fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Reply {
        let request = self.request(method, path, headers, body.into());
        let began = Instant::now();
        block_on(async move {
            let reply = request.send().await.expect("the server answers");
            let kind = reply.headers().get("content-type").and_then(|kind| kind.to_str().ok());
            Reply {
                status: reply.status().as_u16(),
                kind: kind.unwrap_or_default().to_owned(),
                text: reply.text().await.expect("the answer can be read"),
                took: began.elapsed(),
            }
        })
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], "")
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string())
    }

    /// Server-sent events after `last`, at most `limit` of them or all until the stream ends: (id, event, data).
    #[track_caller]
    pub fn events(&self, path: &str, last: Option<&str>, limit: usize) -> Vec<(String, String, String)> {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(last.map(|id| ("last-event-id", id)));
        let request = self.request("GET", path, &headers, vec![]);
        block_on(async move {
            let mut reply = request.send().await.expect("the server answers");
            assert_eq!(reply.status(), 200);
            let (mut events, mut text) = (Vec::new(), Vec::new());
            while let Some(chunk) = reply.chunk().await.expect("the stream can be read") {
                text.extend_from_slice(&chunk);
                while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = text.drain(..end + 2).collect();
                    events.extend(event(&String::from_utf8_lossy(&block)));
                    if events.len() == limit {
                        return events;
                    }
                }
            }
            events
        })
    }

    pub fn is_ready(&self) -> bool {
        let request = self.request("GET", "/readyz", &[], vec![]).timeout(Duration::from_secs(2));
        block_on(async move { request.send().await.is_ok_and(|reply| reply.status() == 200) })
    }

    #[track_caller]
    pub fn deploy(&self, manifest: &str) -> Deployment {
        let request = DeploymentRequest {
            environment: "dev".into(),
            manifest: manifest.to_owned(),
            ..DeploymentRequest::default()
        };
        block_on(self.client.deploy(&request)).expect("the deployment is accepted")
    }

    #[track_caller]
    pub fn destroy(&self, application: &str) -> Deployment {
        let request = DestroyRequest {
            environment: "dev".into(),
            application: Some(application.to_owned()),
            dry_run: false,
            keep_protected: false,
        };
        block_on(self.client.destroy(&request)).expect("the destruction is accepted")
    }

    #[track_caller]
    pub fn deployment(&self, of: &Deployment) -> Deployment {
        block_on(self.client.deployment(of.id.expect("a stored deployment")))
            .expect("the deployment is there")
    }

    /// Waits for its end, through restarts of the server.
    #[track_caller]
    pub fn settled(&self, of: &Deployment, within: Duration) -> Deployment {
        let id = of.id.expect("a stored deployment");
        let began = Instant::now();
        loop {
            let seen = block_on(self.client.deployment(id));
            match seen {
                Ok(seen) if seen.is_over() => return seen,
                seen if began.elapsed() > within => panic!("{id} is not over after {within:?}: {seen:?}"),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    pub fn succeeded(&self, of: &Deployment, within: Duration) -> Deployment {
        let end = self.settled(of, within);
        assert_eq!(end.status, "succeeded", "{:?}", end.error);
        end
    }

    /// Resources that are not gone.
    #[track_caller]
    pub fn resources(&self) -> Vec<Resource> {
        let filter = ListFilter { environment: Some("dev".into()), ..ListFilter::default() };
        let all = block_on(self.client.resources(&filter)).expect("a list of resources");
        all.into_iter().filter(|resource| resource.phase.to_string() != "Deleted").collect()
    }

    #[track_caller]
    pub fn operations(&self, of: &Deployment) -> Vec<Operation> {
        let deployment = of.id.map(|id| id.to_string());
        let filter = ListFilter { deployment, ..ListFilter::default() };
        block_on(self.client.operations(&filter)).expect("a list of operations")
    }
}

fn event(block: &str) -> Option<(String, String, String)> {
    let field = |name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    let data = field("data");
    (!data.is_empty()).then(|| (field("id"), field("event"), data))
}
