//! Every request has an id: its sender's own, where that is fit to be kept, else a new one. It comes back with the
//! answer, and stands with every event that the request brought about.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 100;

fn is_fit(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

pub async fn with_an_id(request: Request, next: Next) -> Response {
    let given = request.headers().get(&HEADER).and_then(|value| value.to_str().ok());
    let id = match given.filter(|id| is_fit(id)) {
        Some(id) => id.to_owned(),
        None => uuid::Uuid::now_v7().to_string(),
    };
    let mut response = conductor_engine::in_request(&id, next.run(request)).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::is_fit;

    #[test]
    fn an_id_is_short_and_plain() {
        assert!(is_fit("ci-run-17/3") && is_fit(&"x".repeat(100)));
        for unfit in ["", "two words", "über", &"x".repeat(101)] {
            assert!(!is_fit(unfit), "{unfit}");
        }
    }
}
