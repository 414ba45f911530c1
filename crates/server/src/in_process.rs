//! The same interface without a socket: requests go straight to the router.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, body::Body, http};
use conductor_api::client::{Client, ClientError, Request, Response, Transport};
use conductor_engine::Engine;
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::{Access, router};

pub struct InProcess {
    router: Router,
}

impl InProcess {
    pub fn client(engine: Arc<Engine>, actor: String) -> Client {
        Client::new(Arc::new(Self { router: router(engine, Access::Embedded { actor }) }))
    }
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request) -> Result<Response, ClientError> {
        let nonsense = |error: String| ClientError::Nonsense(error);
        let mut builder = http::Request::builder()
            .method(request.method)
            .uri(&request.path)
            .header(http::header::CONTENT_TYPE, request.content_type);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        let request = builder.body(Body::from(request.body)).map_err(|error| nonsense(error.to_string()))?;
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status().as_u16();
        let body =
            response.into_body().collect().await.map_err(|error| nonsense(error.to_string()))?.to_bytes();
        Ok(Response { status, body })
    }
}
