//! The `database` manager's sqlite engine.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use conductor_domain::work::{FailureCode, StepKind};
use conductor_managers::{Database, Manager, TemplateSource};
use serde_json::json;

use crate::support::{TestJob, Worker, after, object, output, step};

#[tokio::test]
async fn a_database_is_made_kept_and_removed() {
    let job = TestJob::new(&Worker::new().await, None);
    let create = step(StepKind::Create, json!({"engine": "sqlite"}), json!({}));
    let done = Database.run(&job, &create).await.unwrap();
    let path = output(&done, "path").as_str().unwrap().to_owned();
    assert!(path.starts_with('/') && path.ends_with("/databases/dev/orders-db-a1b2.db"), "{path}");
    assert_eq!(output(&done, "url").as_str().unwrap(), format!("sqlite://{path}"));
    assert_eq!(done.external_id.as_deref(), Some(path.as_str()));
    assert!(fs::read(&path).unwrap().starts_with(b"SQLite format 3\0"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let rows = || rusqlite::Connection::open(&path).unwrap();
    rows().execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (7)").unwrap();
    for kind in [StepKind::Create, StepKind::Update] {
        assert_eq!(Database.run(&job, &after(&create, &done, kind)).await.unwrap(), done);
    }
    let kept: i64 = rows().query_row("SELECT x FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 7);

    let observe = after(&create, &done, StepKind::Observe);
    assert_eq!(Database.run(&job, &observe).await.unwrap(), done);
    let delete = after(&create, &done, StepKind::Delete);
    fs::write(format!("{path}-wal"), "").unwrap();
    for _ in 0..2 {
        assert_eq!(Database.run(&job, &delete).await.unwrap().exists, Some(false));
    }
    assert!(!Path::new(&path).exists() && !Path::new(&format!("{path}-wal")).exists());
    assert_eq!(Database.run(&job, &observe).await.unwrap().exists, Some(false));
    let plan = Database.run(&job, &after(&create, &done, StepKind::Plan)).await.unwrap_err();
    assert_eq!(plan.code, FailureCode::Unsupported);
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let job = TestJob::new(&Worker::new().await, None);
    let create = step(StepKind::Create, json!({"engine": "sqlite"}), json!({}));
    let done = Database.run(&job, &create).await.unwrap();
    let path = output(&done, "path").as_str().unwrap();
    fs::write(
        path,
        "not a database, and longer than a header has to be so that nobody takes it for one".repeat(9),
    )
    .unwrap();
    let failure = Database.run(&job, &create).await.unwrap_err();
    assert!(failure.message.contains("not a database"), "{}", failure.message);
    let mut elsewhere = create.clone();
    elsewhere.subject.slug = "../../x".into();
    assert_eq!(Database.run(&job, &elsewhere).await.unwrap_err().code, FailureCode::Invalid);
}

#[tokio::test]
async fn describe_checks_the_engine() {
    let job = TestJob::new(&Worker::new().await, None);
    let template = |config| TemplateSource { config: object(config), ..Default::default() };
    let described =
        Database.describe(&job, &template(json!({"engine": "sqlite"}))).await.unwrap().description;
    assert_eq!(described.outputs.unwrap().keys().collect::<Vec<_>>(), ["path", "url"]);
    assert_eq!(described.parameters.unwrap()["additionalProperties"], true);
    let wrong = Database.describe(&job, &template(json!({"engine": "postgress"}))).await.unwrap_err();
    assert!(wrong.hint.unwrap().contains("did you mean `postgres`?"));
    let wrong = Database.describe(&job, &template(json!({"engin": "sqlite"}))).await.unwrap_err();
    assert!(wrong.hint.unwrap().contains("did you mean `engine`?"));
    assert!(Database.describe(&job, &template(json!({}))).await.is_err());
}
