//! The `compose` manager: a workload's folder.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use conductor_domain::work::{Step, StepKind};
use conductor_managers::{Compose, Manager};
use serde_json::{Value, json};

use crate::support::{TestJob, Worker, after, output, step};

fn workload() -> Value {
    json!({"workload": {
        "name": "orders",
        "containers": {
            "main": {
                "image": "nginx:1.27",
                "args": ["--price", "$5"],
                "variables": {"DATABASE_URL": "postgres://u:top-secret@h/db", "PLAIN": "x"},
                "files": {
                    "/etc/app.conf": {"content": "hello"},
                    "/etc/key": {"content": "top-secret"},
                    "/bin/run": {"binaryContent": "IyEvYmluL3No", "mode": "755"},
                },
                "volumes": {"/data": {"source": "vol.default#x", "readOnly": true}},
                "readinessProbe": {"httpGet": {"port": 80, "path": "/health"}},
                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
            },
            "migrate": {"image": "busybox", "command": ["/bin/sh"], "before": {"main": {"ready": "complete"}}},
        },
        "service": {"ports": {"web": {"port": 8080, "targetPort": 80}}},
    }})
}

fn create() -> Step {
    let mut create = step(StepKind::Create, json!({}), workload());
    create.secrets = vec!["top-secret".into()];
    create
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_workload_becomes_a_folder() {
    let job = TestJob::new(&Worker::new().await, None);
    let done = Compose.run(&job, &create()).await.unwrap();
    let folder = Path::new(output(&done, "path").as_str().unwrap());
    assert!(folder.ends_with("environments/dev/orders"));
    let text = fs::read_to_string(output(&done, "compose").as_str().unwrap()).unwrap();
    let expected = r#"name: orders-dev
services:
  main:
    command:
      - "--price"
      - "$$5"
    depends_on:
      migrate:
        condition: service_completed_successfully
    deploy:
      resources:
        limits:
          cpus: "0.5"
          memory: "67108864b"
    env_file: main.env
    healthcheck:
      interval: "5s"
      retries: 12
      test:
        - CMD-SHELL
        - "wget -q -O /dev/null 'http://localhost:80/health' || curl -fsS -o /dev/null 'http://localhost:80/health'"
      timeout: "5s"
    image: nginx:1.27
    network_mode: service:migrate
    restart: unless-stopped
    volumes:
      - read_only: true
        source: "./files/main/bin/run"
        target: /bin/run
        type: bind
      - read_only: true
        source: "./files/main/etc/app.conf"
        target: /etc/app.conf
        type: bind
      - read_only: true
        source: "./files/main/etc/key"
        target: /etc/key
        type: bind
      - read_only: true
        source: vol.default-x
        target: /data
        type: volume
  migrate:
    entrypoint:
      - /bin/sh
    env_file: migrate.env
    image: busybox
    ports:
      - "8080:80"
    restart: "no"
volumes:
  vol.default-x: {}
"#;
    assert_eq!(text, expected);
    let env = fs::read_to_string(folder.join("main.env")).unwrap();
    assert_eq!(env, "DATABASE_URL=postgres://u:top-secret@h/db\nPLAIN=x\n");
    assert_eq!(mode(&folder.join("main.env")), 0o600);
    assert_eq!(mode(&folder.join("compose.yaml")), 0o644);
    assert_eq!(mode(&folder.join("files/main/etc/app.conf")), 0o644);
    assert_eq!(mode(&folder.join("files/main/etc/key")), 0o600);
    assert_eq!(mode(&folder.join("files/main/bin/run")), 0o755);
    assert_eq!(fs::read(folder.join("files/main/bin/run")).unwrap(), b"#!/bin/sh");
    assert!(!job.lines().contains("top-secret"));
}

#[tokio::test]
async fn an_update_replaces_the_whole_folder_and_delete_removes_it() {
    let job = TestJob::new(&Worker::new().await, None);
    let create = create();
    let done = Compose.run(&job, &create).await.unwrap();
    let folder = Path::new(output(&done, "path").as_str().unwrap());
    // What an interrupted step may leave behind.
    fs::create_dir(folder.with_file_name(".orders.new")).unwrap();
    fs::write(folder.with_file_name(".orders.new").join("half"), "").unwrap();
    let mut update = after(&create, &done, StepKind::Update);
    update.parameters = serde_json::from_value(
        json!({"workload": {"containers": {"only": {"image": "a", "variables": {"A": "it's $1"}}}}}),
    )
    .unwrap();
    assert_eq!(Compose.run(&job, &update).await.unwrap(), done);
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["compose.yaml", "only.env"]);
    assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 1);

    // A workload that cannot be written leaves the old folder as it is.
    let mut wrong = update.clone();
    wrong.parameters =
        serde_json::from_value(json!({"workload": {"containers": {"only": {"image": "."}}}})).unwrap();
    assert!(Compose.run(&job, &wrong).await.unwrap_err().hint.unwrap().contains("--image"));
    wrong.parameters = serde_json::from_value(
        json!({"workload": {"containers": {"only": {"image": "a", "files": {"/../../x": {"content": ""}}}}}}),
    )
    .unwrap();
    assert!(Compose.run(&job, &wrong).await.is_err());
    assert!(folder.join("only.env").exists());

    assert_eq!(Compose.run(&job, &after(&create, &done, StepKind::Observe)).await.unwrap(), done);
    let delete = after(&create, &done, StepKind::Delete);
    for _ in 0..2 {
        assert_eq!(Compose.run(&job, &delete).await.unwrap().exists, Some(false));
    }
    assert!(!folder.exists());
    let gone = Compose.run(&job, &after(&create, &done, StepKind::Observe)).await.unwrap();
    assert_eq!(gone.exists, Some(false));
}
