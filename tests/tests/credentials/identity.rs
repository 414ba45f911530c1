//! This server's identity tokens: made for one operation, believed by whoever reads its keys.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use conductor_tests::{Api, House, Place, Score, Shape, quick, resource, seconds};
use serde_json::{Value, json};

use super::{apply, seen, teller};

const ISSUER: &str = "https://conductor.example.com";

fn part(text: &str) -> Value {
    serde_json::from_slice(&BASE64.decode(text).expect("base64url")).expect("JSON")
}

/// The claims of a token, once its signature was checked against the keys the server tells.
#[track_caller]
fn verified(api: &Api, token: &str) -> Value {
    let nobody = api.with_token("");
    let configuration = nobody.get("/.well-known/openid-configuration").json();
    assert_eq!(configuration["issuer"], ISSUER);
    assert_eq!(configuration["jwks_uri"], format!("{ISSUER}/.well-known/jwks.json"));
    let keys = nobody.get("/.well-known/jwks.json").json();
    let (signed, signature) = token.rsplit_once('.').expect("a signature");
    let (header, claims) = signed.split_once('.').expect("a header");
    let header = part(header);
    assert_eq!(header["alg"], "ES256");
    let keys = keys["keys"].as_array().expect("keys");
    let key = keys.iter().find(|key| key["kid"] == header["kid"]).expect("its key is told");
    assert!(key.get("d").is_none(), "the secret half is told");
    let coordinate = |name: &str| BASE64.decode(key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &BASE64.decode(signature).unwrap())
        .expect("the signature is good");
    part(claims)
}

fn token_of(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.world.folder.join(format!("{name}.file"))).expect("a token was handed over")
}

fn tokens_are_believed(shape: Shape) {
    let house = House::with(shape, &[("CONDUCTOR_PUBLIC_URL", ISSUER)]);
    let place = &house.place;
    teller(place, "asks", "integrations: [aws]\n");
    apply(
        &house,
        json!({
            "kind": "Integration", "name": "aws", "provider": "aws", "type": "oidc",
            "audience": "sts.example.com", "lifetime": "10m",
            "settings": { "AWS_ROLE_ARN": "arn:role", "DEMO_FILE": "${tokenFile}" },
        }),
    );
    let score = Score::new("web").with("one", resource("asks", json!({})));
    let api = house.api();
    let deployment = api.deploy(&score.text());
    api.succeeded(&deployment, seconds(60));
    let environment = seen(place, "asks");
    assert_eq!(environment["AWS_ROLE_ARN"], "arn:role");
    assert_eq!(environment["AWS_WEB_IDENTITY_TOKEN_FILE"], environment["DEMO_FILE"]);
    let first = token_of(place, "asks");
    let claims = verified(&api, &first);
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["aud"], "sts.example.com");
    assert_eq!(claims["sub"], "org:default:env:dev:app:web:template:asks");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 600);
    let operation = api.operations(&deployment).into_iter().find(|operation| operation.resource.is_some());
    assert!(operation.is_some());
    assert!(claims["operation"].as_str().unwrap().starts_with("op_"), "{claims}");
    // Another operation, another token; a changed one is not believed.
    place.destroy("web");
    let second = token_of(place, "asks");
    assert_ne!(verified(&api, &second)["jti"], claims["jti"]);
    let log = place.ok(&["logs", &deployment.id.unwrap().to_string()]).all();
    assert!(!log.contains(&first), "the token is in the log");
    for file in place.files() {
        let bytes = std::fs::read(&file).unwrap_or_default();
        assert!(!bytes.windows(first.len()).any(|part| part == first.as_bytes()), "in {}", file.display());
    }
}

#[test]
fn an_identity_token_is_believed_by_whoever_reads_the_keys() {
    tokens_are_believed(Shape::FleetSqlite { workers: 1 });
}

#[test]
fn an_identity_token_is_believed_by_whoever_reads_the_keys_of_any_server() {
    if !quick() {
        tokens_are_believed(Shape::FleetPostgres { servers: 2, workers: 1 });
    }
}

#[test]
fn without_a_public_address_nothing_is_issued() {
    let house = House::new(Shape::Up { workers: 0 });
    for path in ["openid-configuration", "jwks.json"] {
        let problem = house.api().get(&format!("/.well-known/{path}")).problem(404);
        assert!(problem["detail"].as_str().unwrap().contains("CONDUCTOR_PUBLIC_URL"), "{problem}");
    }
}
