//! HTTP around the engine: routes of a few lines each, who may call them, problem+json for what goes wrong.

mod access;
mod in_process;
mod metrics;
mod problem;
mod requests;
mod routes;
mod spans;

use std::sync::Arc;

use axum::Router;
use conductor_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

pub use access::Access;
pub use in_process::InProcess;

#[derive(Clone)]
pub(crate) struct App {
    pub engine: Arc<Engine>,
    pub access: Arc<Access>,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Conductor", description = "From a Score file to real resources and back."),
    modifiers(&BearerToken),
    security(("token" = []))
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_with(Default::default).add_security_scheme("token", scheme);
    }
}

/// The OpenAPI document of every public route.
pub fn openapi() -> utoipa::openapi::OpenApi {
    OpenApiRouter::<App>::with_openapi(Document::openapi()).nest("/api/v1", routes::public()).into_openapi()
}

pub fn router(engine: Arc<Engine>, access: Access) -> Router {
    let app = App { engine, access: Arc::new(access) };
    let (public, document) =
        OpenApiRouter::with_openapi(Document::openapi()).nest("/api/v1", routes::public()).split_for_parts();
    let document = Arc::new(serde_json::to_string(&document).unwrap_or_default());
    let serve_document = move || {
        let document = document.clone();
        async move { ([("content-type", "application/json")], document.to_string()) }
    };
    Router::new()
        .merge(public)
        .route("/api/v1/openapi.json", axum::routing::get(serve_document))
        .nest("/api/v1/worker", routes::worker::router())
        .nest("/api/v1/state", routes::states::protocol())
        .merge(routes::health::router())
        .merge(routes::identity::router())
        .fallback(problem::no_such_route)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(axum::middleware::from_fn(spans::in_a_span))
        .layer(axum::middleware::from_fn(requests::with_an_id))
        .with_state(app)
}

/// Serves until told to stop; requests under way are finished.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}
