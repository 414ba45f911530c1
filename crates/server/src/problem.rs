//! What went wrong, as problem+json (RFC 9457): never a bare text, never a stack.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
    http::{StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use conductor_api::types::{Problem, ProblemItem};
use conductor_domain::lifecycle::ErrorCode;
use conductor_engine::{Error, PROBLEMS};
use serde::de::DeserializeOwned;

pub struct Failed(pub Box<Problem>);

pub type Answer<T> = Result<T, Failed>;

impl Failed {
    pub fn new(status: StatusCode, code: ErrorCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem {
            kind: format!("urn:conductor:{code}"),
            title: status.canonical_reason().unwrap_or("error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            instance: None,
            code: code.to_string(),
            errors: vec![],
            reason: None,
            dependencies: vec![],
            allowed_actions: vec![],
        }))
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorCode::Conflict | ErrorCode::InUse | ErrorCode::DependenciesExist => StatusCode::CONFLICT,
        ErrorCode::Transient => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { code, message, detail } => {
                let errors: Vec<ProblemItem> =
                    serde_json::from_value(detail[PROBLEMS].clone()).unwrap_or_default();
                let mut failed = Self::new(status_of(code), code, message);
                failed.0.errors = errors;
                failed.0.reason = detail["reason"].as_str().map(str::to_owned);
                failed.0.dependencies =
                    serde_json::from_value(detail["dependencies"].clone()).unwrap_or_default();
                failed.0.allowed_actions =
                    serde_json::from_value(detail["allowedActions"].clone()).unwrap_or_default();
                failed
            }
            Error::Unreachable(text) | Error::Busy(text) => {
                tracing::warn!(error = text, "the database did not answer");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ErrorCode::Transient,
                    "the database does not answer; try again",
                )
            }
            Error::Taken(_) | Error::Moved(_) => {
                Self::new(StatusCode::CONFLICT, ErrorCode::Conflict, "somebody else was faster; try again")
            }
            other => {
                tracing::error!(error = %other, "request failed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Failed, other.to_string())
            }
        }
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(self.0)).into_response()
    }
}

/// A JSON body, or a problem that says what is wrong with it.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(JsonRejection::JsonDataError(error)) => {
                Err(Failed::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid, error.body_text()))
            }
            Err(error) => Err(Failed::new(error.status(), ErrorCode::Invalid, error.body_text())),
        }
    }
}

/// Query parameters, or a problem.
pub struct Ask<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Failed::new(StatusCode::BAD_REQUEST, ErrorCode::Invalid, error.body_text())),
        }
    }
}

/// An id or a name in the path, or a problem; an id that does not parse names nothing.
pub struct At<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(error) => Err(Failed::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, error.body_text())),
        }
    }
}

pub async fn no_such_route(uri: Uri) -> Failed {
    let detail = format!("there is nothing at {}; /api/v1/openapi.json lists what there is", uri.path());
    Failed::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, detail)
}

pub async fn no_such_method(uri: Uri) -> Failed {
    let detail = format!("{} does not take this method", uri.path());
    Failed::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::Invalid, detail)
}
