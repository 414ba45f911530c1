//! Telling a webhook of an alert: a JSON document, or the text that Slack and its likes take.

use std::time::Duration;

use serde_json::{Value, json};

/// It has this long to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Slack,
}

impl Format {
    /// What is sent.
    pub fn body(self, notice: &Value) -> Value {
        match self {
            Self::Json => notice.clone(),
            Self::Slack => {
                let text = |name: &str| notice[name].as_str().unwrap_or_default();
                let status = text("status").to_uppercase();
                let said = format!("*{status}* conductor {}: {}", text("alert"), text("message"));
                json!({ "text": said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;") })
            }
        }
    }
}

pub struct Webhook {
    client: reqwest::Client,
    url: reqwest::Url,
    format: Format,
}

impl Webhook {
    pub fn new(url: &str, format: Format) -> Result<Self, String> {
        let url: reqwest::Url = url.parse().map_err(|_| "it is no address".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("it must begin with http:// or https://".into());
        }
        let client = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, url, format })
    }

    /// One try. The address may hold a secret and is in no message.
    pub async fn send(&self, notice: &Value) -> Result<(), String> {
        let body = self.format.body(notice).to_string();
        let request =
            self.client.post(self.url.clone()).header("content-type", "application/json").body(body);
        let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answers {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_gets_one_line_of_text() {
        let notice = json!({ "alert": "dead-worker", "status": "firing", "message": "dead: <a>" });
        assert_eq!(
            Format::Slack.body(&notice),
            json!({ "text": "*FIRING* conductor dead-worker: dead: &lt;a&gt;" })
        );
        assert_eq!(Format::Json.body(&notice), notice);
    }
}
