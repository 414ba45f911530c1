//! This server as an issuer of identity tokens (OpenID Connect): a short one for every operation that needs it.
//!
//! Keys are sealed in the database. A new one is told to the world for a day before it signs, since others keep
//! what they once read; an old one is told for as long as what it signed may live. Rotation needs nobody: whoever
//! signs or is asked for the keys makes the next one when it is time.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use conductor_store::{
    Error, Owner, Result, Tx,
    integrations::{IntegrationRow, SigningKeyRow},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Context, Engine, access::hex, credentials::Bearer, templates::parse_duration};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// A key signs this long.
const SIGNS: i64 = 30 * DAY;
/// A key is known this long before it signs, and after.
const OVERLAP: i64 = DAY;
const LIFETIME_MS: u64 = 15 * 60_000;
const SHORTEST_MS: u64 = 60_000;
const LONGEST_MS: u64 = 3_600_000;

fn owner<'a>(context: &Context, kid: &'a str) -> Owner<'a> {
    Owner { organisation: context.organisation, kind: "signing key", id: kid.as_bytes() }
}

fn broken(what: &str) -> Error {
    Error::Key(format!("a signing key {what}"))
}

/// The key that signs now.
fn signing_key(tx: &mut Tx<'_>, context: &Context, now: i64) -> Result<SigningKeyRow> {
    let keys = current(tx, context, now)?;
    let key = keys.into_iter().filter(|key| key.used_from <= now).max_by_key(|key| key.used_from);
    key.ok_or_else(|| broken("is missing"))
}

/// The keys others must know, with the next one made when it is time.
fn current(tx: &mut Tx<'_>, context: &Context, now: i64) -> Result<Vec<SigningKeyRow>> {
    let mut keys = tx.signing_keys(context.organisation)?;
    let newest = keys.iter().map(|key| key.used_from).max();
    let next = match newest {
        None => Some(now),
        Some(newest) if now >= newest + SIGNS - OVERLAP => Some((newest + SIGNS).max(now + OVERLAP)),
        Some(_) => None,
    };
    if let Some(used_from) = next {
        let key = new_key(tx, context, now, used_from)?;
        tx.insert_signing_key(&key)?;
        keys.push(key);
    }
    // A key is done when its successor has been signing for longer than anything lives.
    let successor =
        |key: &SigningKeyRow| keys.iter().map(|k| k.used_from).filter(|at| *at > key.used_from).min();
    let done: Vec<String> = keys
        .iter()
        .filter(|key| successor(key).is_some_and(|at| at + OVERLAP < now))
        .map(|key| key.id.clone())
        .collect();
    for id in &done {
        tx.delete_signing_key(id)?;
    }
    keys.retain(|key| !done.contains(&key.id));
    Ok(keys)
}

fn new_key(tx: &Tx<'_>, context: &Context, now: i64, used_from: i64) -> Result<SigningKeyRow> {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
        .map_err(|_| broken("cannot be made"))?;
    let pair = parse(pkcs8.as_ref())?;
    // Uncompressed: a byte that says so, then both coordinates.
    let point = pair.public_key().as_ref();
    let (x, y) = point.get(1..33).zip(point.get(33..65)).ok_or_else(|| broken("has a strange shape"))?;
    let kid = hex(&Sha256::digest(point)[..12]);
    let public = json!({
        "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid,
        "x": BASE64.encode(x), "y": BASE64.encode(y),
    });
    Ok(SigningKeyRow {
        organisation: context.organisation,
        secret: tx.sealer().seal(owner(context, &kid), pkcs8.as_ref())?,
        id: kid,
        public,
        created_at: now,
        used_from,
    })
}

fn parse(pkcs8: &[u8]) -> Result<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).map_err(|_| broken("is damaged"))
}

/// A token for one operation, for the audience an integration names; or why there is none.
pub(crate) fn token(
    tx: &mut Tx<'_>,
    context: &Context,
    integration: &IntegrationRow,
    bearer: &Bearer,
) -> Result<std::result::Result<String, String>> {
    let Some(issuer) = &context.public_url else {
        let name = &integration.name;
        return Ok(Err(format!("integration `{name}` needs CONDUCTOR_PUBLIC_URL to be set on the server")));
    };
    let lifetime = integration.document["lifetime"].as_str().and_then(parse_duration);
    let lifetime = lifetime.unwrap_or(LIFETIME_MS).clamp(SHORTEST_MS, LONGEST_MS) as i64 / 1_000;
    let now = context.now();
    let key = signing_key(tx, context, now)?;
    let pair = parse(&tx.sealer().open(owner(context, &key.id), &key.secret)?)?;
    let now = now / SECOND;
    let header = json!({ "alg": "ES256", "typ": "JWT", "kid": key.id });
    let mut claims = bearer.claims.clone();
    let own = json!({
        "iss": issuer, "sub": bearer.subject, "aud": integration.document["audience"],
        "iat": now, "nbf": now, "exp": now + lifetime,
    });
    claims.extend(own.as_object().cloned().unwrap_or_default());
    let part = |value: &Value| BASE64.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&Value::Object(claims)));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| broken("cannot sign"))?;
    Ok(Ok(format!("{signed}.{}", BASE64.encode(signature.as_ref()))))
}

