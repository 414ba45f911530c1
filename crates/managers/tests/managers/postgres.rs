//! The `database` manager's postgres engine against a real server.

use conductor_domain::work::{Done, FailureCode, Step, StepKind};
use conductor_managers::{Database, Manager, TemplateSource};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::support::{TestJob, Worker, after, object, output, quick, server::postgres, step};

fn create(slug: &str) -> Step {
    let mut create =
        step(StepKind::Create, json!({"engine": "postgres", "server": postgres().url}), json!({}));
    create.subject.slug = slug.to_owned();
    create
}

async fn open(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn admin(sql: &str) {
    open(&postgres().url).await.unwrap().batch_execute(sql).await.unwrap();
}

async fn works(done: &Done) -> Client {
    let client = open(output(done, "url").as_str().unwrap()).await.unwrap();
    client.batch_execute("CREATE TABLE IF NOT EXISTS t (x int); INSERT INTO t VALUES (1)").await.unwrap();
    client
}

async fn count(sql: &str) -> i64 {
    open(&postgres().url).await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_database_lives_from_create_to_delete() {
    if quick() {
        return;
    }
    let job = TestJob::new(&Worker::new().await, None);
    let create = create("life-1");
    let done = Database.run(&job, &create).await.unwrap();
    let password = output(&done, "password").as_str().unwrap().to_owned();
    assert_eq!((password.len(), output(&done, "name").as_str()), (32, Some("life_1")));
    assert_eq!(output(&done, "host"), "127.0.0.1");
    assert!(output(&done, "port").is_u64());
    let sensitive: Vec<_> =
        done.outputs.iter().filter(|(_, o)| o.sensitive).map(|(n, _)| n.as_str()).collect();
    assert_eq!(sensitive, ["password", "url"]);
    let held = works(&done).await;
    assert!(!job.lines().contains(&password) && !job.lines().contains("a-boss-password"));
    assert!(!postgres().log().contains(&password));

    let update = after(&create, &done, StepKind::Update);
    let updated = Database.run(&job, &update).await.unwrap();
    assert_eq!(updated.outputs, done.outputs);
    works(&updated).await;

    let observe = after(&create, &done, StepKind::Observe);
    let seen = Database.run(&job, &observe).await.unwrap();
    assert_eq!((seen.exists, seen.external_id), (Some(true), done.external_id.clone()));
    assert!(seen.outputs.iter().all(|(name, output)| done.outputs[name] == *output));

    let others =
        open(&postgres().url.replace("/postgres", "/life_1").replace("boss:a-boss-password", "life_1:x"))
            .await;
    assert!(others.is_err());
    let delete = after(&create, &done, StepKind::Delete);
    for _ in 0..2 {
        assert_eq!(Database.run(&job, &delete).await.unwrap().exists, Some(false));
    }
    assert!(held.query("SELECT 1", &[]).await.is_err());
    assert_eq!(count("SELECT count(*) FROM pg_database WHERE datname = 'life_1'").await, 0);
    assert_eq!(count("SELECT count(*) FROM pg_roles WHERE rolname = 'life_1'").await, 0);
    assert_eq!(Database.run(&job, &observe).await.unwrap().exists, Some(false));
}

#[tokio::test]
async fn a_create_can_be_repeated_after_a_crash_at_any_point() {
    if quick() {
        return;
    }
    let job = TestJob::new(&Worker::new().await, None);
    let create = create("crash-1");
    let first = Database.run(&job, &create).await.unwrap();
    let second = Database.run(&job, &create).await.unwrap();
    assert_ne!(output(&first, "password"), output(&second, "password"));
    assert!(open(output(&first, "url").as_str().unwrap()).await.is_err());
    works(&second).await;
    // Crashed after the role, before the database.
    admin("DROP DATABASE crash_1 WITH (FORCE)").await;
    let seen = Database.run(&job, &after(&create, &second, StepKind::Observe)).await.unwrap();
    assert_eq!(seen.exists, Some(false));
    works(&Database.run(&job, &create).await.unwrap()).await;
    // Crashed after the database, before it was closed to others.
    admin("GRANT ALL ON DATABASE crash_1 TO PUBLIC").await;
    works(&Database.run(&job, &create).await.unwrap()).await;
    let open_to_all =
        "SELECT count(*) FROM pg_database, aclexplode(datacl) a WHERE datname = 'crash_1' AND a.grantee = 0";
    assert_eq!(count(open_to_all).await, 0);
    // A delete that crashed after the database.
    admin("DROP DATABASE crash_1 WITH (FORCE)").await;
    let delete = Step { kind: StepKind::Delete, ..create };
    assert_eq!(Database.run(&job, &delete).await.unwrap().exists, Some(false));
    assert_eq!(count("SELECT count(*) FROM pg_roles WHERE rolname = 'crash_1'").await, 0);
}

#[tokio::test]
async fn what_belongs_to_others_is_left_alone() {
    if quick() {
        return;
    }
    let job = TestJob::new(&Worker::new().await, None);
    admin("CREATE ROLE theirs_1").await;
    let create_role = create("theirs-1");
    for kind in [StepKind::Create, StepKind::Delete] {
        let failure = Database.run(&job, &Step { kind, ..create_role.clone() }).await.unwrap_err();
        assert!(failure.message.contains("not made for this resource"), "{}", failure.message);
    }
    admin("CREATE DATABASE theirs_2").await;
    let failure = Database.run(&job, &create("theirs-2")).await.unwrap_err();
    assert!(failure.message.contains("belongs to boss"), "{}", failure.message);
}

#[tokio::test]
async fn an_administrator_need_not_be_superuser() {
    if quick() {
        return;
    }
    admin("CREATE ROLE deputy LOGIN CREATEROLE CREATEDB PASSWORD 'deputy-password'").await;
    let worker = Worker::with(object(
        json!({"DB_SERVER": postgres().url.replace("boss:a-boss-password", "deputy:deputy-password")}),
    ))
    .await;
    let job = TestJob::new(&worker, None);
    let mut create = create("deputy-1");
    create.config = object(json!({"engine": "postgres", "serverEnv": "DB_SERVER"}));
    let done = Database.run(&job, &create).await.unwrap();
    works(&done).await;
    let delete = after(&create, &done, StepKind::Delete);
    assert_eq!(Database.run(&job, &delete).await.unwrap().exists, Some(false));
}

#[tokio::test]
async fn many_are_made_at_once() {
    if quick() {
        return;
    }
    let worker = Worker::new().await;
    let mut jobs = Vec::new();
    for n in 0..6 {
        let (worker, create) = (worker.clone(), create(&format!("many-{n}")));
        jobs.push(tokio::spawn(async move {
            let job = TestJob::new(&worker, None);
            // A database that is being copied cannot be copied by another: such a step is tried again.
            for _ in 0..20 {
                match Database.run(&job, &create).await {
                    Ok(done) => return works(&done).await,
                    Err(failure) => assert_eq!(failure.code, FailureCode::Transient, "{failure}"),
                }
            }
            panic!("never made");
        }));
    }
    for job in jobs {
        job.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_described() {
    if quick() {
        return;
    }
    let job = TestJob::new(&Worker::new().await, None);
    let with = |server: String| Step {
        config: object(json!({"engine": "postgres", "server": server})),
        ..create("x-1")
    };
    let away = Database.run(&job, &with("postgres://a:b@127.0.0.1:9/x".into())).await.unwrap_err();
    assert_eq!(away.code, FailureCode::Transient);
    let denied = with(postgres().url.replace("a-boss-password", "wrong-password"));
    let denied = Database.run(&job, &denied).await.unwrap_err();
    assert_eq!(denied.code, FailureCode::Failed);
    assert!(!denied.message.contains("wrong-password"));
    let template = |config: Value| TemplateSource { config: object(config), ..Default::default() };
    let described =
        Database.describe(&job, &template(json!({"engine": "postgres", "server": postgres().url}))).await;
    assert!(described.unwrap().description.outputs.unwrap()["password"]);
    for wrong in [
        json!({"engine": "postgres"}),
        json!({"engine": "postgres", "server": "nonsense"}),
        json!({"engine": "postgres", "serverEnv": "UNSET"}),
    ] {
        assert_eq!(Database.describe(&job, &template(wrong)).await.unwrap_err().code, FailureCode::Invalid);
    }
}