impl Engine {
    /// The address under which this server issues tokens, if it does.
    pub fn issuer(&self) -> Option<&str> {
        self.context.public_url.as_deref()
    }

    /// What others read first; `None` when this server has no public address.
    pub fn openid_configuration(&self) -> Option<Value> {
        let issuer = self.issuer()?;
        Some(json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}/.well-known/jwks.json"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "scopes_supported": ["openid"],
            "claims_supported": [
                "iss", "sub", "aud", "iat", "nbf", "exp", "jti", "organisation", "environment", "application",
                "template", "template_version", "resource", "operation",
            ],
        }))
    }

    /// The public halves of the keys that sign, signed lately or will sign soon.
    pub async fn signing_keys(&self) -> Result<Value> {
        let context = self.context.clone();
        let keys = self.db.write(move |tx| current(tx, &context, context.now())).await?;
        Ok(json!({ "keys": keys.into_iter().map(|key| key.public).collect::<Vec<_>>() }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };

    use conductor_domain::ids::IntegrationId;

    use super::*;
    use crate::{Clock, EngineOptions, RandomIds};

    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn engine(folder: &std::path::Path, clock: Arc<SetClock>) -> Arc<Engine> {
        let options = EngineOptions {
            url: format!("sqlite:{}", folder.join("conductor.db").display()),
            key: None,
            key_file: folder.join("key"),
            data: folder.to_owned(),
            migrate: true,
            connections: 1,
            lease: std::time::Duration::from_secs(30),
            default_workload: false,
            embedded: false,
            public_url: Some("https://conductor.example.com/".into()),
            state_store: None,
        };
        Engine::open_with(options, clock, Arc::new(RandomIds)).unwrap()
    }

    async fn told(engine: &Engine) -> Vec<String> {
        let keys = engine.signing_keys().await.unwrap();
        let keys = keys["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }

    /// The key that a token made now is signed with.
    async fn signs(engine: &Engine) -> String {
        let context = engine.context.clone();
        let made = engine.db.write(move |tx| {
            let integration = IntegrationRow {
                id: IntegrationId(context.ids.next()),
                organisation: context.organisation,
                name: "aws".into(),
                provider: "aws".into(),
                environment: None,
                place: String::new(),
                document: json!({ "audience": "somebody" }),
                created_at: 0,
                updated_at: 0,
            };
            let bearer = Bearer { subject: "me".into(), claims: Default::default() };
            token(tx, &context, &integration, &bearer)
        });
        let token = made.await.unwrap().unwrap();
        let header = BASE64.decode(token.split('.').next().unwrap()).unwrap();
        serde_json::from_slice::<Value>(&header).unwrap()["kid"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_key_is_told_before_it_signs_and_for_a_while_after() {
        let folder = std::env::temp_dir().join(format!("conductor-identity-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let clock = Arc::new(SetClock(AtomicI64::new(1_000 * DAY)));
        let engine = engine(&folder, clock.clone());
        let at = |days: i64| clock.0.store(1_000 * DAY + days * DAY, Ordering::Relaxed);
        let first = signs(&engine).await;
        assert_eq!(told(&engine).await, std::slice::from_ref(&first));
        assert_eq!(engine.issuer(), Some("https://conductor.example.com"));
        at(29);
        let both = told(&engine).await;
        assert_eq!(both.len(), 2, "{both:?}");
        assert_eq!(signs(&engine).await, first, "a key signs that others may not know yet");
        at(30);
        let second = signs(&engine).await;
        assert!(second != first && both.contains(&second));
        assert_eq!(told(&engine).await.len(), 2, "what the old key signed may still live");
        at(32);
        assert_eq!(told(&engine).await, std::slice::from_ref(&second));
        // Nobody asked for a long time: the old key signs until the new one is known.
        at(200);
        assert_eq!(signs(&engine).await, second);
        at(201);
        assert_ne!(signs(&engine).await, second);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
